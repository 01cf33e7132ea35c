"""Gossamer's own processes keep their memory and return it; the library leaves a user's allocator alone."""

import ctypes
import subprocess
import sys
from pathlib import Path

import pytest

CODE = """
import resource, torch
from gossamer.runs.memory import keep_memory

def faults(rounds=5):
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(rounds):
        torch.empty(50_000_000, dtype=torch.uint8).fill_(1)
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

torch.set_num_threads(1)
fresh = faults()
with keep_memory():
    faults(12)  # how often an aligned array moves before one fits where the last was hangs on where the heap begins
    kept = faults()
print(fresh, kept, faults())
"""


@pytest.mark.skipif(not hasattr(ctypes.CDLL(None), "mallopt"), reason="needs glibc")
def test_pages_are_asked_for_once() -> None:
    done = subprocess.run([sys.executable, "-c", CODE], capture_output=True, text=True, check=True, timeout=60)
    fresh, kept, after = map(int, done.stdout.split())
    assert kept < fresh / 3
    assert after > fresh / 10  # large arrays come from the system again, and go back to it


COUNTED = """
import ctypes, sys

class Counted(ctypes.CDLL):
    calls = 0

    def __getattr__(self, name):
        Counted.calls += name == "mallopt"
        return super().__getattr__(name)

ctypes.CDLL = Counted
import gossamer
gossamer.train("digits", agents=2, steps=2, baselines=False)
print("library", Counted.calls)
from gossamer.cli import main
sys.argv[1:] = ["train", "digits", "--agents", "2", "--steps", "2", "--no-baselines", "--out", "run"]
try:
    main()
finally:
    print("command", Counted.calls)
"""


@pytest.mark.skipif(not hasattr(ctypes.CDLL(None), "mallopt"), reason="needs glibc")
def test_only_commands_change_the_allocator(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", COUNTED], cwd=tmp_path, capture_output=True, text=True, check=True, timeout=120
    )
    lines = done.stdout.splitlines()
    assert lines[0] == "library 0"
    name, calls = lines[-1].split()
    assert (name, int(calls) > 0) == ("command", True)
