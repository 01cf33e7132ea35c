"""Decisions on their way to the neighbours that may not know them: at once, as an answer, or as a reminder."""

from collections.abc import Callable, Iterable, Sequence

from gossamer.peers.protocol.change_messages import Decision, encode_change
from gossamer.peers.protocol.history import History
from gossamer.peers.protocol.resending import ReplyLimits

REMINDER_INTERVAL = 2.0  # seconds between two decisions that are sent to a silent neighbour
MAX_DECISIONS = 16  # that answer one message


class Notices:
    """Sends an agent's neighbours the decisions that they may not know."""

    def __init__(
        self,
        agent: int,
        history: History,
        founder_keys: Callable[[], Sequence[bytes]],
        send: Callable[[int, bytes], None],
    ) -> None:
        self._agent, self._history, self._founder_keys, self._send = agent, history, founder_keys, send
        self.limits = ReplyLimits()
        self.informed: set[int] = set()  # neighbours that know what was decided last
        self.heard: set[int] = set()  # neighbours that have sent messages of the last membership
        self._remind_at, self._num_reminders = 0.0, 0

    def begin(self, now: float) -> None:
        """Begin a membership, of which nothing has been heard yet."""
        self.heard, self._remind_at = set(), now + REMINDER_INTERVAL

    def send(self, receiver: int, number: int) -> None:
        """Send what was decided in a membership."""
        founders = tuple(self._founder_keys()) if number == 0 else ()
        decision = Decision(self._agent, self._history.certificates[number], founders)
        self._send(receiver, encode_change(decision, self._history.terms[number].name))

    def answer(self, receiver: int, number: int, now: float) -> None:
        """Send the decisions from a membership on to an agent that may not know them, within a rate limit."""
        self.limits.take(receiver, "messages of an earlier membership", now)
        for later in range(number, min(number + MAX_DECISIONS, len(self._history.certificates))):
            self.send(receiver, later)

    def remind(self, neighbours: Iterable[int], now: float) -> None:
        """Send one decision after another to the neighbours that have sent nothing of this membership: one that was
        away may have no link to an agent that knows it as a member of an earlier one, and so would never hear of it."""
        certificates = self._history.certificates
        if now >= self._remind_at and certificates:
            self._remind_at = now + REMINDER_INTERVAL
            for z in set(neighbours) - self.heard:
                self.send(z, self._num_reminders % len(certificates))
            self._num_reminders += 1
