"""Shells complete commands, options and the names that options take, without PyTorch."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from gossamer.cli import COMMANDS

HEAVY = ("torch", "numpy", "scipy", "sklearn", "matplotlib", "zmq")
BLOCKED = f"import sys; sys.modules.update(dict.fromkeys({HEAVY!r})); from gossamer.cli import main\n"


def run(*arguments: str, cwd: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run the command in a process that cannot import what is heavy."""
    return subprocess.run(
        [sys.executable, "-c", BLOCKED + "main()", *arguments],
        cwd=cwd,
        env=os.environ | variables,
        capture_output=True,
        text=True,
        timeout=60,
    )


def complete(lines: list[str], cwd: Path) -> list[list[str]]:
    """What bash offers for the last word of each line, asked for in one process."""
    program = """
import json, os
for line in json.loads(sys.stdin.read()):
    os.environ |= {"COMP_WORDS": line, "COMP_CWORD": str(line.count(" ")), "_GOSSAMER_COMPLETE": "complete_bash"}
    try:
        main()
    except SystemExit:
        print("END")
"""
    done = subprocess.run(
        [sys.executable, "-c", BLOCKED + program],
        cwd=cwd,
        input=json.dumps(lines),
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert not done.stderr
    return [answer.split() for answer in done.stdout.split("END\n")[:-1]]


def test_commands_options_and_their_names(tmp_path: Path) -> None:
    offered = {
        "gossamer ": list(COMMANDS),
        "gossamer tr": ["train"],
        "gossamer train --step-": ["--step-size", "--step-decay"],
        "gossamer train --topology r": ["ring", "random"],
        "gossamer launch --update ": ["gd", "momentum", "adam"],
        "gossamer train --agents 4 --boundary-bits ": ["0", "16", "8"],
        "gossamer train --assignment b": ["bfs", "balanced"],
        "gossamer train --log-level d": ["debug"],
        "gossamer train ci": ["citeseer"],
        "gossamer topology --data pub": ["pubmed"],
        "gossamer docs pri": ["privacy"],
        "gossamer train ./own": [],  # the shell itself offers files
        "gossamer trian repl": ["replay"],  # after a mistyped command another
    }
    assert dict(zip(offered, complete(list(offered), tmp_path), strict=True)) == offered


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_each_shell_has_a_script(shell: str, tmp_path: Path) -> None:
    done = run(cwd=tmp_path, _GOSSAMER_COMPLETE=f"source_{shell}")
    assert done.returncode == 0, done.stderr
    assert f"_GOSSAMER_COMPLETE=complete_{shell}" in done.stdout


def test_zsh_and_fish_are_answered_with_help(tmp_path: Path) -> None:
    words = {"_TYPER_COMPLETE_ARGS": "gossamer tr"}
    zsh = run(cwd=tmp_path, _GOSSAMER_COMPLETE="complete_zsh", **words)
    assert '"train":"Train a graph neural network' in zsh.stdout
    fish = run(cwd=tmp_path, _GOSSAMER_COMPLETE="complete_fish", _TYPER_COMPLETE_FISH_ACTION="get-args", **words)
    assert fish.stdout.startswith("train\tTrain a graph neural network")


def test_an_installed_completion_works_in_bash(tmp_path: Path) -> None:
    """Install for the shell that is found, and let a new one complete a line."""
    command = tmp_path / "bin" / "gossamer"
    command.parent.mkdir()
    command.write_text(f'#!/bin/sh\nexec {sys.executable} -m gossamer "$@"\n')
    command.chmod(0o755)
    path = f"{command.parent}{os.pathsep}{os.environ['PATH']}"
    home = {"HOME": str(tmp_path), "PATH": path}

    def bash(script: str) -> str:
        done = subprocess.run(
            ["bash", "-c", script], env=os.environ | home, cwd=tmp_path, capture_output=True, text=True, timeout=60
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    assert "bash completion installed" in bash("gossamer --install-completion; exit $?")
    assert "_gossamer_completion" in bash("gossamer --show-completion; exit $?")
    ask = "COMP_WORDS=(gossamer train --topology ri); COMP_CWORD=3; _gossamer_completion gossamer; echo ${COMPREPLY[@]}"
    assert bash(f"source ~/.bashrc; {ask}") == "ring\n"
