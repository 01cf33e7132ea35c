"""The keyword arguments of `gossamer.train` are the settings, and a type checker knows them."""

import inspect
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Unpack, get_type_hints

import gossamer
from gossamer.layer_specs import LayerSpec, PygNetwork
from gossamer.runs.options import Options
from gossamer.runs.settings import Settings

ROOT = Path(__file__).parents[2]
SNIPPET = """\
import gossamer

graph = gossamer.load("digits")
result = gossamer.train(graph, agents=3, hidden=(8, 4), step_size=1, track=None, layers="gcn")
gossamer.train("digits", hidden="8,4", dtype="float64", out="run")
gossamer.resume("run", 10, graph=graph)
accuracy: float = result.summary["distributed"]["test"]["accuracy"]
gossamer.train(graph, agent=3)
gossamer.train(graph, agents="three")
gossamer.resume("run", "ten")
gossamer.predict(7)
"""


def test_options_are_the_settings() -> None:
    annotations = {name: field.annotation for name, field in Settings.model_fields.items() if name != "dataset"}
    assert get_type_hints(Options) == annotations | {
        "layers": str | Sequence[str | LayerSpec | Mapping[str, Any]],
        **dict.fromkeys(("hidden", "before", "after"), int | str | Sequence[int]),
        "initial": str | Path | Mapping[str, Any] | PygNetwork | None,
    }
    assert list(get_type_hints(Options)) == list(annotations)
    assert inspect.signature(gossamer.train).parameters["options"].annotation == Unpack[Options]


def test_a_type_checker_finds_wrong_options(tmp_path: Path) -> None:
    (tmp_path / "snippet.py").write_text(SNIPPET)
    command = [
        sys.executable,
        "-m",
        "mypy",
        "--config-file",
        str(ROOT / "pyproject.toml"),
        str(tmp_path / "snippet.py"),
    ]
    env = os.environ | {"MYPYPATH": str(ROOT / "src")}
    done = subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, timeout=600)
    wrong = {int(line.split(":")[1]): line for line in done.stdout.splitlines() if ": error: " in line}
    lines = SNIPPET.splitlines()
    assert [lines[number - 1] for number in sorted(wrong)] == lines[-4:], done.stdout + done.stderr
    assert "agent" in wrong[len(lines) - 3]
