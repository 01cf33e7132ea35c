"""A process that trains keeps its memory, and gives it back."""

import ctypes
import subprocess
import sys

import pytest

CODE = """
import resource, torch
from gossamer.runs.memory import kept_memory

def faults(rounds=5):
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(rounds):
        torch.empty(50_000_000, dtype=torch.uint8).fill_(1)
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

torch.set_num_threads(1)
fresh = faults()
with kept_memory():
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
