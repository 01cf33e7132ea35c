"""The work of a peer from a share that was cut: training, with checkpoints, evaluations, and the pads of a session."""

from collections.abc import Generator
from dataclasses import replace
from pathlib import Path
from typing import Protocol

import numpy as np

from gossamer.agents.consensus import Consensus
from gossamer.agents.consensus.masked import MaskedConsensus, Pads
from gossamer.agents.exchange import Inbox
from gossamer.agents.host import Host
from gossamer.agents.rules import StateDict
from gossamer.agents.selection import restore_best
from gossamer.agents.share import Share
from gossamer.files import PRIVATE
from gossamer.generators import delegate
from gossamer.model import Params
from gossamer.peers.checkpoints import CheckpointStore
from gossamer.peers.evaluation import make_evaluation
from gossamer.peers.evaluation_log import EvaluationLog
from gossamer.peers.program import Value, closing_step, label_exchanges, make_schedule, train_from
from gossamer.peers.protocol.boxes import make_boxes
from gossamer.peers.protocol.config import RecoveryStore
from gossamer.peers.protocol.exchanges import ExpectedMessages, PlannedExchange, Program
from gossamer.peers.protocol.pads import PairKeys, Senders, SessionPads, make_pair_keys
from gossamer.peers.protocol.relaying import Relays
from gossamer.peers.protocol.signatures import UNSIGNED, Signatures
from gossamer.peers.protocol.wire import Position
from gossamer.peers.recorder import Recorder
from gossamer.peers.results import write_result
from gossamer.peers.sessions import log_session
from gossamer.peers.shards.shard import Shard
from gossamer.runs.settings import Settings
from gossamer.runs.tensors import write_tensors


class Work(Protocol):
    """The program of an agent in the protocol, with what the protocol must know of it."""

    @property
    def first(self) -> int:
        """The protocol's step at which training begins."""

    @property
    def steps(self) -> int:
        """Steps of the protocol."""

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
    """Training of a host from a share that was cut: of the network, or of a stage before it."""

    first = 0

    def __init__(
        self,
        shard: Shard,
        host: Host,
        settings: Settings,
        folder: Path,
        log: EvaluationLog,
        signatures: Signatures = UNSIGNED,
        record: bool = False,
        closes: bool = True,
    ) -> None:
        """`settings` are those of the host's stage; the last one `closes` the run."""
        self._settings, self._folder, self._log = settings, folder, log
        self._shard, self._share, self._host = shard, shard.share, host
        self._recorder = Recorder(folder, shard.membership, settings) if record else None
        self._keys = make_pair_keys(signatures, shard.membership.agent) if settings.masks else None
        self._closes, self._signatures = closes, signatures
        self._schedule = make_schedule(host, settings, shard.share, closes)
        self.keep, self.steps = shard.keep, settings.steps
        self.max_message_bytes = self._schedule.largest
        self.store = CheckpointStore(folder, shard.keep, host.params, host.state)

    def program(self, step: int, session: bytes) -> Program:
        kept = yield from self.train(step, session)
        yield from self.close(kept)

    def train(self, step: int, session: bytes) -> Generator[PlannedExchange, Inbox, Host]:
        """Train from a step to the end; returns the host with the weights that are kept."""
        host, pads = self._host, None
        if self._keys is not None:
            host, pads = self._mask(self._host, self._keys, step, session)
        self._evaluation = make_evaluation(host, self._settings, self._share, pads, self._closes)
        own, routes = self._shard.membership, self._share.routes if self._closes else None
        boxes = make_boxes(self._signatures, own.agent, own.run, session)
        self._relays = Relays(routes, host.torch_dtype, boxes)
        given = host, self._settings, self.store, step, self._log.add, self._evaluation
        if self._recorder is None:
            last = yield from self._relays.relay(train_from(*given))
        else:
            self._recorder.begin(step)
            training = train_from(*given, self._recorder.begin_step)
            last = yield from self._relays.relay(self._recorder.record(training))
        kept = restore_best(last)
        write_tensors(self._folder / "weights.safetensors", kept.params, PRIVATE)
        return kept

    def close(self, kept: Host) -> Generator[PlannedExchange, Inbox, None]:
        """End the run with the weights that are kept, and write its result."""
        moment = closing_step(self._settings)
        ending = label_exchanges("closing", moment, self._evaluation.close(kept, moment))
        closing = yield from self._relays.relay(ending)
        write_result(self._folder, self._shard, kept, closing, self._log.path)

    def begin_from(self, step: int, params: Params, statistics: StateDict) -> None:
        """Store a checkpoint of an earlier membership as one of this training: trackers, memories of links and the best
        weights so far begin anew, the statistics of the update rule stay."""
        self.store.save(step, params, carry_over(self._host, statistics))

    def expectations(self, position: Position) -> ExpectedMessages | None:
        return self._schedule(position)

    def _mask(self, host: Host, keys: PairKeys, step: int, session: bytes) -> tuple[Host, Pads]:
        """The host with the pads of a session, and the pads of sums over all agents."""
        log_session(self._folder, self.store.epoch(), step, session)
        run, everyone = self._shard.membership.run, range(host.num_agents)
        pads = SessionPads(keys, run, session, group_senders(self._share))
        return add_pads(host, pads), SessionPads(keys, run, session + b" sums", [{host.num_agents: everyone}])


def carry_over(host: Host, statistics: StateDict) -> StateDict:
    """The state of a host at the start of a training, but for the update rule's statistics of an earlier one."""
    return {**host.state, **statistics}


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


def shift_steps(program: Generator[PlannedExchange, Inbox, Value], by: int) -> Generator[PlannedExchange, Inbox, Value]:
    """The same program, `by` steps later."""

    def shift(exchange: PlannedExchange) -> Generator[PlannedExchange, Inbox, Inbox]:
        return (yield exchange._replace(step=exchange.step + by))

    return delegate(program, shift)
