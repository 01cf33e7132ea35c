"""Every script in examples/ runs, in a folder of its own; one of them in a process, as a user would run it."""

import runpy
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parent.parent / "examples"
ARGUMENTS = {"sites": ["digits", "--steps", "2"]}  # of those that need any
IN_A_PROCESS = "own_graph"


@pytest.mark.parametrize("name", sorted(path.stem for path in EXAMPLES.glob("*.py") if path.stem != IN_A_PROCESS))
def test_an_example_runs(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    script = str(EXAMPLES / f"{name}.py")
    monkeypatch.setattr(sys, "argv", [script, *ARGUMENTS.get(name, [])])
    runpy.run_path(script, run_name="__main__")


def test_an_example_runs_in_a_process_of_its_own(tmp_path: Path) -> None:
    command = [sys.executable, str(EXAMPLES / f"{IN_A_PROCESS}.py")]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
