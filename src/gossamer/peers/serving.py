"""Inference after a run: agents that stay (gossamer peer --serve) make a forward pass whenever one of them is asked.

It is the protocol of training, as a run of its own whose steps are passes: the same keys, checks, retransmissions and
recovery. Between two passes nothing is sent but statuses. A pass begins where a request comes in, with this agent's
rows; rows that arrive make an agent begin its part. An agent that dies and comes back opens a new epoch, and what was
asked meanwhile is asked again there.
"""

import contextlib
import secrets
import socket
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Protocol

from gossamer.agents.exchange import Outbox, Phase
from gossamer.agents.host import Host
from gossamer.agents.relays import AgentRoutes
from gossamer.files import make_private
from gossamer.peers.checkpoints import EpochStore
from gossamer.peers.evaluation import ReceivedRows, receive_rows
from gossamer.peers.local_requests import LocalRequests, answer
from gossamer.peers.program import label_exchanges, list_expected
from gossamer.peers.protocol import wire
from gossamer.peers.protocol.boxes import Boxes, make_boxes
from gossamer.peers.protocol.config import ProtocolConfig
from gossamer.peers.protocol.exchanges import ExpectedMessages, PlannedExchange, Program
from gossamer.peers.protocol.member import Member
from gossamer.peers.protocol.relaying import Relays
from gossamer.peers.protocol.wire import Position, RefusedError
from gossamer.peers.results import name_rows
from gossamer.peers.shards.membership import Membership
from gossamer.runs.tensors import pack_tensors

MOST_PASSES = 1 << 40  # in one epoch
PLAN = "inference"
OnRefusedMessage = Callable[[int, RefusedError], None]


@dataclass(frozen=True)
class ServingStore(EpochStore):
    """Persistent state of serving: the epoch alone. A pass needs nothing from the one before."""

    def steps(self) -> list[int]:
        return [0]

    def discard(self, diverged: int, start: int) -> None: ...


class InferencePasses:
    """Forward passes of an agent with its kept weights, one for each step of the protocol, on demand."""

    def __init__(
        self,
        host: Host,
        on_rows: Callable[[ReceivedRows], None],
        routes: AgentRoutes | None,
        make_boxes: Callable[[bytes], Boxes],
    ) -> None:
        """`make_boxes` makes those of a session, for rows that are relayed by `routes`."""
        self._host, self._on_rows = host, on_rows
        self._routes, self._make_boxes = routes, make_boxes
        self._expected = list_expected(PLAN, receive_rows(host), host.torch_dtype, routes)

    def program(self, step: int, session: bytes) -> Program:
        relays = Relays(self._routes, self._host.torch_dtype, self._make_boxes(session))
        while True:
            yield PlannedExchange(PLAN, step, Outbox(Phase.FORWARD, 0, {}, {}))  # until it is demanded
            self._on_rows((yield from relays.relay(label_exchanges(PLAN, step, receive_rows(self._host)))))
            step += 1

    def expectations(self, position: Position) -> ExpectedMessages | None:
        number = position[1] - 1
        return self._expected[number] if 0 <= number < len(self._expected) else None


@dataclass
class Request:
    """A request that has not been answered."""

    connection: socket.socket
    began: float
    give_up: float  # seconds


class Sending(Protocol):
    """The part of a transport that serving needs."""

    def send(self, neighbour: int, message: bytes) -> None: ...
    def receive(self, seconds: float) -> list[tuple[int, memoryview]]: ...
    def watch(self, descriptor: int) -> None: ...


class Receiving(Protocol):
    """What answers messages of the finished run."""

    def receive(self, sender: int, message: wire.Buffer, now: float) -> None: ...


class Server:
    """An agent that answers requests for its neighbours' rows, until its process ends."""

    def __init__(
        self,
        folder: Path,
        host: Host,
        routes: AgentRoutes | None,
        config: ProtocolConfig,
        transport: Sending,
        on_refused: OnRefusedMessage,
    ) -> None:
        self._pending: list[Request] = []
        self._transport = transport
        own: Membership = replace(config.membership, run=name_serving(config.membership.run))
        passes = InferencePasses(host, self._answer, routes, partial(make_boxes, config.signatures, own.agent, own.run))
        self._run = own.run
        serving = replace(
            config,
            membership=own,
            steps=MOST_PASSES,
            keep=1,
            incarnation=secrets.randbits(62),
            max_step_gap=1,
            on_demand=True,
        )
        state = folder / "serving"
        make_private(state)
        self.member = Member(
            serving,
            ServingStore(state),
            lambda step, session, unable: passes.program(step, session),
            passes.expectations,
            transport.send,
            time.monotonic(),
            on_refused,
        )
        self._requests = LocalRequests(folder)
        transport.watch(self._requests.descriptor)

    def run(self, training: Receiving, report: Callable[[Member], object], report_every: float = 2.0) -> None:
        """Serve until Ctrl-C; `training` answers agents that are late: all have finished."""
        reported = 0.0
        with contextlib.closing(self), contextlib.suppress(KeyboardInterrupt):
            while True:
                wait = min(self.member.wake_at - time.monotonic(), report_every)
                for sender, message in self._transport.receive(max(0.0, wait)):
                    target: Receiving = self.member if wire.is_of_run(message, self._run) else training
                    target.receive(sender, message, time.monotonic())
                self.turn(time.monotonic())
                if time.monotonic() >= reported + report_every:
                    report(self.member)
                    reported = time.monotonic()

    def turn(self, now: float) -> None:
        """Take requests, and begin a pass if there are any."""
        for connection, request in self._requests.accept():
            self._pending.append(Request(connection, now, request["give_up"]))
        for one in [one for one in self._pending if now > one.began + one.give_up]:
            self._pending.remove(one)
            answer(one.connection, {"waiting_for": list(self.member.waiting_for), "seconds": now - one.began})
        if self._pending:
            self.member.demand(now)
        self.member.tick(now)

    def close(self) -> None:
        for one in self._pending:
            one.connection.close()
        self._requests.close()

    def _answer(self, rows: ReceivedRows) -> None:
        """Answer all requests with the rows of a pass: weights and features are the same in all of them."""
        if not self._pending:
            return
        content = pack_tensors(name_rows(rows))
        for one in self._pending:
            answer(one.connection, {"seconds": time.monotonic() - one.began}, content)
        self._pending.clear()


def name_serving(run: str) -> str:
    """The name under which the agents of a run serve."""
    return f"{run} inference"
