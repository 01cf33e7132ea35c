"""A new project is whole or not there, and the commands of its README run as they stand."""

import os
import re
import shlex
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from commands.inside import run

from gossamer.errors import GossamerError
from gossamer.projects import writing
from gossamer.projects.writing import PROJECT_FILES, write_project


@pytest.mark.slow
def test_the_commands_of_its_readme_run_as_they_stand(tmp_path: Path) -> None:
    made = run("new", "hospitals", cwd=tmp_path)
    assert made.returncode == 0, made.stderr
    assert made.stdout.split() == [f"hospitals/{name}" for name in PROJECT_FILES]
    assert "cd hospitals" in made.stderr
    project = tmp_path / "hospitals"
    readme = (project / "README.md").read_text()
    assert readme.startswith("# hospitals\n")
    lines = [line for block in re.findall(r"```bash\n(.*?)```", readme, re.DOTALL) for line in block.splitlines()]
    assert len(lines) == 9
    for line in lines:
        program, *arguments = shlex.split(line)
        if program == "python":
            command = [sys.executable, *arguments]
            done = subprocess.run(command, cwd=project, capture_output=True, text=True, timeout=240, check=False)
        elif arguments[0] == "launch":
            command = [sys.executable, "-m", "gossamer", *arguments, "--steps", "10"]  # the rest is the launch's own
            threads = os.environ | {"OMP_NUM_THREADS": "1"}
            done = subprocess.run(
                command, cwd=project, capture_output=True, text=True, timeout=240, env=threads, check=False
            )
        elif arguments[0] == "watch":  # stays until Ctrl-C
            done = interrupt_when_served([sys.executable, "-m", "gossamer", *arguments], project)
        else:
            done = run(*arguments, cwd=project)
        assert done.returncode == 0, f"{line}: {done.stderr}"
        assert "warning" not in done.stderr, f"{line}: {done.stderr}"
    for file in ("first/predictions.csv", "first/curves.png", "launched/weights.safetensors", "topology/topology.png"):
        assert (project / "runs" / file).stat().st_size > 0
    with (project / "runs/first/predictions.csv").open() as predictions:
        assert predictions.readline().startswith("vertex,agent,class")
        assert predictions.readline().startswith("patient-0,0,")


def interrupt_when_served(command: list[str], folder: Path) -> subprocess.CompletedProcess[str]:
    """Run a command that serves a page until it has printed its address; then press Ctrl-C."""
    with subprocess.Popen(command, cwd=folder, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        printed = ""
        while "http://" not in printed and (line := process.stderr.readline()):
            printed += line
        process.send_signal(signal.SIGINT)
        rest = process.communicate(timeout=60)[1]
    return subprocess.CompletedProcess(command, process.returncode, "", printed + rest)


@pytest.mark.parametrize(
    ("there", "message"),
    [("folder", "exists and is not empty"), ("file", "is not a folder"), ("here", "the folder that this runs in")],
)
def test_what_is_there_is_left_alone(there: str, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    target = tmp_path / "mine"
    if there == "file":
        target.write_text("precious")
    else:
        target.mkdir()
    if there == "folder":
        (target / "notes").write_text("precious")
    if there == "here":
        monkeypatch.chdir(target)
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(GossamerError, match=message):
        write_project(target)
    assert sorted(tmp_path.rglob("*")) == before


def test_an_empty_folder_is_taken(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    write_project(tmp_path / "empty")
    assert {path.name for path in (tmp_path / "empty").iterdir()} == set(PROJECT_FILES)


def test_a_failure_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    written: list[Path] = []

    def fail(path: Path, content: bytes) -> None:
        if written:
            raise OSError(28, "No space left on device")
        written.append(path)
        path.write_bytes(content)

    monkeypatch.setattr(writing, "write_atomically", fail)
    with pytest.raises(GossamerError, match=r"cannot write the project .*mine: No space left on device"):
        write_project(tmp_path / "mine")
    assert written
    assert not list(tmp_path.iterdir())


def test_its_settings_are_known_and_its_script_is_lean(tmp_path: Path) -> None:
    write_project(tmp_path / "mine")
    from gossamer.runs.settings import make_settings
    from gossamer.runs.toml_files import read_settings

    assert make_settings(read_settings(tmp_path / "mine" / "settings.toml"), "settings").agents == 4
    script = (tmp_path / "mine" / "prepare.py").read_text()
    assert set(re.findall(r"^(?:import|from) (\w+)", script, re.MULTILINE)) == {"csv", "pathlib", "numpy"}
    assert max(map(len, script.splitlines())) <= 120
