"""The work of a peer in a run: training, and before it, at a site whose share no one has cut, planning that share.

Planning is step 0 of the protocol between neighbours, and training step t is its step t + 1. So an agent that dies
while sites plan rejoins like any other, and all roll back to the planning or, if everyone has its share, to a
checkpoint.
"""

from collections.abc import Callable, Generator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol

import numpy as np
import torch

from gossamer.agents.consensus import Consensus
from gossamer.agents.consensus.masked import MaskedConsensus, Pads, find_senders
from gossamer.agents.exchange import Inbox, Phase
from gossamer.agents.host import Host
from gossamer.agents.planning import list_message_shapes, plan_site
from gossamer.agents.scores import count_sums
from gossamer.agents.selection import restore_best
from gossamer.agents.share import MASKS, Share
from gossamer.agents.site_sums import complete_share, measure_site, sum_sites
from gossamer.errors import GossamerError
from gossamer.files import PRIVATE, make_private, write_atomically
from gossamer.generators import delegate
from gossamer.peers.checkpoints import CheckpointStore, EpochStore
from gossamer.peers.metrics import MetricsLog
from gossamer.peers.program import label_exchanges, list_expected, make_schedule, train_from
from gossamer.peers.protocol.config import RecoveryStore
from gossamer.peers.protocol.exchanges import ExpectedMessages, PlannedExchange, Program
from gossamer.peers.protocol.pads import PairKeys, Senders, SessionPads, make_pair_keys
from gossamer.peers.protocol.signatures import SIGNATURE_SIZE, UNSIGNED, Signatures
from gossamer.peers.protocol.wire import Position, RefusedError
from gossamer.peers.recorder import Recorder
from gossamer.peers.sender_lists import SenderLists, expect_lists, flood_lists
from gossamer.peers.sessions import log_session
from gossamer.peers.shards.shard import Shard, add_senders, checkpoints_to_keep, read_shard, write_shard
from gossamer.peers.shards.sites import SiteShard, fingerprint
from gossamer.runs.deployment import build_network, build_share_host
from gossamer.runs.secret_files import take_own_secret
from gossamer.runs.shares import MANIFEST
from gossamer.runs.tensors import write_tensors

PLANNING_STEPS = 1  # steps of the protocol before a site's training


class Work(Protocol):
    """The program of an agent in the protocol, with what the protocol must know of it."""

    @property
    def first(self) -> int:
        """The protocol's step at which training begins."""

    @property
    def keep(self) -> int:
        """Number of checkpoints that an agent keeps at most."""

    @property
    def max_message_bytes(self) -> int: ...

    @property
    def store(self) -> RecoveryStore: ...

    def program(self, step: int, session: bytes) -> Program:
        """The program from a restorable step on, in a session that `name_session` has named."""

    def expectations(self, position: Position) -> ExpectedMessages | None:
        """The messages that the agent expects at a position."""


class ShardWork:
    """Training from a share that was cut."""

    first = 0

    def __init__(
        self,
        shard: Shard,
        folder: Path,
        metrics: MetricsLog,
        signatures: Signatures = UNSIGNED,
        record: bool = False,
    ) -> None:
        self._settings, self._folder, self._metrics = shard.settings, folder, metrics
        self._recorder = Recorder(folder, shard.membership, shard.settings) if record else None
        self._membership = shard.membership
        self._keys = make_pair_keys(signatures, shard.membership.agent) if shard.settings.masks else None
        public = shard.settings.public_randomness
        secrets = None if public else take_own_secret(folder, shard.membership.agent)
        self._host = build_share_host(shard.share, shard.settings, secrets)
        self._schedule = make_schedule(self._host, shard.settings, shard.share)
        self._share = shard.share
        self.keep = shard.keep
        self.max_message_bytes = self._schedule.largest
        self.store = CheckpointStore(folder, shard.keep, self._host.params, self._host.state)

    def program(self, step: int, session: bytes) -> Program:
        host = self._host if self._keys is None else self._mask(self._host, self._keys, step, session)
        given = host, self._settings, self.store, step, self._metrics.add, self._share
        if self._recorder is None:
            last = yield from train_from(*given)
        else:
            self._recorder.begin(step)
            last = yield from self._recorder.record(train_from(*given, self._recorder.begin_step))
        write_tensors(self._folder / "weights.safetensors", restore_best(last).params, PRIVATE)

    def expectations(self, position: Position) -> ExpectedMessages | None:
        return self._schedule(position)

    def _mask(self, host: Host, keys: PairKeys, step: int, session: bytes) -> Host:
        """The host with the pads of a session."""
        log_session(self._folder, self.store.epoch(), step, session)
        pads = SessionPads(keys, self._membership.run, session, group_senders(self._share))
        return add_pads(host, pads)


@dataclass(frozen=True)
class SiteStore(EpochStore):
    """Persistent state of a site: planning can always be restored, and checkpoints after it once it is over."""

    checkpoints: Callable[[], CheckpointStore | None]  # of the training; None before the share is planned

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
        metrics: MetricsLog,
        signatures: Signatures = UNSIGNED,
        record: bool = False,
    ) -> None:
        self._shard, self._site, self._folder, self._metrics = shard, shard.site, folder, metrics
        self._signatures, self._record = signatures, record
        if shard.settings.masks:
            make_pair_keys(signatures, shard.membership.agent)  # refuses an agent without keys
        self._planned = folder / "planned"
        self._planning = [
            ExpectedMessages(
                "site",
                str(Phase.PLANNING),
                index,
                torch.float64,
                {link.sender: shape for link, shape in shapes.items()},
            )
            for index, shapes in enumerate(list_message_shapes(self._site))
        ]
        max_diameter = max(1, shard.membership.num_agents - 1)  # of the agents' graph, not known before planning
        self.keep = 1 + checkpoints_to_keep(max_diameter, shard.settings)
        self.max_message_bytes = _bound_message_bytes(shard)
        self.store = SiteStore(folder, lambda: self.training.store if self.training else None)
        self.training: ShardWork | None = None  # once the share is planned
        self._summing: tuple[ExpectedMessages, ...] | None = None  # the exchanges after those of the plan
        if (self._planned / MANIFEST).is_file():
            self._check_origin()
            self.training = ShardWork(self._read_planned(), folder, metrics, signatures, record)

    def program(self, step: int, session: bytes) -> Program:
        if step == 0:
            self._discard_planned()
            share, diameter = yield from label_exchanges("site", 0, plan_site(self._site))
            settings, after = self._shard.settings, len(self._planning)
            own = measure_site(share, self._site, settings.standardise)
            self._summing = list_expected("site", sum_sites(share, own, after), torch.float64)
            totals = yield from label_exchanges("site", 0, sum_sites(share, own, after))
            share = complete_share(share, self._site, totals, settings.dtype)
            if settings.masks:
                share = yield from self._list_senders(share, diameter)
            planned = self._write_planned(share, diameter)
            self.training = ShardWork(planned, self._folder, self._metrics, self._signatures, self._record)
        if self.training is None:
            raise AssertionError("training cannot begin before the share is planned")
        yield from _shift_steps(self.training.program(max(0, step - PLANNING_STEPS), session), PLANNING_STEPS)

    def _list_senders(self, share: Share, diameter: int) -> Generator[PlannedExchange, Inbox, Share]:
        """The planned share with the senders of the neighbours, from the lists that all agents sign."""
        assert self._summing is not None
        own, (topology,) = self._shard.membership, share.topologies
        index = len(self._planning) + len(self._summing)
        lists = SenderLists(own, self._signatures, find_senders(topology.combination[0], own.agent))
        self._summing = (*self._summing, *expect_lists(lists, own, index, diameter))
        pairs = yield from label_exchanges("site", 0, flood_lists(lists, own, index, diameter))
        return add_senders(share, [pairs])

    def expectations(self, position: Position) -> ExpectedMessages | None:
        step, number = position
        if step == 0 and number < len(self._planning):
            return self._planning[number]
        if step == 0 and self._summing is not None:
            number -= len(self._planning)
            return self._summing[number] if number < len(self._summing) else None
        if self.training is None:
            raise RefusedError("early", "this site has not planned yet")
        return self.training.expectations((step - PLANNING_STEPS, number))

    def _check_origin(self) -> None:
        """Refuse a plan of other data or settings."""
        origin = self._planned / "origin"
        if not origin.is_file() or origin.read_bytes() != fingerprint(self._shard).encode():
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
        (self._planned / MANIFEST).unlink(missing_ok=True)

    def _write_planned(self, share: Share, diameter: int) -> Shard:
        settings = self._shard.settings
        planned = Shard(self._shard.membership, share, settings, checkpoints_to_keep(diameter, settings))
        make_private(self._planned)
        write_atomically(self._planned / "origin", fingerprint(self._shard).encode(), PRIVATE)
        write_shard(self._planned, planned)
        return planned


def add_pads(host: Host, pads: Pads) -> Host:
    """A host of one agent whose masked consensus takes these pads."""

    def pad(consensus: Consensus) -> MaskedConsensus:
        if not isinstance(consensus, MaskedConsensus):
            raise AssertionError("pads are for masked consensus")
        return replace(consensus, pads=pads)

    return replace(host, topologies=tuple(replace(one, consensus=pad(one.consensus)) for one in host.topologies))


def group_senders(share: Share) -> list[Senders]:
    """For each topology of a share, the senders of its agent's neighbours."""
    groups: list[Senders] = []
    for topology in share.topologies:
        if topology.senders is None:
            raise AssertionError("a share without the senders of its neighbours")
        pairs = topology.senders
        groups.append({int(k): tuple(pairs[pairs[:, 0] == k, 1].tolist()) for k in np.unique(pairs[:, 0])})
    return groups


def _shift_steps(program: Program, by: int) -> Program:
    """The same program, `by` steps later."""

    def shift(exchange: PlannedExchange) -> Generator[PlannedExchange, Inbox, Inbox]:
        return (yield exchange._replace(step=exchange.step + by))

    return delegate(program, shift)


def _bound_message_bytes(shard: SiteShard) -> int:
    """Bytes that no message exceeds: weights, rows of all boundary vertices, or the messages of planning."""
    data, site = shard.data, shard.site
    network = build_network(int(data.features.shape[-1]), data.num_outputs, shard.settings)
    boundary = max((len(site.halo(z)) for z in site.neighbours), default=0)
    rows = boundary * max(layer.outputs for layer in network.layers) * (data.batch or 1)
    planning = max(shape[0] for shapes in list_message_shapes(site) for shape in (*shapes.values(), (1,)))
    sums = 4 + 3 * int(data.features.shape[-1]) + 5 * data.num_outputs  # moments, and weights of each class
    planning = max(planning, sums)
    compressed = shard.settings.consensus_method.payload_bytes(network.shapes(), 8)  # may be more than all weights
    scores = len(MASKS) * count_sums(data.task, data.num_outputs, binned=True)
    lists = site.num_agents * (site.num_agents + SIGNATURE_SIZE) if shard.settings.masks else 0
    return max(compressed, lists, 8 * max(network.num_parameters, rows, planning, scores))
