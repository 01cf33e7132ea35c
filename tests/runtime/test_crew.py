"""A crew of processes ends with its parent."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from runtime.peers import deployed

from gossamer.runtime.crew import write_shards


def test_a_crew_leaves_no_process_behind_when_its_parent_is_killed(tmp_path: Path) -> None:
    program = """
import sys
from pathlib import Path
from gossamer.runtime.crew import Crew
if __name__ == "__main__":
    with Crew([Path(p) for p in sys.argv[1:]]) as crew:
        for states in crew.watch():
            if len(states) == len(sys.argv) - 1 and all(s["step"] > 2 for s in states.values()):
                print("running", flush=True)
"""
    folders = write_shards(tmp_path, *deployed(steps=1_000_000, evaluate_every=1_000_000))
    parent = subprocess.Popen(
        [sys.executable, "-c", program, *map(str, folders)], stdout=subprocess.PIPE, start_new_session=True
    )
    assert parent.stdout is not None
    assert parent.stdout.readline() == b"running\n"
    parent.kill()
    parent.wait()
    parent.stdout.close()
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        try:
            os.killpg(parent.pid, 0)
        except ProcessLookupError:
            return
        time.sleep(0.1)
    os.killpg(parent.pid, signal.SIGKILL)
    pytest.fail("an agent outlived the crew")
