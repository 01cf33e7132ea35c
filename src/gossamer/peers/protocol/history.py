"""The memberships of a run as one agent knows them, each with the certificate of what followed it."""

from collections.abc import Callable

from gossamer.peers.protocol.changes import check_vote
from gossamer.peers.protocol.paxos import Decree, VoteKind
from gossamer.peers.protocol.signatures import Signatures
from gossamer.peers.protocol.terms import Entry, Term, make_entries, name_term, unpack_members
from gossamer.peers.protocol.wire import digest_run


class History:
    """Memberships from the first on; the last one has no certificate unless the run has finished."""

    def __init__(self, run: str, founders: tuple[int, ...]) -> None:
        self._run = run
        self.terms = [name_term(run, 0, make_entries(founders))]
        self.certificates: list[tuple[bytes, ...]] = []

    @property
    def last(self) -> Term:
        return self.terms[-1]

    def find_number(self, digest: bytes | None) -> int | None:
        """The number of the membership that messages name by this digest."""
        return next((one.number for one in reversed(self.terms) if digest_run(one.name) == digest), None)

    def find_first(self, entry: Entry) -> int:
        """The number of the first membership with this entry."""
        return next(one.number for one in self.terms if entry in one.entries)

    def has_had(self, entry: Entry) -> bool:
        """Return whether an entry was part of a membership."""
        return any(entry in one.entries for one in self.terms)

    def has_just_removed(self, agent: int) -> bool:
        """Return whether the last decision was to go on without an agent."""
        return len(self.terms) > 1 and agent in self.terms[-2].ids and agent not in self.last.ids

    def verify(self, certificate: tuple[bytes, ...], sign: Callable[[Term], Signatures]) -> tuple[Entry, ...] | None:
        """What follows the last membership by a certificate: the next members, or None if the run has finished."""
        term, signatures = self.last, sign(self.last)
        check = make_check(term, signatures.size > 0)
        decree = Decree(term.name, NOBODY, len(term.ids), signatures, _Nothing(), check)
        decree.learn(certificate)
        assert decree.decided is not None
        return unpack_members(decree.decided)

    def add(self, certificate: tuple[bytes, ...], following: tuple[Entry, ...] | None) -> None:
        """Go to the next membership, or to the end."""
        self.certificates.append(certificate)
        if following is not None:
            self.terms.append(name_term(self._run, len(self.terms), following))


NOBODY = -1  # votes in no decree


class _Nothing:
    """The votes of nobody."""

    def votes(self) -> dict[int, bytes]:
        return {}

    def set_vote(self, kind: int, content: bytes) -> None:
        raise AssertionError("who learns from a certificate does not vote")


def make_check(term: Term, encrypted: bool) -> Callable[[VoteKind, bytes], None]:
    """A check of what votes in a membership carry."""

    def check(kind: VoteKind, value: bytes) -> None:
        check_vote(kind, value, term, encrypted)

    return check
