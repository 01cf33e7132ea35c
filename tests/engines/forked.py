"""Jobs of torchrun whose ranks are forked: PyTorch is imported once, and not by every rank of every job.

The same agent as torchrun's starts and watches the ranks, with the same environment variables.
"""

import os
import shlex
import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

from torch.distributed.launcher.api import LaunchConfig, elastic_launch

import gossamer.api  # noqa: F401  # what every rank would import
from gossamer.cli import main

TESTS = Path(__file__).parents[1]


def run_forked(script: str, arguments: Sequence[str], cwd: Path) -> str:
    """Run a script that launches jobs; return what it prints. No process survives."""
    paths = [str(TESTS), *filter(None, [os.environ.get("PYTHONPATH")])]
    process = subprocess.Popen(
        [sys.executable, script, *arguments],
        cwd=cwd,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env=os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join(paths)},
        start_new_session=True,
    )
    try:
        output, _ = process.communicate(timeout=120)
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
    assert process.returncode == 0, output
    return output


def launch_ranks(ranks: int, work: Callable[..., None], *arguments: object) -> None:
    """Call a function on every rank of a new job; raises if one fails."""
    config = LaunchConfig(
        min_nodes=1,
        max_nodes=1,
        nproc_per_node=ranks,
        run_id="forked",
        rdzv_backend="c10d",
        rdzv_endpoint="localhost:0",
        start_method="fork",
        max_restarts=0,
    )
    elastic_launch(config, work)(*arguments)


def _run_command(*arguments: str) -> None:
    sys.argv[1:] = arguments
    try:
        main()
    except SystemExit as ended:
        if ended.code:
            raise RuntimeError(f"gossamer {' '.join(arguments)} has ended with {ended.code}") from None


def run_jobs(jobs: Sequence[tuple[int, Sequence[str]]], cwd: Path) -> str:
    """Run commands of gossamer on so many ranks each, one after the other; return what they print."""
    return run_forked(__file__, [shlex.join([str(ranks), *arguments]) for ranks, arguments in jobs], cwd)


if __name__ == "__main__":
    for line in sys.argv[1:]:
        count, *words = shlex.split(line)
        launch_ranks(int(count), _run_command, *words)
