"""A peer in a run whose agents may leave and join: the protocol of group.py with its disk, its keys and its transport.

The operator's wishes come as files: `leave` in the folder of the run (`gossamer leave`), and the agent's allow-list
(`gossamer admit`), which are looked at while the agent trains; in a rehearsal also the links that are cut (link_cuts).
"""

import logging
import secrets
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from pathlib import Path

from gossamer.errors import GossamerError
from gossamer.files import PRIVATE, read_bytes, write_atomically
from gossamer.peers.agent_folders import EVALUATIONS_FILE, run_folder
from gossamer.peers.departure import LEAVE_FILE
from gossamer.peers.evaluation_log import EvaluationLog
from gossamer.peers.identity import Identity
from gossamer.peers.link_cuts import read_cut
from gossamer.peers.member_work import MemberWork
from gossamer.peers.network.addresses import Contact
from gossamer.peers.network.transport import OpenTransport
from gossamer.peers.network.z85 import KEY_LENGTH
from gossamer.peers.progress import PeerReport, describe_links, make_outside_report, make_report
from gossamer.peers.protocol.change_messages import max_change_bytes
from gossamer.peers.protocol.config import ProtocolConfig
from gossamer.peers.protocol.exchanges import Program
from gossamer.peers.protocol.group import Group
from gossamer.peers.protocol.group_config import GroupConfig
from gossamer.peers.protocol.member import Member
from gossamer.peers.protocol.signatures import UNSIGNED
from gossamer.peers.protocol.terms import Entry, Term
from gossamer.peers.protocol.wire import RefusedError
from gossamer.peers.refusals import RefusalLog
from gossamer.peers.shards.restriction import find_contact
from gossamer.peers.shards.shard import max_step_gap
from gossamer.peers.shards.sites import SiteShard
from gossamer.peers.site_work import bound_message_bytes
from gossamer.peers.steps import StepCodes
from gossamer.peers.term_folders import TermStore, term_folder
from gossamer.peers.term_numbers import LateAgents, TermTransport
from gossamer.runs.documents import parse_json, to_json
from gossamer.runs.trained import MEAN_FILE

SPARE_AGENTS = 64  # that may join, for bounds on messages and connections
RESULT_FILES = (
    "metrics.jsonl",
    "weights.safetensors",
    MEAN_FILE,
    "rows.safetensors",
    "transform.safetensors",
    "run.json",
)
MAX_RESULT_BYTES = 1 << 34
_logger = logging.getLogger(__name__)


def max_changing_bytes(shard: SiteShard) -> int:
    """Bytes that no message of a run exceeds whose agents may leave and join."""
    agents = shard.settings.agents + SPARE_AGENTS
    return 2 * bound_message_bytes(shard) + max_change_bytes(agents) + (1 << 22)


class ChangingAgent:
    """One agent through the memberships of a run."""

    def __init__(
        self,
        folder: Path,
        shard: SiteShard,
        identity: Identity,
        transport: OpenTransport,
        refusals: RefusalLog,
        now: float,
    ) -> None:
        self._folder, self._shard, self._identity, self._transport = folder, shard, identity, transport
        self._state, self._refusals = run_folder(folder, shard.membership), refusals
        self._known_keys = {z: contact.key for z, contact in shard.membership.neighbours.items()}
        self._admitted, self._cut = frozenset[str](), read_cut(self._state)
        self._store = TermStore(self._state, self._log_change)
        agent, self._list_error = shard.membership.agent, ""
        if agent >= identity.num_founders and not self._store.profile():
            self._store.set_profile(identity.make_profile())
        config = GroupConfig(
            shard.membership.run,
            agent,
            tuple(range(identity.num_founders)),
            tuple(sorted(shard.membership.neighbours)),
            shard.settings.evict_after or 0.0,
            identity.sign,
            identity.make_profile,
            max_changing_bytes(shard),
            identity.has_moved(self._store.profile()),
            identity.signs_for,
            self._admit,
            identity.list_founder_keys,
            identity.learn_founders,
            identity.is_same,
            identity.terms,
            identity.declare,
        )
        self.log = EvaluationLog(self._state / EVALUATIONS_FILE)
        self.waits = defaultdict[int, float](float)  # seconds, by neighbour
        self._sent: Counter[tuple[int, str]] = Counter()  # bytes in earlier memberships, by neighbour and kind
        self._last: tuple[Member, Term] | None = None
        try:
            self.group = Group(config, self._store, self._make_member, self._send, now, self._refuse)
        except RefusedError as refused:
            raise GossamerError(
                f"{self._state} holds votes, a profile or memberships that do not fit this agent and its keys "
                f"({refused}): they are damaged or of another run; put them back from a copy, or move the folder away, "
                "and the agent joins anew"
            ) from None
        self.look_around(now)

    @property
    def state_folder(self) -> Path:
        """The folder of the last membership that this agent was in."""
        return term_folder(self._state, self.group.term.number)

    def look_around(self, now: float) -> None:
        """Read what the operator wants, to leave, and whose keys may ask to join; and what those agents have sent."""
        if (self._state / LEAVE_FILE).exists():
            self.group.leave(now)
        self._cut = read_cut(self._state)
        try:
            self._admitted = self._identity.read_admitted()
        except GossamerError as error:
            if str(error) != self._list_error:
                _logger.warning("%s; the keys that were read before stay admitted", error)
            self._list_error = str(error)
        self._transport.admit(key[:KEY_LENGTH] for key in self._admitted)
        for key, message in self._transport.take_requests():
            self.group.receive(key, message, now)

    def publish_result(self) -> None:
        """Copy the result of the last membership into the folder of the run."""
        source = self.state_folder
        if source == self._state:
            return
        for name in RESULT_FILES:  # run.json last
            if (source / name).is_file():
                content = read_bytes(source / name, MAX_RESULT_BYTES)
                if name == "run.json":  # it has the agent's number in the last membership
                    known = {**parse_json(content, name), "agent": self._shard.membership.agent}
                    content = (to_json(known, indent=2) + "\n").encode()
                write_atomically(self._state / name, content, PRIVATE)

    @property
    def term_transport(self) -> TermTransport:
        """The transport by the numbers of the last membership."""
        return TermTransport(self._transport, self.group.term)

    @property
    def late_agents(self) -> LateAgents:
        """Answers agents that have not heard of the end yet, by numbers."""
        return LateAgents(self.group)

    @property
    def protocol_config(self) -> ProtocolConfig:
        """Parameters of the last membership's protocol."""
        assert self.group.member is not None
        return self.group.member.config

    def _send(self, neighbour: int, message: bytes) -> None:
        if neighbour not in self._cut:
            self._transport.send(neighbour, message)

    def _refuse(self, sender: int | str, refused: RefusedError) -> None:
        self._refusals.add(sender, refused.reason, refused.detail)

    def _admit(self, sender: int | str, entry: Entry, terms: bytes, edges: bytes) -> None:
        contact = self._identity.admit(sender, entry, self._admitted, self._known_keys)
        self._identity.check_join(entry, terms, edges)
        if not self._connect(entry.agent, contact):
            raise RefusedError("malformed", f"an address that cannot be reached, {contact.address}")

    def _connect(self, neighbour: int, contact: Contact) -> bool:
        """Connect to a neighbour, and return whether its address allows that."""
        try:
            self._transport.add_neighbour(neighbour, contact)
        except GossamerError as error:
            _logger.warning("%s", error)
            return False
        self._known_keys[neighbour] = contact.key
        return True

    def _make_member(self, terms: Sequence[Term], since: int, send: Callable[[int, bytes], None], now: float) -> Member:
        term, own, settings = terms[-1], self._shard.membership, self._shard.settings
        signatures = self._identity.sign(term)
        folder = term_folder(self._state, term.number)
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        if term.number:
            (self._state / "run.json").unlink(missing_ok=True)  # the run goes on
        self.log = EvaluationLog(folder / EVALUATIONS_FILE)
        work = MemberWork(self._shard, terms, since, self._state, self.log, signatures, self._identity.find_founder_key)
        for z in term.find_neighbours(own.agent, own.neighbours):
            self._connect(z, find_contact(own, term, z))
        config = ProtocolConfig(
            work.shard.membership,
            settings.torch_dtype,
            work.steps,
            work.keep,
            incarnation=secrets.randbits(62),
            max_step_gap=max_step_gap(settings),
            encrypted=signatures is not UNSIGNED,
            signatures=signatures,
            joined=term.joined,
            first=work.first,
        )

        def begin(step: int, session: bytes, unable: tuple[int, ...]) -> Program:
            _logger.info(
                "agent %d: membership %d (agents %s), epoch %d, %s",
                own.agent,
                term.number,
                ", ".join(map(str, term.ids)),
                work.store.epoch(),
                "planning" if step < work.first else f"training from step {step - work.first}",
            )
            return work.program(step, session, unable)

        def refuse(sender: int, refused: RefusedError) -> None:
            self._refusals.add(term.ids[sender], refused.reason, refused.detail)

        self._sent = self._count_sent()
        member = Member(config, work.store, begin, work.expectations, send, now, refuse)
        self._last = member, term
        return member

    def _count_sent(self) -> Counter[tuple[int, str]]:
        """Bytes that this process has sent in all memberships, by neighbour and kind."""
        if self._last is None:
            return self._sent
        member, term = self._last
        return self._sent + Counter({(term.ids[z], kind): size for (z, kind), size in member.sent_bytes.items()})

    def _log_change(self, number: int, following: tuple[Entry, ...] | None) -> None:
        agent = self._shard.membership.agent
        if following is None:
            return _logger.info("agent %d: the run has finished", agent)
        _logger.warning(
            "agent %d: membership %d begins, with the agents %s%s",
            agent,
            number + 1,
            ", ".join(str(entry.agent) for entry in following),
            "" if agent in {entry.agent for entry in following} else "; this agent is no member",
        )

    def make_report(self, now: float, serving: Member | None = None) -> PeerReport:
        """The agent's progress, with ids in place of numbers."""
        group, own = self.group, self._shard.membership
        member, term = group.member, group.term
        if member is None:
            report = make_outside_report(
                own.agent,
                self._shard.settings.steps,
                group.neighbours,
                self._transport,
                self.log,
                self._refusals,
                self.waits,
                now - group.waiting_since,
                group.all_done,
            )
        else:
            first = StepCodes(term.number, self._shard.settings.steps).first
            sources = self._transport, self.log, self._refusals, self.waits
            report = make_report(member, *sources, now, first, serving)
            waits = group.waiting_for if serving is None else [term.ids[number] for number in serving.waiting_for]
            report["agent"], report["all_done"] = own.agent, group.all_done
            report["neighbours"], report["waiting_for"] = list(group.neighbours), list(waits)
        report["links"] = describe_links(self._transport, self.waits, self._count_sent())
        report["membership"], report["members"] = term.number, list(term.ids)
        report["standing"] = self.describe_standing()
        return report

    def describe_standing(self) -> str:
        """One word for how an agent stands to the run."""
        group = self.group
        if group.left:
            return "left"
        if group.ended:
            return "finished" if group.member is not None else "outside"
        if group.member is None:
            return "joining"
        if group.change is not None and group.change.split:
            return "split"
        return "leaving" if group.leaving else "member"
