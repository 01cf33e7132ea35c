"""Folders of an agent's memberships, and the log of them.

The state of membership 0 is in the folder of the run itself, that of membership v in membership-v in there: epoch,
checkpoints, the planned share, votes. memberships.jsonl has a line for each membership that is over, with
what followed (null: the run has finished):

    {"membership": 0, "certificate": [...], "following": [{"agent": 1, "profile": ""}, ...]}

and `begins` in the folder of a membership says where its training began: {"membership": u, "step": t, "adopters": []}.
"""

import json
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from gossamer.errors import GossamerError
from gossamer.files import PRIVATE, make_private, read_bytes, read_text, write_atomically
from gossamer.peers.checkpoints import EPOCH_FILE
from gossamer.peers.protocol.terms import Entry, Term, make_entries, name_term
from gossamer.runs.documents import to_json

MEMBERSHIP_LOG = "memberships.jsonl"
BEGINS = "begins"
PROFILE = "profile"
FOUNDERS = "founders"
MAX_MEMBERSHIP_LOG = 1 << 30
MAX_VOTE_BYTES = 1 << 21
_logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Begin:
    """Where the training of a membership began: a checkpoint of an earlier one, or (-1, 0), the initial weights; and
    the ids of members that took over the weights of others."""

    membership: int = -1
    step: int = 0
    adopters: tuple[int, ...] = ()


@dataclass(frozen=True)
class LoggedTerm:
    """A line of the log: the certificate of what followed a membership."""

    certificate: tuple[bytes, ...]
    following: tuple[Entry, ...] | None


def term_folder(folder: Path, number: int) -> Path:
    """The folder of a membership's state in the folder of a run."""
    return folder / f"membership-{number}" if number else folder


def read_log(folder: Path) -> list[LoggedTerm]:
    """The memberships that are over."""
    path = folder / MEMBERSHIP_LOG
    if not path.exists():
        return []
    try:
        lines = [json.loads(line) for line in read_text(path, MAX_MEMBERSHIP_LOG).splitlines()]
        found = [_read_line(line, number) for number, line in enumerate(lines)]
    except (ValueError, KeyError, TypeError, AttributeError):
        raise GossamerError(
            f"{path} is damaged: expected a line of JSON for each membership that is over; copy it from a backup, or "
            "move the folder of the run away, and the agent asks to join anew"
        ) from None
    return found


def _read_line(line: dict[str, Any], number: int) -> LoggedTerm:
    if line["membership"] != number:
        raise ValueError("memberships out of order")
    following = line["following"]
    if following is not None:
        following = tuple(Entry(int(one["agent"]), bytes.fromhex(one["profile"])) for one in following)
    return LoggedTerm(tuple(bytes.fromhex(vote) for vote in line["certificate"]), following)


def list_terms(run: str, founders: Sequence[int], log: Sequence[LoggedTerm]) -> list[Term]:
    """All memberships of a log, from the first on."""
    terms = [name_term(run, 0, make_entries(founders))]
    for number, line in enumerate(log, 1):
        if line.following is not None:
            terms.append(name_term(run, number, line.following))
    return terms


def write_begin(folder: Path, begin: Begin) -> None:
    content = {"membership": begin.membership, "step": begin.step, "adopters": list(begin.adopters)}
    write_atomically(folder / BEGINS, to_json(content).encode(), PRIVATE)


def read_begin(folder: Path) -> Begin | None:
    """Where the membership of a folder began to train; None if it never has."""
    path = folder / BEGINS
    if not path.exists():
        return None
    try:
        found = json.loads(read_text(path, MAX_VOTE_BYTES))
        return Begin(int(found["membership"]), int(found["step"]), tuple(map(int, found["adopters"])))
    except (ValueError, KeyError, TypeError):
        raise GossamerError(f"{path} is damaged; copy it from another agent of this membership") from None


@dataclass(frozen=True)
class StoredVotes:
    """The votes of an agent in a membership, in a file for each kind."""

    folder: Path

    def votes(self) -> dict[int, bytes]:
        found = {}
        for path in sorted(self.folder.glob("vote-*")):
            kind = path.name.removeprefix("vote-")
            if kind.isdigit():
                found[int(kind)] = read_bytes(path, MAX_VOTE_BYTES)
        return found

    def set_vote(self, kind: int, content: bytes) -> None:
        make_private(self.folder)
        write_atomically(self.folder / f"vote-{kind}", content, PRIVATE)


@dataclass
class TermStore:
    """An agent's memberships on disk, in the folder of its run (protocol/group.py)."""

    folder: Path
    on_change: Callable[[int, tuple[Entry, ...] | None], None] = lambda number, following: None
    _log: list[LoggedTerm] = field(init=False)

    def __post_init__(self) -> None:
        self._log = read_log(self.folder)

    def certificates(self) -> list[tuple[bytes, ...]]:
        return [line.certificate for line in self._log]

    def add_certificate(self, term: Term, certificate: Sequence[bytes], following: Sequence[Entry] | None) -> None:
        self._log.append(LoggedTerm(tuple(certificate), None if following is None else tuple(following)))
        lines = [to_json(_describe(number, line)) for number, line in enumerate(self._log)]
        write_atomically(self.folder / MEMBERSHIP_LOG, "".join(f"{line}\n" for line in lines).encode(), PRIVATE)
        self.on_change(term.number, self._log[-1].following)

    def votes(self, number: int) -> StoredVotes:
        return StoredVotes(term_folder(self.folder, number) / "votes")

    def profile(self) -> bytes:
        path = self.folder / PROFILE
        return read_bytes(path, MAX_VOTE_BYTES) if path.exists() else b""

    def set_profile(self, packed: bytes) -> None:
        write_atomically(self.folder / PROFILE, packed, PRIVATE)

    def has_entered(self, number: int) -> bool:
        return (term_folder(self.folder, number) / EPOCH_FILE).exists()


def _describe(number: int, line: LoggedTerm) -> dict[str, Any]:
    following = line.following
    return {
        "membership": number,
        "certificate": [vote.hex() for vote in line.certificate],
        "following": None
        if following is None
        else [{"agent": entry.agent, "profile": entry.packed.hex()} for entry in following],
    }
