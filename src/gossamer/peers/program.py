"""A peer's training run: a generator of exchanges from any step that it can restore, and the messages it expects."""

from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass, replace
from typing import Protocol, TypeVar

import torch

from gossamer.agents import Host, Inbox, Outbox, training_step
from gossamer.agents.relays import AgentRoutes
from gossamer.agents.rules import StateDict
from gossamer.agents.selection import find_best_step, has_waited, keep_if_best
from gossamer.agents.share import Share
from gossamer.generators import delegate, drive
from gossamer.model import Params
from gossamer.peers.evaluation import NetworkEvaluation, PeerEvaluation, make_evaluation
from gossamer.peers.protocol.boxes import OpenBoxes, SealedBoxes
from gossamer.peers.protocol.exchanges import ExpectedMessages, PlannedExchange
from gossamer.peers.protocol.magnitudes import check_checkpoint
from gossamer.peers.protocol.relaying import Relays
from gossamer.peers.protocol.wire import Position
from gossamer.runs.evaluated_steps import is_evaluated
from gossamer.runs.settings import Settings

Value = TypeVar("Value")


class Checkpoints(Protocol):
    """Storage of weights and update statistics, by step."""

    def save(self, step: int, params: Params, state: StateDict) -> None: ...
    def load(self, step: int) -> tuple[Params, StateDict]: ...


def train_from(
    host: Host,
    settings: Settings,
    checkpoints: Checkpoints,
    step: int,
    on_record: Callable[[PeerEvaluation], None],
    evaluation: NetworkEvaluation,
    on_step: Callable[[Host, bool], None] = lambda host, saves: None,
    until: int | None = None,
) -> Generator[PlannedExchange, Inbox, Host]:
    """Train from `step` to the end: checkpoints, evaluations and steps, in the simulation's order. Returns the host as
    its last checkpoint has it. `on_step` is called before each step, and is told whether a checkpoint follows. With
    `until`, return the host before the evaluation of that step."""
    params, state = checkpoints.load(step)
    host = replace(host, params=params, state=state, step=step)
    score = evaluation.score
    while True:
        t, last = host.step, host.step >= settings.steps
        saves = t % settings.checkpoint_every == 0 or last
        on_step(host, saves)
        if saves:
            _save(checkpoints, host)
        if t == until:
            return host
        if is_evaluated(settings, t):
            found = yield from label_exchanges("full", t, evaluation.evaluate(host))
            if found.whole is not None:
                validation = found.whole["validation"]
                keep_if_best(host, score.signed(validation[score.key(binned=True)]), validation["loss"])
                last = last or has_waited(host, settings.patience)
            on_record(replace(found, best_step=find_best_step(host)))
        if last:
            if host.training.keep_best:  # with the outcome of the last evaluation
                _save(checkpoints, host)
            return host
        host, _ = yield from label_exchanges("train", t, training_step(host))


def _save(checkpoints: Checkpoints, host: Host) -> None:
    check_checkpoint(host.params.values(), host.state.values())  # a restart would restore a diverged state
    checkpoints.save(host.step, host.params, host.state)


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
    closing: tuple[ExpectedMessages, ...] = ()  # after the last step, of the run's last stage

    def __call__(self, position: Position) -> ExpectedMessages | None:
        step, number = position
        if step == closing_step(self.settings):
            return self.closing[number] if number < len(self.closing) else None
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
        exchanges += self.closing
        sizes = [
            torch.Size(shape).numel() * (expected.dtype or self.settings.torch_dtype).itemsize
            for expected in exchanges
            for shape in expected.shapes.values()
        ]
        return max(sizes, default=0)


def closing_step(settings: Settings) -> int:
    """The step of the protocol in which a run ends, whichever step patience made the last."""
    return settings.steps + 1


def make_schedule(host: Host, settings: Settings, share: Share, closes: bool = True) -> MessageSchedule:
    """The schedule of a run, read off its generators by running them with zeros for messages; only the last stage of a
    run `closes`."""
    length, evaluation = len(host.topologies), make_evaluation(host, settings, share, closes=closes)
    routes = share.routes if closes else None  # stages before the last send no rows

    def expect(number: int) -> TopologyMessages:
        """Look at the first step of each kind with this topology, if there is one."""
        steps = range(number, length * max(1, settings.consensus_every), length)
        kinds = {_is_mixed(settings, step): step for step in reversed(steps)}
        found = {
            mixed: list_expected("train", training_step(_copy_at(host, step)), host.torch_dtype, routes)
            for mixed, step in kinds.items()
        }
        full = list_expected("full", evaluation.evaluate(_copy_at(host, number)), host.torch_dtype, routes)
        return TopologyMessages(full, found.get(False, ()), found.get(True, ()))

    closing: tuple[ExpectedMessages, ...] = ()
    if closes:
        closing = list_expected("closing", evaluation.close(_copy_at(host, 0), 0), host.torch_dtype, routes)
    return MessageSchedule(settings, tuple(map(expect, range(length))), closing)


def _copy_at(host: Host, step: int) -> Host:
    """A host at a step, with copies of the weights and statistics."""

    def copy(parts: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        return {name: part.clone() for name, part in parts.items()}

    return replace(host, params=copy(host.params), state=copy(host.state), step=step)


def list_expected(
    plan: str,
    exchanges: Generator[Outbox, Inbox, object],
    dtype: torch.dtype,
    routes: AgentRoutes | None = None,
) -> tuple[ExpectedMessages, ...]:
    """The messages that a generator of exchanges expects, found by sending it zeros; `dtype` is the run's, and `routes`
    those of an agent in a run that relays rows."""
    found: list[ExpectedMessages] = []
    relays = Relays(routes, dtype, OpenBoxes(SealedBoxes.overhead))

    def receive_zeros(planned: PlannedExchange) -> Inbox:
        outbox = planned.outbox
        shapes = {link.sender: shape for link, shape in outbox.expected.items()}
        found.append(ExpectedMessages(plan, str(outbox.phase), outbox.index, outbox.dtype, shapes))
        return {link: torch.zeros(shape, dtype=outbox.dtype or dtype) for link, shape in outbox.expected.items()}

    drive(relays.relay(label_exchanges(plan, 0, exchanges)), receive_zeros)
    return tuple(found)
