"""Detours: messages for a neighbour whose link is down go over other agents, until it is up again.

The arithmetic does not notice: every exchange stays as planned, and is as exact as before. So no agent has to learn of
a link that is down but its two ends and those on the detour, and nothing has to be agreed. This is an overlay network
(Andersen, Balakrishnan, Kaashoek and Morris 2001, "Resilient overlay networks") with the routes of dynamic source
routing (Johnson and Maltz 1996), which need no table of the whole network:

call      An agent that has heard nothing of a neighbour over their link for LINK_SILENCE calls it, again and again: all
          agents pass the call on to their neighbours, once, and add themselves to its path. It names the last echo
          that has arrived over the link.
echo      Who is called answers over the link. A caller that was only waiting for long arithmetic hears it.
detour    If the next call names an earlier echo, the link is down. Who is called takes the path of that call backwards:
          it sends each of its messages over the link and over the path, in a box that only the two ends can close and
          open and that names the call. A later call replaces the path; a detour that is not called for again ends.

Agents on the way take messages no longer than they need themselves, so that longer ones go in parts, a box each. Parts
keep their order as long as none is lost; else the message is lost, and requested again as on any link.

A bridge has no detour: what lies behind it is waited for, as ever, and so are messages of more than MAX_PARTS parts.
Calls are rate limited, and a box travels no path that visits an agent twice.
"""

import logging
import secrets
import struct
from collections import deque
from collections.abc import Callable, Collection
from typing import NamedTuple

from gossamer.agents.relays import Route
from gossamer.peers.protocol.boxes import SEAL_OVERHEAD, Seals
from gossamer.peers.protocol.resending import MAX_TIMEOUT, TokenBucket
from gossamer.peers.protocol.wire import (
    CALL,
    DETOUR,
    ECHO,
    HEADER,
    WIRE_VERSION,
    RefusedError,
    check_header,
    digest_run,
    find_kind,
    pack_value,
    unpack_value,
)

LINK_SILENCE = MAX_TIMEOUT + 2.0  # seconds without a message over a link, after which its other end is called
CALL_INTERVAL = 5.0  # seconds between two calls
DETOUR_LASTS = 3 * CALL_INTERVAL  # seconds from the last call
SEEN_CALLS = 4096  # that are known not to be passed on again
ECHO_TIME = CALL_INTERVAL / 2  # seconds in which an echo arrives, or not at all
NAME_BYTES = 16  # of a call's name
ANSWERED_CALLS = 64  # the latest calls of a neighbour, whose detours are taken
PART_BYTES = 1 << 20  # of a message on a detour, that every agent takes
MAX_PARTS = 48  # of a message, fewer than may wait on a link
CALL_RATE, CALL_BURST = 4.0, 64  # calls that a neighbour may pass on, for each agent of the run: a second, and at once
_CALL, _MESSAGE = range(2)  # what a box holds
_NO_ECHO = 0
_ECHO = struct.Struct("<Q")
_PART = struct.Struct("<QII")  # the message's number, the part's, and how many there are
_logger = logging.getLogger(__name__)


def max_detour_bytes(num_agents: int) -> int:
    """Bytes of the longest part of a message on a detour; two agents have none."""
    around = HEADER.size + NAME_BYTES + _PART.size + SEAL_OVERHEAD + 5 * num_agents + 32
    return PART_BYTES + around if num_agents > 2 else 0


class Detour(NamedTuple):
    """Where messages for a neighbour go as well, and the name of its call, which they bear: it made that up itself, so
    that none of them are of an earlier run."""

    path: Route
    call: bytes
    until: float


class _Parts(NamedTuple):
    """The first parts of a message that is arriving on a detour."""

    number: int  # of the message
    num_parts: int
    parts: list[bytes]


class Detours:
    """One agent's calls and detours: a state machine without I/O or a clock."""

    def __init__(
        self,
        agent: int,
        num_agents: int,
        neighbours: Collection[int],
        run: str,
        seals: Seals,
        send: Callable[[int, bytes], None],
        now: float,
        largest: int,
    ) -> None:
        """`send` takes messages for the links; no message for this agent has more than `largest` bytes."""
        self._agent, self._num_agents, self._run, self._seals = agent, num_agents, run, seals
        self._neighbours, self._send = tuple(sorted(neighbours)), send
        self._heard = dict.fromkeys(self._neighbours, now)  # when, over the link
        self._called: dict[int, float] = {}
        self._calls: dict[int, deque[bytes]] = {z: deque(maxlen=ANSWERED_CALLS) for z in self._neighbours}
        self._heard_echoes: dict[int, int] = {}  # the last of each neighbour
        self._echoes: dict[int, tuple[int, float]] = {}  # the last for each neighbour, and when it was sent first
        self._seen: deque[bytes] = deque(maxlen=SEEN_CALLS)
        self._limits = {z: TokenBucket(now, CALL_RATE * num_agents, CALL_BURST * num_agents) for z in self._neighbours}
        self._sent = 0  # messages on detours
        self._most_parts = min(MAX_PARTS, -(-largest // PART_BYTES))
        self._arriving: dict[int, _Parts] = {}
        self.detours: dict[int, Detour] = {}
        self.wake_at = now + LINK_SILENCE

    def send(self, neighbour: int, message: bytes) -> None:
        """Send a message over the link, and over the detour if there is one."""
        self._send(neighbour, message)
        detour = self.detours.get(neighbour)
        count = -(-len(message) // PART_BYTES)
        if detour is None or count > MAX_PARTS:
            return
        self._sent += 1
        for number in range(count):
            part = message[number * PART_BYTES : (number + 1) * PART_BYTES]
            content = detour.call + _PART.pack(self._sent, number, count) + part
            box = self._seals.close(neighbour, _MESSAGE, content)
            self._send(detour.path[1], self._encode(DETOUR, [list(detour.path), box]))

    def receive(self, sender: int, message: memoryview, now: float) -> tuple[int, memoryview] | None:
        """The message that has arrived and who has sent it; None of a call, or of what is passed on."""
        self._heard[sender] = now
        if self._called.pop(sender, None) is not None:
            _logger.debug("agent %d hears agent %d over their link again", self._agent, sender)
        kind = find_kind(message)
        if kind == CALL:
            self._on_call(sender, message, now)
            return None
        if kind == ECHO:
            self._heard_echoes[sender] = check_header(message, self._run, sender)[1]
            return None
        return self._on_detour(sender, message) if kind == DETOUR else (sender, message)

    def tick(self, now: float) -> None:
        """Call the neighbours that are silent, and end the detours that are called for no more."""
        if now < self.wake_at:
            return
        for z in [z for z, detour in self.detours.items() if now >= detour.until]:
            self._end_detour(z)
        for z, heard in self._heard.items():
            if now >= heard + LINK_SILENCE and now >= self._called.get(z, now - CALL_INTERVAL) + CALL_INTERVAL:
                self._call(z, now)
        calls = [
            max(heard + LINK_SILENCE, self._called.get(z, now) + CALL_INTERVAL) for z, heard in self._heard.items()
        ]
        self.wake_at = min([*(detour.until for detour in self.detours.values()), *calls], default=now + LINK_SILENCE)

    def _call(self, neighbour: int, now: float) -> None:
        if neighbour not in self._called:
            _logger.debug(
                "agent %d has heard nothing of agent %d over their link for %.0f s, and calls it over others",
                self._agent,
                neighbour,
                now - self._heard[neighbour],
            )
        self._called[neighbour] = now
        name = secrets.token_bytes(NAME_BYTES)
        self._seen.append(name)
        self._calls[neighbour].append(name)
        content = name + _ECHO.pack(self._heard_echoes.get(neighbour, _NO_ECHO))
        self._pass_call(name, [self._agent], neighbour, self._seals.close(neighbour, _CALL, content))

    def _pass_call(self, name: bytes, path: list[int], target: int, box: bytes) -> None:
        call = self._encode(CALL, [name, path, target, box])
        for z in self._neighbours:
            if z not in path:
                self._send(z, call)

    def _on_call(self, sender: int, message: memoryview, now: float) -> None:
        body = self._decode(sender, message)
        if not (
            isinstance(body, list) and len(body) == 4 and isinstance(body[0], bytes) and len(body[0]) == NAME_BYTES
        ):
            raise RefusedError("malformed", "a call")
        name, path, target, box = body
        if not (self._is_path(path) and path[-1] == sender and self._is_agent(target) and isinstance(box, bytes)):
            raise RefusedError("malformed", "the path of a call")
        if not self._limits[sender].take(now):
            raise RefusedError("too often", "calls over others")
        if target == self._agent:
            self._take_call(name, (*path, self._agent), box, now)
        elif name not in self._seen and self._agent not in path:
            self._seen.append(name)
            self._pass_call(name, [*path, self._agent], target, box)

    def _take_call(self, name: bytes, path: Route, box: bytes, now: float) -> None:
        """Be called by a neighbour that does not hear this agent."""
        caller = path[0]
        if caller not in self._heard:
            raise RefusedError("unplanned", f"a call of agent {caller}, which is no neighbour")
        content = self._seals.open(caller, _CALL, box)
        if len(content) != len(name) + _ECHO.size or not content.startswith(name):
            raise RefusedError("signature", f"a call that agent {caller} has not made")
        if len(path) == 2 or name in self._seen:
            return
        self._seen.append(name)
        (heard,) = _ECHO.unpack_from(content, len(name))
        echo, sent_at = self._echoes.get(caller, (heard, now))
        if heard == echo:  # or this is the first call
            echo, sent_at = self._echoes[caller] = 1 + secrets.randbits(62), now
            self._end_detour(caller)
        elif now >= sent_at + ECHO_TIME:
            self._begin_detour(caller, Detour(path[::-1], name, now + DETOUR_LASTS))
        self._send(caller, HEADER.pack(WIRE_VERSION, ECHO, self._agent, digest_run(self._run), echo))

    def _begin_detour(self, neighbour: int, detour: Detour) -> None:
        known = self.detours.get(neighbour)
        if known is None or known.path != detour.path:
            _logger.info(
                "agent %d sends agent %d its messages over agent %s, too: their link is down",
                self._agent,
                neighbour,
                ", ".join(map(str, detour.path[1:-1])),
            )
        self.detours[neighbour] = detour
        self.wake_at = min(self.wake_at, detour.until)

    def _end_detour(self, neighbour: int) -> None:
        if self.detours.pop(neighbour, None) is not None:
            _logger.info("agent %d sends agent %d its messages over their link alone again", self._agent, neighbour)

    def _on_detour(self, sender: int, message: memoryview) -> tuple[int, memoryview] | None:
        """Pass a box on, or open it."""
        body = self._decode(sender, message)
        if not (isinstance(body, list) and len(body) == 2 and self._is_path(body[0]) and isinstance(body[1], bytes)):
            raise RefusedError("malformed", "a detour")
        path, box = body
        here = path.index(self._agent) if self._agent in path else 0
        if here == 0 or path[here - 1] != sender:
            raise RefusedError("malformed", "the path of a detour")
        if path[-1] != self._agent:
            following = path[here + 1]
            if following not in self._heard:
                raise RefusedError("unplanned", f"a detour to agent {following}, which is no neighbour")
            self._send(following, self._encode(DETOUR, [path, box]))
            return None
        if path[0] not in self._heard:
            raise RefusedError("unplanned", f"a message of agent {path[0]}, which is no neighbour")
        content = self._seals.open(path[0], _MESSAGE, box)
        if content[:NAME_BYTES] not in self._calls[path[0]]:
            raise RefusedError("old", f"a message of agent {path[0]} by none of the latest calls")
        return self._join(path[0], content[NAME_BYTES:])

    def _join(self, sender: int, content: bytes) -> tuple[int, memoryview] | None:
        """The message that a part completes, if it does."""
        if len(content) < _PART.size:
            raise RefusedError("malformed", "a part of a message")
        number, index, count = _PART.unpack_from(content)
        if not 0 <= index < count <= self._most_parts:
            raise RefusedError("malformed", f"part {index} of {count}")
        known = self._arriving.pop(sender, None)
        if index == 0:
            known = _Parts(number, count, [])
        if known is None or (known.number, known.num_parts, len(known.parts)) != (number, count, index):
            return None  # parts before it are lost
        known.parts.append(content[_PART.size :])
        if index + 1 < count:
            self._arriving[sender] = known
            return None
        return sender, memoryview(bytearray(b"".join(known.parts)))

    def _encode(self, kind: int, body: object) -> bytes:
        return HEADER.pack(WIRE_VERSION, kind, self._agent, digest_run(self._run), 0) + pack_value(body)

    def _decode(self, sender: int, message: memoryview) -> object:
        check_header(message, self._run, sender)
        return unpack_value(message[HEADER.size :])

    def _is_agent(self, value: object) -> bool:
        return type(value) is int and 0 <= value < self._num_agents

    def _is_path(self, value: object) -> bool:
        """Return whether a value is a list of distinct agents."""
        return (
            isinstance(value, list) and bool(value) and all(map(self._is_agent, value)) and len({*value}) == len(value)
        )
