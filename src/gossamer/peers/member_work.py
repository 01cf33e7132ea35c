"""The work of an agent in one membership of a run whose agents may leave and join: planning, then training.

A membership begins from the latest checkpoint that all its agents can restore, of whichever membership it is: they plan
anew among themselves (site_work.py) and go on from that step. The protocol's steps have the numbers of steps.py.
"""

import logging
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch

from gossamer.agents.exchange import Inbox, Outbox
from gossamer.agents.links import Link
from gossamer.agents.rules import StateDict, make_rule
from gossamer.agents.salts import Secrets
from gossamer.errors import GossamerError
from gossamer.files import make_private, set_aside
from gossamer.model import Params
from gossamer.peers.agent_folders import EVALUATIONS_FILE
from gossamer.peers.checkpoints import EpochStore, find_checkpoints
from gossamer.peers.evaluation_log import EvaluationLog
from gossamer.peers.joining import adopt_weights, exchange_edges, expect_edges, expect_weights
from gossamer.peers.program import label_exchanges
from gossamer.peers.protocol.exchanges import ExpectedMessages, Program
from gossamer.peers.protocol.signatures import UNSIGNED, Signatures
from gossamer.peers.protocol.terms import Term
from gossamer.peers.protocol.wire import Position, RefusedError
from gossamer.peers.shard_work import shift_steps
from gossamer.peers.shards.restriction import FindKey, restrict_shard
from gossamer.peers.shards.shard import checkpoints_to_keep
from gossamer.peers.shards.sites import SiteShard, fingerprint
from gossamer.peers.site_work import SiteWork, Start
from gossamer.peers.steps import PLANNING_STEPS, StepCodes
from gossamer.peers.term_folders import Begin, term_folder, write_begin
from gossamer.runs.secret_files import SECRETS_FILE, take_own_secret, write_secrets
from gossamer.runs.settings import Settings
from gossamer.runs.shares import MANIFEST
from gossamer.runs.stages import build_network
from gossamer.runs.tensors import read_tensors, unpack_state

_logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class MemberStore(EpochStore):
    """Persistent state of an agent in a membership; checkpoints of earlier ones count, too."""

    run: Path  # folder of the run
    codes: StepCodes
    since: int  # the membership since which the agent is a member without a break
    keep: int
    find_work: Callable[[], SiteWork | None]

    def steps(self) -> list[int]:
        earlier = [
            self.codes.encode(number, step)
            for number in range(self.since, self.codes.number)
            for step in find_checkpoints(term_folder(self.run, number))
        ]
        number, own = self.codes.number, list[int]()
        if self.find_work() is not None:
            stored = find_checkpoints(self.folder)
            own = [self.codes.encode(number, step) for step in (stored if number else {0, *stored})]
        return sorted({*([] if self.since else [0]), *sorted(earlier + own)[-self.keep :]})

    def discard(self, diverged: int, start: int) -> None:
        work, offset = self.find_work(), self.codes.first - PLANNING_STEPS
        if work is not None:
            work.store.discard(max(0, diverged - offset), max(0, start - offset))


class MemberWork:
    """Planning among the members, then training."""

    def __init__(
        self,
        shard: SiteShard,
        terms: Sequence[Term],
        since: int,
        folder: Path,
        log: EvaluationLog,
        signatures: Signatures = UNSIGNED,
        find_key: FindKey = lambda agent: None,
    ) -> None:
        """`terms` are all memberships up to this one, `folder` that of the run."""
        self._term, self._run, self._log, self._signatures = terms[-1], folder, log, signatures
        self._agent = shard.membership.agent  # its id
        self.shard = restrict_shard(shard, self._term, find_key)
        self._folder = term_folder(folder, self._term.number)
        make_private(self._folder)
        self._keep_secret()
        settings = shard.settings
        self._codes = StepCodes(self._term.number, settings.steps)
        self.first, self.steps = self._codes.first, self._codes.last
        self.keep = 1 + checkpoints_to_keep(len(self._term.ids), settings)
        self._origin = fingerprint(self.shard)
        self._shapes = find_shapes(self.shard)
        self._before: list[ExpectedMessages] = []  # exchanges before those of planning, and their step
        self._moment = -1
        self._planning: SiteWork | None = None  # once the members have exchanged edges and weights
        for number in range(since, self._term.number):
            _set_damaged_aside(term_folder(folder, number))
        if (self._folder / "planned" / MANIFEST).is_file():
            self._planning = self._make_site_work(self.shard, None)
        self.store = MemberStore(self._folder, folder, self._codes, since, self.keep, lambda: self._planning)
        self.max_message_bytes = 0

    def program(self, step: int, session: bytes, unable: Sequence[int] = ()) -> Program:
        """Train from a restorable step; the agents that cannot restore it (`unable`, numbers) take over weights."""
        base, offset = self._codes.decode(step), self.first - PLANNING_STEPS
        if base is not None and base[0] == self._term.number and self._planning is not None:
            yield from shift_steps(self._planning.program(base[1] + PLANNING_STEPS, session), offset)
            return
        adopters = tuple(unable) if base is not None else ()
        begin = Begin(*(base or (-1, 0)), tuple(self._term.ids[one] for one in adopters))
        self._planning = None
        self._remove_checkpoints(begin)
        self._moment = offset + begin.step
        self._before = self._expect_before(adopters)
        able = base is not None and self.shard.membership.agent not in adopters
        given = self._load(begin) if able else None
        prepared = prepare_member(self.shard, self._term, begin, given)
        shard, start = yield from label_exchanges("site", self._moment, prepared)
        if self._term.number:
            self._log.begin_with(term_folder(self._run, max(0, begin.membership)) / EVALUATIONS_FILE, begin.step)
        write_begin(self._folder, begin)
        self._planning = self._make_site_work(shard, start)
        yield from shift_steps(self._planning.program(begin.step, session), offset)

    def expectations(self, position: Position) -> ExpectedMessages | None:
        step, number = position
        if step == self._moment and number < len(self._before):
            return self._before[number]
        if self._planning is None:
            raise RefusedError("early", "the members have not planned yet")
        number -= len(self._before) if step == self._moment else 0
        return self._planning.expectations((step - self.first + PLANNING_STEPS, number))

    def _make_site_work(self, shard: SiteShard, start: Start | None) -> SiteWork:
        return SiteWork(shard, self._folder, self._log, self._signatures, start=start, origin=self._origin)

    def _expect_before(self, adopters: Sequence[int]) -> list[ExpectedMessages]:
        """The messages of the exchanges before planning."""
        size = sum(torch.Size(shape).numel() for shape in self._shapes.values())
        rounds = [expect_edges(self.shard, self._term)] if self._term.joined else []
        rounds += [expect_weights(self.shard, adopters, size) for _ in adopters]
        return [_expect(index, shapes) for index, shapes in enumerate(rounds)]

    def _load(self, begin: Begin) -> tuple[Params, StateDict]:
        """Weights and the update rule's statistics of a checkpoint."""
        path = term_folder(self._run, begin.membership) / f"checkpoint-{begin.step}.safetensors"
        return select_statistics(*unpack_state(read_tensors(path)), self.shard.settings)

    def _remove_checkpoints(self, begin: Begin) -> None:
        """Remove the checkpoints of this membership, which began elsewhere, and those older than its beginning."""
        for number in [*range(begin.membership), self._term.number]:
            for path in term_folder(self._run, number).glob("checkpoint-*.safetensors"):
                path.unlink(missing_ok=True)

    def _keep_secret(self) -> None:
        """Put the agent's secret into the folder of the membership, by its number there."""
        path, number = self._folder / SECRETS_FILE, self._term.ids.index(self._agent)
        if self._term.number and not path.exists() and not self.shard.settings.public_randomness:
            own = take_own_secret(self._run, self._agent).by_agent[self._agent]
            write_secrets(path, Secrets({number: own}))


def prepare_member(
    shard: SiteShard, term: Term, begin: Begin, given: tuple[Params, StateDict] | None
) -> Generator[Outbox, Inbox, tuple[SiteShard, Start]]:
    """Exchange what a membership needs before its planning; return its shard with all edges, and what the training
    begins from. `given` are the weights and statistics of the step that it begins from, unless the member takes over
    weights."""
    index, adopters = 0, tuple(map(term.ids.index, begin.adopters))
    if term.joined:
        shard = yield from exchange_edges(shard, term, index)
        index += 1
    if begin.membership < 0:
        return shard, Start()
    params, statistics = given or (None, None)
    params = yield from adopt_weights(shard, params, find_shapes(shard), adopters, index)
    return shard, Start(begin.step, params, statistics)


def select_statistics(params: Params, state: StateDict, settings: Settings) -> tuple[Params, StateDict]:
    """Weights of a checkpoint, and of its state the statistics of the update rule: the rest begins anew."""
    kept = make_rule(settings.update, settings.momentum).init(params)
    return params, {name: part for name, part in state.items() if name in kept}


def find_shapes(shard: SiteShard) -> dict[str, tuple[int, ...]]:
    """Shapes of one agent's weights."""
    data, settings = shard.data, shard.settings
    return build_network(int(data.features.shape[-1]), data.num_outputs, settings).shapes()


def _expect(index: int, shapes: dict[Link, tuple[int, ...]]) -> ExpectedMessages:
    by_sender = {link.sender: shape for link, shape in shapes.items()}
    return ExpectedMessages("site", "planning", index, torch.float64, by_sender)


def _set_damaged_aside(folder: Path) -> None:
    """Set checkpoints of an earlier membership aside that cannot be read: nobody is told that they can be restored."""
    for path in folder.glob("checkpoint-*.safetensors"):
        try:
            read_tensors(path)
        except GossamerError as error:
            _logger.warning("%s; it is now %s", error, set_aside(path).name)
