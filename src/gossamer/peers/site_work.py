"""The work of a site, whose share no one has cut: planning that share with the other sites, then training.

Planning is step 0 of the protocol between neighbours, and training step t is its step t + 1. So an agent that dies
while sites plan rejoins like any other, and all roll back to the planning or, if everyone has its share, to a
checkpoint.
"""

from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch

from gossamer.agents.consensus.masked import find_senders
from gossamer.agents.exchange import Inbox, Outbox
from gossamer.agents.network_measures import SAMPLED_NUMBERS
from gossamer.agents.planning import plan_site
from gossamer.agents.planning_exchanges import Site, SiteRoutes, list_planning_exchanges
from gossamer.agents.rules import StateDict
from gossamer.agents.scores import count_sums
from gossamer.agents.share import MASKS, Share
from gossamer.agents.site_sums import SiteSums, complete_share, measure_site, sum_sites
from gossamer.errors import GossamerError
from gossamer.files import PRIVATE, make_private, write_atomically
from gossamer.machine import as_size
from gossamer.model import Params
from gossamer.peers.checkpoints import EpochStore
from gossamer.peers.evaluation_log import EvaluationLog
from gossamer.peers.program import label_exchanges, list_expected
from gossamer.peers.protocol.boxes import make_boxes
from gossamer.peers.protocol.config import RecoveryStore
from gossamer.peers.protocol.exchanges import ExpectedMessages, PlannedExchange, Program
from gossamer.peers.protocol.pads import make_pair_keys
from gossamer.peers.protocol.relaying import Relays
from gossamer.peers.protocol.signatures import SIGNATURE_SIZE, UNSIGNED, Signatures
from gossamer.peers.protocol.wire import Position, RefusedError
from gossamer.peers.sender_lists import SenderLists, expect_lists, flood_lists
from gossamer.peers.shard_work import ShardWork, Work, shift_steps
from gossamer.peers.shards.shard import Shard, add_senders, checkpoints_to_keep, read_shard, write_shard
from gossamer.peers.shards.sites import SiteShard, fingerprint
from gossamer.peers.staged_work import count_protocol_steps, make_work
from gossamer.peers.steps import PLANNING_STEPS
from gossamer.runs.settings import Settings
from gossamer.runs.shares import MANIFEST
from gossamer.runs.stages import (
    build_network,
    build_stage_network,
    check_encoded_data,
    find_input_width,
    list_stages,
    uses_masks,
)

MAX_RELAYED_BYTES = 1 << 26  # of one message between sites that relay, whose rows they do not know before they plan


@dataclass(frozen=True)
class Start:
    """What training begins from once the share is planned: at step 0 the initial weights, later a checkpoint."""

    step: int = 0
    params: Params | None = None
    statistics: StateDict | None = None  # of the update rule; None: new ones


def plan_share(
    site: Site,
    settings: Settings,
    on_routes: Callable[[SiteRoutes], None] = lambda routes: None,
    on_tree: Callable[[Share, SiteSums], None] = lambda share, own: None,
) -> Generator[Outbox, Inbox, tuple[Share, int]]:
    """Plan the share of a site with the other sites; return it with the diameter of the agents' graph. `on_routes` and
    `on_tree` take what the exchanges after the routes, and after the plan of the tree, depend on."""
    planned = list_planning_exchanges(site)

    def note(routes: SiteRoutes) -> None:
        planned[:] = list_planning_exchanges(site, routes)
        on_routes(routes)

    share, diameter = yield from plan_site(site, note)
    own = measure_site(share, site, settings.standardise)
    on_tree(share, own)
    totals = yield from sum_sites(share, own, len(planned))
    return complete_share(share, site, totals, settings.dtype), diameter


@dataclass(frozen=True)
class SiteStore(EpochStore):
    """Persistent state of a site: planning can always be restored, and checkpoints after it once it is over."""

    checkpoints: Callable[[], RecoveryStore | None]  # of the training; None before the share is planned

    def steps(self) -> list[int]:
        checkpoints = self.checkpoints()
        return [0, *(PLANNING_STEPS + step for step in (checkpoints.steps() if checkpoints else []))]

    def discard(self, diverged: int, start: int) -> None:
        checkpoints = self.checkpoints()
        if checkpoints is not None:
            checkpoints.discard(diverged - PLANNING_STEPS, max(0, start - PLANNING_STEPS))


class SiteWork:
    """Planning with the other sites, then training; the shard that results from planning is in the folder `planned`."""

    first = PLANNING_STEPS

    def __init__(
        self,
        shard: SiteShard,
        folder: Path,
        log: EvaluationLog,
        signatures: Signatures = UNSIGNED,
        record: bool = False,
        start: Start | None = None,
        origin: str | None = None,
    ) -> None:
        """`start` is what the agents of a later membership train from, after planning at its step; `origin` identifies
        the shard that a plan belongs to."""
        self._start, self._origin = start or Start(), origin or fingerprint(shard)
        self._shard, self._site, self._folder, self._log = shard, shard.site, folder, log
        self._signatures, self._record = signatures, record
        if shard.settings.encodes:  # also of a shard that another version has made
            data = shard.data
            check_encoded_data(shard.settings, data.task, data.batch, data.sample_weights is not None, str(folder))
        if uses_masks(shard.settings):
            make_pair_keys(signatures, shard.membership.agent)  # refuses an agent without keys
        self._planned = folder / "planned"
        self._planning = self._expect_planning(None)
        max_diameter = max(1, shard.membership.num_agents - 1)  # of the agents' graph, not known before planning
        self.keep = len(list_stages(shard.settings)) * (1 + checkpoints_to_keep(max_diameter, shard.settings))
        self.steps = PLANNING_STEPS + count_protocol_steps(shard.settings)
        self.max_message_bytes = bound_message_bytes(shard)
        self.store = SiteStore(folder, lambda: self.training.store if self.training else None)
        self.training: Work | None = None  # once the share is planned
        self._summing: tuple[ExpectedMessages, ...] | None = None  # the exchanges after those of the plan
        if (self._planned / MANIFEST).is_file():
            self._check_origin()
            self.training = self._make_training(self._read_planned())

    def program(self, step: int, session: bytes) -> Program:
        moment = self._start.step  # that of planning, before the step of the same number is trained one later
        if step <= moment:
            self._discard_planned()
            settings, own = self._shard.settings, self._shard.membership
            boxes = make_boxes(self._signatures, own.agent, own.run, session + b" planning")
            relays = Relays(None, torch.float64, boxes)

            def on_routes(routes: SiteRoutes) -> None:
                relays.take(routes.of_agent(own.agent))
                self._planning = self._expect_planning(routes)

            plan = plan_share(self._site, settings, on_routes, self._expect_sums)
            share, diameter = yield from relays.relay(label_exchanges("site", moment, plan))
            if uses_masks(settings):
                share = yield from self._list_senders(share, diameter)
            planned = self._write_planned(share, diameter)
            self.training = self._make_training(planned)
            step = moment + PLANNING_STEPS
        if self.training is None:
            raise AssertionError("training cannot begin before the share is planned")
        yield from shift_steps(self.training.program(step - PLANNING_STEPS, session), PLANNING_STEPS)

    def _make_training(self, planned: Shard) -> Work:
        """The work of the planned share; at its start there is the checkpoint that it begins from, if it has one."""
        training = make_work(planned, self._folder, self._log, self._signatures, self._record)
        if planned.share.routes is not None and training.max_message_bytes > self.max_message_bytes:
            raise GossamerError(
                f"rows that are relayed to agent {planned.membership.agent} take messages of "
                f"{as_size(training.max_message_bytes)}, and {as_size(self.max_message_bytes)} is the most; add links "
                "between the sites that share many edges"
            )
        if self._start.params is not None and isinstance(training, ShardWork):
            training.begin_from(self._start.step, self._start.params, self._start.statistics or {})
        return training

    def _expect_planning(self, routes: SiteRoutes | None) -> tuple[ExpectedMessages, ...]:
        """Expect the exchanges of the plan, as far as they are known."""
        exchanges = list_planning_exchanges(self._site, routes)
        self._num_planned = len(exchanges)
        own = None if routes is None else routes.of_agent(self._site.agent)
        return list_expected("site", _yield_all(exchanges), torch.float64, own)

    def _expect_sums(self, share: Share, own: SiteSums) -> None:
        """Expect the exchanges that follow the plan of the tree."""
        self._summing = list_expected("site", sum_sites(share, own, self._num_planned), torch.float64)

    def _list_senders(self, share: Share, diameter: int) -> Generator[PlannedExchange, Inbox, Share]:
        """The planned share with the senders of the neighbours, from the lists that all agents sign."""
        assert self._summing is not None
        own, (topology,) = self._shard.membership, share.topologies
        index = self._num_planned + len(self._summing)
        lists = SenderLists(own, self._signatures, find_senders(topology.combination[0], own.agent))
        self._summing = (*self._summing, *expect_lists(lists, own, index, diameter))
        pairs = yield from label_exchanges("site", self._start.step, flood_lists(lists, own, index, diameter))
        return add_senders(share, [pairs])

    def expectations(self, position: Position) -> ExpectedMessages | None:
        step, number = position
        if step == self._start.step and number < len(self._planning):
            return self._planning[number]
        if step == self._start.step and self._summing is not None:
            number -= len(self._planning)
            return self._summing[number] if number < len(self._summing) else None
        if self.training is None:
            raise RefusedError("early", "this site has not planned yet")
        return self.training.expectations((step - PLANNING_STEPS, number))

    def _check_origin(self) -> None:
        """Refuse a plan of other data or settings."""
        origin = self._planned / "origin"
        if not origin.is_file() or origin.read_bytes() != self._origin.encode():
            raise GossamerError(
                f"{self._folder} belongs to other data or settings than this site's shard; give the run another name "
                "at every site, or move the folder away to let all agents begin anew"
            )

    def _read_planned(self) -> Shard:
        try:
            return read_shard(self._planned)
        except GossamerError as error:
            raise GossamerError(
                f"the plan in {self._planned} is damaged ({error}); remove that folder, and all agents plan anew"
            ) from None

    def _discard_planned(self) -> None:
        """Remove the plan before all plan anew: an agent that dies meanwhile must not restart with an old one."""
        self.training = self._summing = None
        self._planning = self._expect_planning(None)
        (self._planned / MANIFEST).unlink(missing_ok=True)

    def _write_planned(self, share: Share, diameter: int) -> Shard:
        settings = self._shard.settings
        keep = checkpoints_to_keep(diameter, settings)
        planned = Shard(self._shard.membership, share, settings, keep, self._shard.identity)
        make_private(self._planned)
        write_atomically(self._planned / "origin", self._origin.encode(), PRIVATE)
        write_shard(self._planned, planned)
        return planned


def _yield_all(exchanges: Sequence[Outbox]) -> Generator[Outbox, Inbox, None]:
    for one in exchanges:  # noqa: UP028 (a list takes no answers)
        yield one


def bound_message_bytes(shard: SiteShard) -> int:
    """Bytes that no message exceeds: weights, rows of all boundary vertices, or the messages of planning."""
    data, site = shard.data, shard.site
    features, settings = int(data.features.shape[-1]), shard.settings
    network = build_network(find_input_width(features, data.num_outputs, settings), data.num_outputs, settings)
    earlier = [build_stage_network(one, features, data.num_outputs, settings) for one in list_stages(settings)[:-1]]
    networks = [network, *earlier]
    boundary = max((max(len(site.halo(z)), len(site.boundary(z))) for z in site.neighbours), default=0)
    rows = boundary * max(layer.outputs for one in networks for layer in one.layers) * (data.batch or 1)
    exchanges = list_planning_exchanges(site)
    planning = max(shape[0] for one in exchanges for shape in (*one.expected.values(), (1,)))
    sums = 4 + 3 * int(data.features.shape[-1]) + 5 * data.num_outputs  # moments, and weights of each class
    planning = max(planning, sums)
    compressed = settings.consensus_method.payload_bytes(network.shapes(), 8)  # may be more than all weights
    scores = len(MASKS) * count_sums(data.task, data.num_outputs, binned=True)
    lists = site.num_agents * (site.num_agents + SIGNATURE_SIZE) if uses_masks(shard.settings) else 0
    measured = network.num_parameters + SAMPLED_NUMBERS
    relayed = MAX_RELAYED_BYTES if site.relays else 0
    return max(
        compressed, lists, relayed, 8 * max(measured, *(one.num_parameters for one in earlier), rows, planning, scores)
    )
