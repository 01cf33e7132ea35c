"""The loop of a peer: what has arrived is read before a neighbour is given up for its silence."""

from collections import Counter, defaultdict
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from peers.memberships import make_membership

from gossamer.peers import driving, process
from gossamer.peers.evaluation_log import EvaluationLog
from gossamer.peers.refusals import RefusalLog


class Clock:
    now = 0.0

    def monotonic(self) -> float:
        return self.now

    def process_time(self) -> float:
        return 0.0


class Talker:
    """A transport on which a message waits whenever it is looked at after `speaks`."""

    bytes_in: dict[int, int] = {}
    bytes_out: dict[int, int] = {}
    dropped = 0
    detours: dict[str, list[int]] = {}

    def __init__(self, clock: Clock, speaks: float) -> None:
        self.clock, self.speaks = clock, speaks

    @property
    def refused(self) -> Counter[str]:
        return Counter()

    def receive(self, seconds: float) -> list[tuple[int, memoryview]]:
        if self.clock.now >= self.speaks:
            return [(1, memoryview(b"status"))]
        self.clock.now += max(seconds, 0.01)
        return []


class Finished:
    """A member that has finished, computes for two minutes and a half in its first turn, and hears of all later."""

    agent = 0
    all_done, waiting_for, waiting_since, wake_at, epoch, position = False, (1,), 0.0, 0.0, 1, (3, 0)
    finished, refused, sent_bytes = True, Counter[str](), Counter[tuple[int, str]]()

    def __init__(self, clock: Clock) -> None:
        self.clock, self.heard, self.turns = clock, 0.0, 0
        self.membership = make_membership(0, 2, (1,))
        self.config = SimpleNamespace(steps=3)

    def receive(self, sender: int, message: memoryview, now: float) -> None:
        self.heard, self.all_done = now, True

    def tick(self, now: float) -> None:
        self.turns += 1
        if self.turns == 1:
            self.clock.now += 150.0
        self.wake_at = self.clock.now + 1.0

    def may_leave(self, now: float) -> bool:
        return self.all_done or now > self.heard + 120.0


@pytest.mark.parametrize("speaks", [100.0, 1e9])
def test_own_arithmetic_is_not_the_others_silence(
    speaks: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = Clock()
    monkeypatch.setattr(driving, "time", clock)
    member: Any = Finished(clock)
    transport: Any = Talker(clock, speaks)
    metrics, refusals = EvaluationLog(tmp_path / "m"), RefusalLog(tmp_path / "r", 0)

    def drive() -> None:
        waits = defaultdict[int, float](float)
        sources = transport, metrics, refusals, waits
        report = partial(process._report, sources=sources, options=process.PeerOptions(), folder=tmp_path, first=0)
        driving.drive_peer(
            member, transport, refusals, lambda now: report(member, now), 0.5, None, False, lambda message: False, waits
        )

    if speaks < 150.0:
        drive()  # the message that came meanwhile is read first
    else:
        with pytest.raises(driving.LeftEarlyError):
            drive()
