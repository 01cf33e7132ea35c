"""A peer's training run: a generator of exchanges from any step that it can restore, and the messages it expects."""

from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass, replace
from typing import Protocol, TypeVar

import torch

from gossamer.agents import Host, Inbox, Outbox, training_step
from gossamer.agents.exchange import Phase
from gossamer.agents.measures import evaluate
from gossamer.agents.rules import StateDict
from gossamer.agents.scores import ScoreKind, Scores, ScoreSums, choose_score, compute_scores
from gossamer.agents.selection import find_best_step, has_waited, keep_if_best
from gossamer.agents.share import MASKS, Share
from gossamer.agents.sums import sum_over_tree
from gossamer.errors import GossamerError
from gossamer.generators import delegate, drive
from gossamer.model import Params
from gossamer.peers.protocol.exchanges import ExpectedMessages, PlannedExchange
from gossamer.peers.protocol.magnitudes import check_checkpoint
from gossamer.peers.protocol.wire import Position
from gossamer.runs.evaluated_steps import is_evaluated
from gossamer.runs.settings import Settings

Value = TypeVar("Value")


class Checkpoints(Protocol):
    """Storage of weights and update statistics, by step."""

    def save(self, step: int, params: Params, state: StateDict) -> None: ...
    def load(self, step: int) -> tuple[Params, StateDict]: ...


@dataclass(frozen=True)
class PeerEvaluation:
    """An evaluation of one agent's vertices and, where all agents select the same weights, of all agents'."""

    step: int
    own: ScoreSums
    whole: Scores | None = None
    best_step: int | None = None  # of the best validation score so far


def train_from(
    host: Host,
    settings: Settings,
    checkpoints: Checkpoints,
    step: int,
    on_record: Callable[[PeerEvaluation], None],
    share: Share | None = None,
    on_step: Callable[[Host, bool], None] = lambda host, saves: None,
) -> Generator[PlannedExchange, Inbox, Host]:
    """Train from `step` to the end: checkpoints, evaluations and steps, in the simulation's order. Returns the host as
    its last checkpoint has it. `share` is needed where all agents select the same weights. `on_step` is called before
    each step, and is told whether a checkpoint follows."""
    params, state = checkpoints.load(step)
    host = replace(host, params=params, state=state, step=step)
    score = _choose_score(host, settings)
    while True:
        t, last = host.step, host.step >= settings.steps
        saves = t % settings.checkpoint_every == 0 or last
        on_step(host, saves)
        if saves:
            _save(checkpoints, host)
        if is_evaluated(settings, t):
            own, whole = yield from label_exchanges("full", t, _evaluate_together(host, score, share))
            if whole is not None:
                validation = whole["validation"]
                keep_if_best(host, score.signed(validation[score.key(binned=True)]), validation["loss"])
                last = last or has_waited(host, settings.patience)
            on_record(PeerEvaluation(t, own, whole, find_best_step(host)))
        if last:
            if host.training.keep_best:  # with the outcome of the last evaluation
                _save(checkpoints, host)
            return host
        host, _ = yield from label_exchanges("train", t, training_step(host))


def _save(checkpoints: Checkpoints, host: Host) -> None:
    check_checkpoint(host.params.values(), host.state.values())  # a restart would restore a diverged state
    checkpoints.save(host.step, host.params, host.state)


def _evaluate_together(
    host: Host, score: ScoreKind, share: Share | None
) -> Generator[Outbox, Inbox, tuple[ScoreSums, Scores | None]]:
    """The sums of this agent's scores and, if the best weights are kept, the scores of all agents' sums."""
    _, own = yield from evaluate(host, score.needs_ranking)
    if not host.training.keep_best:
        return own, None
    if share is None or share.tree is None:
        raise GossamerError("agents that keep the best weights need a spanning tree: cut the shards again")
    total = yield from sum_over_tree(share.tree, torch.cat([own[name] for name in MASKS]), Phase.SCORES)
    whole = dict(zip(MASKS, total.split([len(own[name]) for name in MASKS]), strict=True))
    task, width = host.task, host.network.layers[-1].outputs
    scale = None if share.transform is None else share.transform.find_target_scale()
    return own, compute_scores([whole], task, width, scale)


def _choose_score(host: Host, settings: Settings) -> ScoreKind:
    return choose_score(settings.score, host.task)


def label_exchanges(
    plan: str, step: int, exchanges: Generator[Outbox, Inbox, Value]
) -> Generator[PlannedExchange, Inbox, Value]:
    """Exchanges with the plan and the step that they belong to."""

    def label(outbox: Outbox) -> Generator[PlannedExchange, Inbox, Inbox]:
        return (yield PlannedExchange(plan, step, outbox))

    return (yield from delegate(exchanges, label))


def _is_mixed(settings: Settings, step: int) -> bool:
    return bool(settings.consensus_every) and (step + 1) % settings.consensus_every == 0


@dataclass(frozen=True)
class TopologyMessages:
    """The messages that an agent expects at a step with one of the run's topologies."""

    full: tuple[ExpectedMessages, ...]  # an evaluation
    plain: tuple[ExpectedMessages, ...]  # a training step without consensus
    mixed: tuple[ExpectedMessages, ...]  # one with it


@dataclass(frozen=True)
class MessageSchedule:
    """The messages that an agent expects at every position of a run."""

    settings: Settings
    topologies: tuple[TopologyMessages, ...]  # of steps 0, 1, ...; after the last comes the first again

    def __call__(self, position: Position) -> ExpectedMessages | None:
        step, number = position
        if step > self.settings.steps:
            return None
        expected = self.topologies[step % len(self.topologies)]
        exchanges = expected.full if is_evaluated(self.settings, step) else ()
        if step < self.settings.steps:
            exchanges += expected.mixed if _is_mixed(self.settings, step) else expected.plain
        return exchanges[number] if number < len(exchanges) else None

    @property
    def largest(self) -> int:
        """Bytes of the largest message that may arrive."""
        exchanges = [each for one in self.topologies for each in (*one.full, *one.plain, *one.mixed)]
        sizes = [
            torch.Size(shape).numel() * (expected.dtype or self.settings.torch_dtype).itemsize
            for expected in exchanges
            for shape in expected.shapes.values()
        ]
        return max(sizes, default=0)


def make_schedule(host: Host, settings: Settings, share: Share | None = None) -> MessageSchedule:
    """The schedule of a run, read off its generators by running them with zeros for messages."""
    length, score = len(host.topologies), _choose_score(host, settings)

    def expect(number: int) -> TopologyMessages:
        """Look at the first step of each kind with this topology, if there is one."""
        steps = range(number, length * max(1, settings.consensus_every), length)
        kinds = {_is_mixed(settings, step): step for step in reversed(steps)}
        found = {
            mixed: list_expected("train", training_step(_copy_at(host, step)), host.torch_dtype)
            for mixed, step in kinds.items()
        }
        evaluation = _evaluate_together(_copy_at(host, number), score, share)
        full = list_expected("full", evaluation, host.torch_dtype)
        return TopologyMessages(full, found.get(False, ()), found.get(True, ()))

    return MessageSchedule(settings, tuple(map(expect, range(length))))


def _copy_at(host: Host, step: int) -> Host:
    """A host at a step, with copies of the weights and statistics."""

    def copy(parts: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        return {name: part.clone() for name, part in parts.items()}

    return replace(host, params=copy(host.params), state=copy(host.state), step=step)


def list_expected(
    plan: str, exchanges: Generator[Outbox, Inbox, object], dtype: torch.dtype
) -> tuple[ExpectedMessages, ...]:
    """The messages that a generator of exchanges expects, found by sending it zeros; `dtype` is the run's."""
    found: list[ExpectedMessages] = []

    def receive_zeros(outbox: Outbox) -> Inbox:
        shapes = {link.sender: shape for link, shape in outbox.expected.items()}
        found.append(ExpectedMessages(plan, str(outbox.phase), outbox.index, outbox.dtype, shapes))
        return {link: torch.zeros(shape, dtype=outbox.dtype or dtype) for link, shape in outbox.expected.items()}

    drive(exchanges, receive_zeros)
    return tuple(found)
