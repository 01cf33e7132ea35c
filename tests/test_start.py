"""What needs no PyTorch starts without it, and the public API is there nonetheless."""

import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest

from gossamer.cli import COMMANDS

HEAVY = ("torch", "numpy", "scipy", "sklearn", "matplotlib", "pandas")
BLOCKED = "import sys; sys.modules.update(dict.fromkeys({names!r})); "
RUN = "sys.argv[0] = 'gossamer'; from gossamer.cli import main; main()"


def run_blocked(names: tuple[str, ...], code: str, *arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    """Run code in a process in which some packages cannot be imported."""
    program = BLOCKED.format(names=names) + code
    return subprocess.run(
        [sys.executable, "-c", program, *arguments], cwd=cwd, capture_output=True, text=True, timeout=60
    )


@pytest.mark.parametrize(
    "arguments", [["--help"], ["--version"], *([command, "--help"] for command in COMMANDS)], ids=" ".join
)
def test_help_and_version_need_nothing_heavy(arguments: list[str], tmp_path: Path) -> None:
    done = run_blocked((*HEAVY, "zmq"), RUN, *arguments, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip()


@pytest.mark.parametrize(
    ("arguments", "hint"),
    [
        (["train", "--stepsize", "1"], "--step-size"),
        (["trian"], "train"),
        (["train", "--topology", "stair"], "'star'"),
        (["train", "--agents", "0"], "greater than or equal to 1"),
    ],
)
def test_a_mistake_shows_before_anything_heavy_is_imported(arguments: list[str], hint: str, tmp_path: Path) -> None:
    done = run_blocked((*HEAVY, "zmq"), RUN, *arguments, cwd=tmp_path)
    assert done.returncode == 2, done.stderr
    assert hint in done.stderr
    assert "Traceback" not in done.stderr


def test_keys_need_no_torch(tmp_path: Path) -> None:
    done = run_blocked(HEAVY, RUN, "keys", "--out", "site", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "site" / "key.public").read_text() == done.stdout


def test_the_package_is_imported_without_torch_and_still_has_its_names(tmp_path: Path) -> None:
    code = "import gossamer; assert set(gossamer.__all__) <= set(dir(gossamer)); from gossamer import Settings"
    done = run_blocked(HEAVY, f"{code}, GossamerError; print(Settings(agents=3).agents)", cwd=tmp_path)
    assert done.stdout == "3\n", done.stderr
    code = "from gossamer import *; import gossamer; assert train is gossamer.api.train; gossamer.nothing"
    done = run_blocked((), code, cwd=tmp_path)
    assert "module 'gossamer' has no attribute 'nothing'" in done.stderr


@pytest.mark.parametrize("command", COMMANDS)
def test_the_list_of_commands_says_what_each_says_of_itself(command: str) -> None:
    docstring = getattr(import_module(f"gossamer.commands.{command}"), command).__doc__
    assert " ".join(docstring.partition("\n\n")[0].split()) == COMMANDS[command]
