"""The loop of a peer's process: messages in both directions, reports, and the reasons to end.

It drives one agent's side of the protocol, that of member.py or, where agents may leave and join, that of group.py.
"""

import gc
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import Protocol

from gossamer.agents.relays import Route
from gossamer.errors import GossamerError
from gossamer.peers.network.transport import Transport
from gossamer.peers.progress import PeerReport, ProgressLog, join_numbers
from gossamer.peers.protocol.member import ISOLATION_TIMEOUT
from gossamer.peers.protocol.relaying import describe_route
from gossamer.peers.protocol.wire import Buffer
from gossamer.peers.refusals import RECOVERY_REASONS, RefusalLog

SHOWN_ROUTES = 4  # of rows that are missing, in an error
BUSY_SECONDS = 1.0  # after which a turn of the loop counts as arithmetic, during which messages may wait unread


class MissingNeighbourError(GossamerError):
    """A neighbour has been silent for longer than the operator allows."""


class LeftEarlyError(GossamerError):
    """The agent has finished, and leaves before it knows that all have."""


class RunWithoutAgentError(GossamerError):
    """The run has finished while the agent was no member."""


class Driven(Protocol):
    """One agent's side of the protocol."""

    agent: int

    @property
    def wake_at(self) -> float: ...
    @property
    def all_done(self) -> bool: ...
    @property
    def waiting_for(self) -> tuple[int, ...]: ...
    @property
    def waiting_since(self) -> float: ...
    def receive(self, sender: int, message: Buffer, now: float) -> None: ...
    def tick(self, now: float) -> None: ...
    def may_leave(self, now: float) -> bool: ...


def drive_peer(
    driven: Driven,
    transport: Transport,
    refusals: RefusalLog,
    write_report: Callable[[float], PeerReport],
    report_every: float,
    give_up: float | None,
    serves: bool,
    ignores: Callable[[Buffer], bool],
    waits: defaultdict[int, float],
    find_routes: Callable[[], Sequence[Route]] = tuple,
) -> None:
    """Pass messages in both directions, until all agents are done and the neighbours had time to learn of it; who
    serves can tell them later. Messages that the protocol `ignores` are of neighbours that serve already. `waits` grows
    by the seconds in which nothing could be done without a neighbour's messages. `find_routes` has the routes of rows
    that are missing and that neighbours pass on."""
    gc.freeze()  # objects made so far stay: scanning them again and again would cost more than the protocol
    reported, progress = 0.0, ProgressLog()
    while True:
        began = time.monotonic()
        awaited = driven.waiting_for
        arrived = transport.receive(min(driven.wake_at - began, report_every))
        waited = time.monotonic() - began
        for agent in awaited:
            waits[agent] += waited
        for sender, message in arrived:
            if not ignores(message):
                driven.receive(sender, message, time.monotonic())
        now = time.monotonic()
        driven.tick(now)
        if now > began + report_every + BUSY_SECONDS:
            continue  # messages may have come during this agent's own arithmetic: read them before anyone is given up
        leaving = driven.may_leave(now) or (serves and driven.all_done)
        if now >= reported + report_every or leaving:
            report = write_report(now)
            progress.add(report, now)
            reported = now
        if leaving and driven.all_done:
            return
        if leaving:
            raise LeftEarlyError(
                f"agent {driven.agent} has finished and leaves, but has heard of nobody for {ISOLATION_TIMEOUT:.0f} s "
                f"and not that agent {join_numbers(driven.waiting_for)} has finished; if it has not, start both again"
            )
        waited = now - driven.waiting_since
        if give_up is not None and driven.waiting_for and waited > give_up:
            raise MissingNeighbourError(
                f"agent {driven.agent} has waited {waited:.0f} s for agent {join_numbers(driven.waiting_for)} at "
                f"step {report['step']}{_describe_routes(find_routes())}; see whether they run"
                f"{_describe_refusals(refusals, driven.waiting_for)}"
            )


def _describe_routes(routes: Sequence[Route]) -> str:
    """The routes of missing rows, or the first of many."""
    if not routes:
        return ""
    more = f" and {len(routes) - SHOWN_ROUTES} more" if len(routes) > SHOWN_ROUTES else ""
    return f", which passes on rows by the routes {', '.join(map(describe_route, routes[:SHOWN_ROUTES]))}{more}"


def _describe_refusals(refusals: RefusalLog, agents: Sequence[int]) -> str:
    """The refusals of these agents' messages, without those that belong to every recovery, and of those in which anyone
    passes on what another seems not to have signed."""
    awaited = {str(agent) for agent in agents}
    found = [
        f"{count} of agent {agent} as {reason}"
        for agent, reasons in refusals.by_sender().items()
        for reason, count in reasons.items()
        if (agent in awaited and reason not in RECOVERY_REASONS) or (agent != "address" and reason == "signature")
    ]
    return f"; refused {', '.join(found)} (refused.jsonl says more)" if found else ""
