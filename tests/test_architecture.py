"""The design's rules on imports and on what may not appear, read off the source."""

import ast
from pathlib import Path

import pytest

SOURCE = Path(__file__).parent.parent / "src" / "gossamer"
FILES = sorted(SOURCE.rglob("*.py"))
# A package may import those of a lower rank; topology imports no sibling at all. Errors are everybody's.
RANK = {
    "errors": 0,
    "files": 0,
    "machine": 0,
    "reading": 1,
    "data": 2,
    "assignment": 3,
    "model": 3,
    "agents": 4,
    "report": 4,
    "runtime": 5,
    "experiments": 6,
    "commands": 7,
    "cli": 8,
}
COMMANDS = {str(path.relative_to(SOURCE)) for path in FILES if path.parent.name == "commands"}
EDGES = {  # third-party libraries that one module alone may import
    "typer": {"cli.py", *COMMANDS},
    "pydantic": {f"runtime/{name}.py" for name in ("settings", "site_files", "documents", "manifests")},
    "filelock": {"files.py"},
    "safetensors": {"runtime/tensors.py"},
    "msgpack": {"runtime/wire.py"},
    "zmq": {"runtime/sockets.py", "runtime/monitor.py"},
    "nacl": {"runtime/signatures.py"},
    "sklearn": {"data/digits.py"},
    "matplotlib": {
        "report/curves.py",
        "report/agent_graph.py",
        "report/panels.py",
        "report/theory.py",
        "report/traffic.py",
    },
    "threadpoolctl": {"topology/design.py"},
    "pymetis": {"assignment/simple.py"},
    "rich": {*COMMANDS, "report/terminal.py", "report/bars.py"},
}


def imported(path: Path) -> list[str]:
    names = []
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            names += (
                [f"{node.module}.{alias.name}" for alias in node.names]
                if node.module == "gossamer"
                else [node.module or ""]
            )
    return names


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(SOURCE)))
def test_imports_point_one_way(path: Path) -> None:
    place = path.relative_to(SOURCE)
    package = place.parts[0].removesuffix(".py")
    if package in ("__init__", "__main__"):
        return
    for name in imported(path):
        parts = name.split(".")
        if parts[0] != "gossamer" or parts[1] == package:
            continue
        if parts[1] == "errors":
            continue
        if package == "topology" or parts[1] == "topology":
            assert package in ("runtime", "experiments"), f"{place} imports {name}"
        else:
            assert RANK[parts[1]] < RANK[package], f"{place} imports {name}"


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(SOURCE)))
def test_third_party_edges_and_forbidden_things(path: Path) -> None:
    place = str(path.relative_to(SOURCE))
    roots = {name.split(".")[0] for name in imported(path)}
    for library, homes in EDGES.items():
        assert library not in roots or place in homes, f"{place} imports {library}"
    assert not roots & {"pickle", "cloudpickle", "dill"}
    assert "importlib" not in roots or place in ("cli.py", "runtime/directory.py")  # for importlib.metadata
    assert "allow_pickle=True" not in path.read_text()
    if place.startswith("agents/"):
        assert not roots & {"time", "datetime", "socket", "os", "pathlib", "logging", "random", "threading", "asyncio"}
        calls = {ast.unparse(node.func) for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Call)}
        assert not calls & {"open", "print", "torch.rand", "torch.manual_seed"}
        assert not any(call.startswith("np.random.") for call in calls)


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(SOURCE)))
def test_every_module_says_what_it_is_and_stays_small(path: Path) -> None:
    text = path.read_text()
    assert ast.get_docstring(ast.parse(text)), path
    assert text.count("\n") <= 300, path
