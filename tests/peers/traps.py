"""Traps: a peer dies, stops, or waits for the test at an exact moment of its training."""

import ctypes
import os
import signal
import time
from dataclasses import dataclass
from enum import Enum, StrEnum
from pathlib import Path
from typing import Any

from gossamer import files
from gossamer.peers import process as peer
from gossamer.peers import shard_work
from gossamer.peers.network.sockets import Sockets
from gossamer.peers.program import train_from
from gossamer.peers.protocol.exchanges import PlannedExchange
from gossamer.peers.protocol.wire import FRAME

LIMIT = 100  # seconds after which a peer ends itself, whatever has become of the test
STEP = 20  # of the moment


class Moment(Enum):
    """A moment within the step."""

    BEFORE_SENDING = "the first message of the step is about to go out"
    BETWEEN_PHASES = "the forward pass is over, the backward pass has not begun"
    DURING_CONSENSUS = "one neighbour has been sent the weights, the other has not"
    WHILE_CHECKPOINTING = "half of a checkpoint is on the disk"


class Action(StrEnum):
    DIE = "die"
    STOP = "stop"
    WAIT = "wait"


@dataclass(frozen=True)
class Trap:
    moment: Moment
    action: Action
    folder: Path  # where a peer that waits says so, in `reached`, and until `go` appears

    def spring(self) -> None:
        if self.action == Action.WAIT:
            (self.folder / "reached").touch()
            while not (self.folder / "go").exists():
                time.sleep(0.01)
        else:
            os.kill(os.getpid(), signal.SIGKILL if self.action == Action.DIE else signal.SIGSTOP)


class _TrapRunner:
    """Follows the training of this process and springs the trap, once."""

    def __init__(self, trap: Trap) -> None:
        self.trap, self.here, self.sent, self.sprung = trap, (-1, ""), 0, False

    def at(self, moment: Moment) -> None:
        if moment == self.trap.moment and not self.sprung:
            self.sprung = True
            self.trap.spring()

    def begin(self, *arguments: Any) -> Any:
        """The program of a run, watched."""
        run: Any = BEGIN(*arguments)
        inbox = None
        while True:
            try:
                plan, step, exchange = run.send(inbox)
            except StopIteration as done:
                return done.value
            here = (step, str(exchange.phase) if plan == "train" else plan)
            if (self.here, here) == ((STEP, "forward"), (STEP, "backward")):
                self.at(Moment.BETWEEN_PHASES)
            self.here, self.sent = here, 0
            inbox = yield PlannedExchange(plan, step, exchange)

    def sockets(self, *arguments: Any) -> Sockets:
        sockets = Sockets(*arguments)
        send = sockets.send

        def watched(neighbour: int, message: bytes) -> None:
            if message[1] == FRAME and self.here[0] == STEP:
                self.at(Moment.BEFORE_SENDING)
                if self.here[1] == "consensus" and self.sent == 1:
                    self.at(Moment.DURING_CONSENSUS)
                self.sent += 1
            send(neighbour, message)

        sockets.send = watched  # type: ignore[method-assign]
        return sockets

    def fsync(self, file: int) -> None:
        name = Path(f"/proc/self/fd/{file}").readlink().name
        if self.trap.moment == Moment.WHILE_CHECKPOINTING and name.startswith(f".checkpoint-{STEP}."):
            os.ftruncate(file, os.fstat(file).st_size // 2)
            self.at(Moment.WHILE_CHECKPOINTING)
        FSYNC(file)


BEGIN, FSYNC = train_from, os.fsync


def run(
    folder: Path,
    trap: Trap | None,
    errors: Path,
    namespaces: tuple[Path, ...],
    record: bool,
    serve: bool,
    address: str | None = None,
) -> None:
    """In a process of its own: train the agent of a shard, in these namespaces, with this trap."""
    signal.alarm(LIMIT)
    with errors.open("ab") as file:
        os.dup2(file.fileno(), 2)
    for namespace in namespaces:
        _enter(namespace)
    if trap is not None:
        runner = _TrapRunner(trap)
        shard_work.train_from, peer.Sockets, files.os.fsync = runner.begin, runner.sockets, runner.fsync  # type: ignore
    peer.run_peer(folder, peer.PeerOptions(give_up=LIMIT, record=record, serve=serve, address=address))


def _enter(namespace: Path) -> None:
    with namespace.open() as file:
        if ctypes.CDLL(None, use_errno=True).setns(file.fileno(), 0):
            raise OSError(ctypes.get_errno(), f"cannot enter {namespace}")
