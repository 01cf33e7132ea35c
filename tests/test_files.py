"""Files are written whole, even where a flood has taken every descriptor for a while."""

import contextlib
import errno
import os
import resource
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch

from gossamer.agents.share import MASKS
from gossamer.files import wait_for_descriptor, write_atomically
from gossamer.peers.evaluation import PeerEvaluation
from gossamer.peers.evaluation_log import EvaluationLog, read_evaluation_log


@pytest.fixture
def taken() -> Iterator[list[int]]:
    """All the descriptors that this process may have."""
    torch.ones(3).add(1)  # PyTorch reads of the processor once, and not again if it could not
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    held: list[int] = []
    resource.setrlimit(resource.RLIMIT_NOFILE, (len(list(Path("/proc/self/fd").iterdir())) + 50, before[1]))
    try:
        with contextlib.suppress(OSError):
            for _ in range(1000):
                held.append(os.open(os.devnull, os.O_RDONLY))
        assert len(held) < 1000
        yield held
    finally:
        for one in held:
            os.close(one)
        resource.setrlimit(resource.RLIMIT_NOFILE, before)


@pytest.mark.skipif(not Path("/proc/self/fd").is_dir(), reason="cannot count descriptors")
def test_writing_waits_for_a_descriptor(tmp_path: Path, taken: list[int]) -> None:
    def give_back() -> None:
        os.close(taken.pop())

    writes: tuple[Callable[[], object], ...] = (
        lambda: write_atomically(tmp_path / "whole", b"content"),
        lambda: EvaluationLog(tmp_path / "metrics.jsonl").add(PeerEvaluation(3, dict.fromkeys(MASKS, torch.ones(6)))),
    )
    for write in writes:
        timer = threading.Timer(0.1, give_back)
        timer.start()
        write()
        timer.join()
        taken.append(os.open(os.devnull, os.O_RDONLY))
    os.close(taken.pop())
    assert (tmp_path / "whole").read_bytes() == b"content"
    assert [record["step"] for record in read_evaluation_log(tmp_path / "metrics.jsonl")] == [3]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["metrics.jsonl", "whole"]


def test_waiting_has_an_end_and_other_errors_none() -> None:
    calls = []

    def fail(number: int) -> None:
        calls.append(number)
        raise OSError(number, os.strerror(number))

    with pytest.raises(OSError, match="Too many open files"):
        wait_for_descriptor(lambda: fail(errno.EMFILE), seconds=0.05)
    assert len(calls) > 1
    calls.clear()
    with pytest.raises(OSError, match="No space"):
        wait_for_descriptor(lambda: fail(errno.ENOSPC))
    assert len(calls) == 1
