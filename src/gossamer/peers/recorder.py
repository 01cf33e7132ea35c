"""Recorder of an agent: keeps what it receives, as far as an audit reads it, in the folder of its run (--record).

Messages are written before each checkpoint, so that after a crash a file is missing only of steps that are trained
again. A run that goes back to a step records from there anew, and what was recorded of these steps is removed: the
later messages count. They are the same bits, as long as all agents have their secrets.
"""

import logging
from collections.abc import Generator
from pathlib import Path
from typing import TypeVar

from torch import Tensor

from gossamer.agents import Host, Inbox
from gossamer.agents.exchange import Phase, join_parts
from gossamer.generators import delegate
from gossamer.machine import as_size
from gossamer.peers.protocol.exchanges import PlannedExchange
from gossamer.peers.shards.membership import Membership
from gossamer.runs.recordings import (
    RECORD_FOLDER,
    is_audited,
    list_message_files,
    name_message,
    shows_weights,
    write_messages,
)
from gossamer.runs.settings import Settings

MAX_RECORD_BYTES = 256_000_000  # of all that an agent records; later steps are left out
MAX_BUFFER_BYTES = 32_000_000  # in memory before a file is written, beside the current step
_Value = TypeVar("_Value")
_logger = logging.getLogger(__name__)


class Recorder:
    """Messages of one agent on their way to files of at most `most` bytes in all."""

    def __init__(self, folder: Path, membership: Membership, settings: Settings, most: int = MAX_RECORD_BYTES) -> None:
        self._folder, self._settings, self._most = folder / RECORD_FOLDER, settings, most
        self._run, self._agent = membership.run, membership.agent
        self._first = self._end = self._bytes = 0
        self._buffer: dict[str, Tensor] = {}  # of steps that are over, from the first to before the end
        self._current: dict[str, Tensor] = {}  # of the step that is not
        self._full = False

    def begin(self, step: int) -> None:
        """Record from a step on, and remove what was recorded of it and of later ones before a recovery."""
        self._first = self._end = step
        self._buffer, self._current, self._full = {}, {}, False
        kept = 0
        for first, path in list_message_files(self._folder).items():
            if first >= step:
                path.unlink()
            else:
                kept += path.stat().st_size
        self._bytes = kept

    def begin_step(self, host: Host, saves: bool) -> None:
        """Go to the host's step; with `saves`, what came before is written, as a checkpoint follows."""
        self._end_step(host.step)
        if saves or sum(map(_count_bytes, self._buffer.values())) > MAX_BUFFER_BYTES:
            self.flush()
        if not shows_weights(self._settings):
            for name, part in host.params.items():
                self._keep(f"own.{host.step}.{name}", part[0])

    def record(self, program: Generator[PlannedExchange, Inbox, _Value]) -> Generator[PlannedExchange, Inbox, _Value]:
        """The same program, of whose exchanges is kept what an audit reads."""

        def pass_on(exchange: PlannedExchange) -> Generator[PlannedExchange, Inbox, Inbox]:
            inbox = yield exchange
            self._add(exchange, inbox)
            return inbox

        result = yield from delegate(program, pass_on)
        self._end_step(self._end)
        self.flush()
        return result

    def flush(self) -> None:
        """Write the steps that are over."""
        if self._buffer:
            write_messages(self._folder, self._run, self._agent, self._first, self._end, self._buffer)
        self._first, self._buffer = self._end, {}

    def _end_step(self, following: int) -> None:
        if not self._full:
            self._buffer |= self._current
            self._end = following
        self._current = {}

    def _add(self, exchange: PlannedExchange, inbox: Inbox) -> None:
        plan, step, outbox = exchange
        if not is_audited(self._settings, plan, step, outbox):
            return
        for link in outbox.expected:
            self._keep(name_message("received", plan, step, outbox, link.sender), inbox[link])
        if outbox.phase is Phase.CONSENSUS:  # the same to all neighbours
            for link, message in list(outbox.messages.items())[:1]:
                self._keep(name_message("sent", plan, step, outbox, link.receiver), join_parts(message))

    def _keep(self, name: str, content: Tensor) -> None:
        if self._full or name in self._current:  # of a long batch axis the first part is kept
            return
        self._bytes += _count_bytes(content)
        if self._bytes > self._most:
            self._full, self._current = True, {}
            _logger.warning(
                "agent %d: recorded messages reach %s, the most that is kept, at step %d; an audit of this run can use "
                "the steps before",
                self._agent,
                as_size(self._most),
                self._end,
            )
            return
        self._current[name] = content.clone()


def _count_bytes(content: Tensor) -> int:
    return content.numel() * content.element_size()
