"""Two ranks on one machine: messages arrive as they were sent, in memory that grows and is used alternately."""

import socket
from pathlib import Path

import pytest
import torch

from gossamer.engines.cluster.shared_memory import BLOCK, SharedChannel, connect_local_ranks


def make_pair() -> tuple[SharedChannel, SharedChannel]:
    here, there = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    return SharedChannel(here), SharedChannel(there)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_messages_of_all_sizes_arrive(dtype: torch.dtype) -> None:
    here, there = make_pair()
    for step, length in enumerate([1, 0, 17, BLOCK // dtype.itemsize, BLOCK + 3, 5, 3 * BLOCK]):
        sent = torch.randn(length, dtype=dtype)
        here.send([sent[: length // 3], sent[length // 3 :]])
        there.send([torch.full((2,), step, dtype=dtype)])
        assert torch.equal(there.receive(length, dtype), sent)
        assert here.receive(2, dtype).tolist() == [step, step]


def test_a_message_lasts_until_the_next_one_is_answered() -> None:
    """The sender may write the next while the last is read, but not the one after."""
    here, there = make_pair()
    here.send([torch.tensor([1.0])])
    first = there.receive(1, torch.float32)
    there.send([])
    here.send([torch.tensor([2.0])])
    assert first.item() == 1.0
    second = there.receive(1, torch.float32)
    there.send([])
    here.send([torch.tensor([3.0])])
    assert second.item() == 2.0
    assert first.item() == 3.0  # its half is in use again


def test_a_rank_that_is_gone_is_an_error() -> None:
    here, there = make_pair()
    del there
    with pytest.raises(OSError, match="its process has ended"):
        here.receive(1, torch.float32)


def test_rows_are_taken_in_any_layout() -> None:
    here, there = make_pair()
    rows = torch.arange(12.0).view(3, 4)
    here.send([rows.T, rows[:, 1]])
    expected = torch.cat([rows.T.reshape(-1), rows[:, 1]])
    assert torch.equal(there.receive(15, torch.float32), expected)


def test_a_rank_alone_has_no_channels() -> None:
    assert connect_local_ranks(0, lambda own: [own]) == {}


@pytest.mark.parametrize(("module", "name"), [("os", "memfd_create"), ("socket", "AF_UNIX")])
def test_without_such_memory_or_sockets_there_are_no_channels(
    module: str, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr(f"{module}.{name}")
    assert connect_local_ranks(0, lambda own: [own, "null" if own != "[]" else "[]"]) == {}


def test_ranks_that_cannot_listen_are_reached_over_the_network(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    deep = tmp_path / ("x" * 120)  # longer than a socket's name may be
    deep.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(deep))
    assert connect_local_ranks(0, lambda own: [own, '"/no/such/listener"' if own != "[]" else "[]"]) == {}
