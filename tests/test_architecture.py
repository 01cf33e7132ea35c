"""The design's rules on imports, names, maps and what may not appear, read off the source."""

import ast
import re
from pathlib import Path

import pytest

SOURCE = Path(__file__).parent.parent / "src" / "gossamer"
FILES = sorted(SOURCE.rglob("*.py"))
PACKAGES = sorted({path.parent for path in FILES})
# A package may import those of a lower rank. Topology takes and returns arrays: it imports no sibling.
RANK = {
    "array_types": 0,
    "choices": 0,
    "errors": 0,
    "generators": 0,
    "machine": 0,
    "files": 1,
    "projects": 2,
    "layer_specs": 1,
    "data": 2,
    "assignment": 3,
    "model": 3,
    "topology": 3,
    "agents": 4,
    "runs": 5,
    "engines": 6,
    "peers": 6,
    "privacy": 6,
    "observers": 7,
    "report": 7,
    "experiments": 8,
    "api": 9,
    "auditing": 10,
    "gathering": 10,
    "replaying": 10,
    "reporting": 10,
    "launching": 11,
    "commands": 12,
    "cli": 13,
}
COMMANDS = {str(path.relative_to(SOURCE)) for path in FILES if path.parent.name == "commands"}
TABLES = {
    f"report/{name}.py" for name in ("terminal", "agent_tables", "audit_tables", "timeline_tables", "topology_tables")
}
EDGES = {  # third-party libraries, each behind few modules
    "typer": {"cli.py", *COMMANDS},
    "pydantic": {
        "runs/settings.py",
        "runs/deployment_settings.py",
        "runs/network_settings.py",
        "runs/documents.py",
        "runs/manifests.py",
        "runs/stored_results.py",
        "peers/rehearsal/script.py",
        "peers/shards/site_files.py",
        "peers/shards/manifests.py",
    },
    "filelock": {"files.py"},
    "dp_accounting": {"runs/budgets.py"},
    "safetensors": {"runs/tensors.py"},
    "msgpack": {"peers/protocol/wire.py"},
    "zmq": {
        "peers/network/sockets.py",
        "peers/network/curve.py",
        "peers/network/socket_options.py",
        "peers/network/monitor.py",
    },
    "nacl": {"peers/protocol/signatures.py", "peers/protocol/pads.py", "peers/protocol/boxes.py"},
    "torch.distributed": {"engines/cluster/distributed.py"},
    "sklearn": {
        "data/digits.py",
        "agents/ranking.py",
        "privacy/encoded.py",
        "privacy/features.py",
        "privacy/membership.py",
        "privacy/recovery.py",
    },
    "matplotlib": {
        "report/curves.py",
        "report/agent_graph.py",
        "report/panels.py",
        "report/reconstructions.py",
        "report/style.py",
        "report/theory.py",
        "report/timeline.py",
        "report/traffic.py",
    },
    "threadpoolctl": {"topology/design.py"},
    "torch.utils.tensorboard": {"observers/tensorboard.py"},
    "prometheus_client": {"report/live/metrics.py", "report/live/metric_families.py", "report/live/metrics_client.py"},
    "IPython": {"observers/notebook.py"},
    "torch_geometric": {"model/pyg_modules.py"},
    "pymetis": {"assignment/simple.py"},
    "rich": {*COMMANDS, *TABLES, "report/bars.py"},
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
        if parts[0] != "gossamer" or parts[1] in (package, "errors"):
            continue
        assert package != "topology", f"{place} imports {name}"
        assert RANK[parts[1]] < RANK[package], f"{place} imports {name}"


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(SOURCE)))
def test_third_party_edges_and_forbidden_things(path: Path) -> None:
    place = str(path.relative_to(SOURCE))
    names = imported(path)
    roots = {name.split(".")[0] for name in names}
    for library, homes in EDGES.items():
        used = any(name == library or name.startswith(f"{library}.") for name in names)
        assert not used or place in homes, f"{place} imports {library}"
    assert not roots & {"pickle", "cloudpickle", "dill", "fcntl"}
    assert "importlib" not in roots or place in ("__init__.py", "cli.py", "runs/run_json.py")
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


@pytest.mark.parametrize("package", PACKAGES, ids=lambda p: str(p.relative_to(SOURCE)))
def test_a_package_maps_all_its_modules(package: Path) -> None:
    docstring = ast.get_docstring(ast.parse((package / "__init__.py").read_text())) or ""
    mapped = set(re.findall(r"^ {4}(\w+)  *\S", docstring, re.MULTILINE))
    modules = {path.stem for path in package.glob("*.py")} - {"__init__", "__main__"}
    assert mapped == modules | {folder.name for folder in PACKAGES if folder.parent == package}


# Names with the same meaning wherever they occur: a command and what it calls, one figure and the next.
SHARED = {"EXAMPLES", "T", "audit", "main", "predict", "replay", "reproduce", "train", "topology"}


def test_one_name_has_one_meaning() -> None:
    homes: dict[str, set[str]] = {}
    for path in FILES:
        for node in ast.parse(path.read_text()).body:
            names = [node.name] if isinstance(node, ast.FunctionDef | ast.ClassDef) else []
            targets = node.targets if isinstance(node, ast.Assign) else []
            targets = [node.target] if isinstance(node, ast.AnnAssign) else targets
            for name in (*names, *(one.id for one in targets if isinstance(one, ast.Name))):
                homes.setdefault(name, set()).add(str(path.relative_to(SOURCE)))
    double = {name: sorted(found) for name, found in homes.items() if len(found) > 1 and not name.startswith("_")}
    assert not {name: found for name, found in double.items() if name not in SHARED}
