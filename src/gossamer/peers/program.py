"""A peer's training run: a generator of exchanges from any step that it can restore, and the messages it expects."""

from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass, replace
from typing import Protocol, TypeVar

import torch

from gossamer.agents import Host, Inbox, Outbox, training_step
from gossamer.agents.measures import evaluate
from gossamer.agents.rules import StateDict
from gossamer.agents.scores import ScoreSums, choose_score, find_task
from gossamer.generators import delegate, drive
from gossamer.model import Params
from gossamer.peers.protocol.exchanges import ExpectedMessages, PlannedExchange, Program
from gossamer.peers.protocol.magnitudes import check_checkpoint
from gossamer.peers.protocol.wire import Position
from gossamer.runs.settings import Settings

Value = TypeVar("Value")


class Checkpoints(Protocol):
    """Storage of weights and update statistics, by step."""

    def save(self, step: int, params: Params, state: StateDict) -> None: ...
    def load(self, step: int) -> tuple[Params, StateDict]: ...


def train_from(
    host: Host, settings: Settings, checkpoints: Checkpoints, step: int, on_record: Callable[[int, ScoreSums], None]
) -> Program:
    """Train from `step` to the end: checkpoints, evaluations and steps, in the simulation's order."""
    params, state = checkpoints.load(step)
    host = replace(host, params=params, state=state, step=step)
    binned = choose_score(settings.score, find_task(host.full_pass.targets)).needs_ranking
    while True:
        t = host.step
        if t % settings.checkpoint_every == 0 or t == settings.steps:
            check_checkpoint(host.params.values(), host.state.values())  # a restart would restore a diverged state
            checkpoints.save(t, host.params, host.state)
        if _is_evaluated(settings, t):
            _, sums = yield from label_exchanges("full", t, evaluate(host, binned))
            on_record(t, sums)
        if t >= settings.steps:
            return
        host, _ = yield from label_exchanges("train", t, training_step(host))


def label_exchanges(
    plan: str, step: int, exchanges: Generator[Outbox, Inbox, Value]
) -> Generator[PlannedExchange, Inbox, Value]:
    """Exchanges with the plan and the step that they belong to."""

    def label(outbox: Outbox) -> Generator[PlannedExchange, Inbox, Inbox]:
        return (yield PlannedExchange(plan, step, outbox))

    return (yield from delegate(exchanges, label))


def _is_evaluated(settings: Settings, step: int) -> bool:
    return step % settings.evaluate_every == 0 or step == settings.steps


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
        exchanges = expected.full if _is_evaluated(self.settings, step) else ()
        if step < self.settings.steps:
            exchanges += expected.mixed if _is_mixed(self.settings, step) else expected.plain
        return exchanges[number] if number < len(exchanges) else None

    @property
    def largest(self) -> int:
        """Numbers in the largest message that may arrive."""
        exchanges = [each for one in self.topologies for each in (*one.full, *one.plain, *one.mixed)]
        shapes = [shape for expected in exchanges for shape in expected.shapes.values()]
        return max((torch.Size(shape).numel() for shape in shapes), default=0)


def make_schedule(host: Host, settings: Settings) -> MessageSchedule:
    """The schedule of a run, read off its generators by running them with zeros for messages."""
    length = len(host.topologies)

    def expect(number: int) -> TopologyMessages:
        """Look at the first step of each kind with this topology, if there is one."""
        steps = range(number, length * max(1, settings.consensus_every), length)
        kinds = {_is_mixed(settings, step): step for step in reversed(steps)}
        found = {
            mixed: _expected_messages("train", training_step(_copy_at(host, step)), host)
            for mixed, step in kinds.items()
        }
        full = _expected_messages("full", evaluate(_copy_at(host, number)), host)
        return TopologyMessages(full, found.get(False, ()), found.get(True, ()))

    return MessageSchedule(settings, tuple(map(expect, range(length))))


def _copy_at(host: Host, step: int) -> Host:
    """A host at a step, with copies of the weights and statistics."""

    def copy(parts: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        return {name: part.clone() for name, part in parts.items()}

    return replace(host, params=copy(host.params), state=copy(host.state), step=step)


def _expected_messages(
    plan: str, exchanges: Generator[Outbox, Inbox, object], host: Host
) -> tuple[ExpectedMessages, ...]:
    dtype = next(iter(host.params.values())).dtype
    found: list[ExpectedMessages] = []

    def receive_zeros(outbox: Outbox) -> Inbox:
        shapes = {link.sender: shape for link, shape in outbox.expected.items()}
        found.append(ExpectedMessages(plan, str(outbox.phase), outbox.index, outbox.dtype, shapes))
        return {link: torch.zeros(shape, dtype=outbox.dtype or dtype) for link, shape in outbox.expected.items()}

    drive(exchanges, receive_zeros)
    return tuple(found)
