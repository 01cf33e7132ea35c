"""A peer's training run as one generator of exchanges, from any step that it can restore, and what it will expect."""

from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass, replace
from typing import Protocol, TypeVar

import torch

from gossamer.agents import Host, Inbox, Outbox, training_step
from gossamer.agents.measures import ScoreSums, evaluate
from gossamer.agents.rules import StateDict
from gossamer.generators import delegate, drive
from gossamer.model import Params
from gossamer.peers.protocol.exchanges import Planned, Program, Slot
from gossamer.peers.protocol.magnitudes import check_kept
from gossamer.peers.protocol.wire import Position
from gossamer.runs.settings import Settings

T = TypeVar("T")


class Checkpoints(Protocol):
    """Where weights and update statistics are kept."""

    def save(self, step: int, params: Params, state: StateDict) -> None: ...
    def load(self, step: int) -> tuple[Params, StateDict]: ...


def begin(
    host: Host, settings: Settings, checkpoints: Checkpoints, step: int, on_record: Callable[[int, ScoreSums], None]
) -> Program:
    """Train from `step` to the end: checkpoints, evaluations and steps, as the simulation orders them."""
    params, state = checkpoints.load(step)
    host = replace(host, params=params, state=state, step=step)
    while True:
        t = host.step
        if t % settings.checkpoint_every == 0 or t == settings.steps:
            check_kept(host.params.values(), host.state.values())  # a diverged state would bring itself back
            checkpoints.save(t, host.params, host.state)
        if _evaluates(settings, t):
            _, sums = yield from tagged("full", t, evaluate(host))
            on_record(t, sums)
        if t >= settings.steps:
            return
        host, _ = yield from tagged("train", t, training_step(host))


def tagged(plan: str, step: int, exchanges: Generator[Outbox, Inbox, T]) -> Generator[Planned, Inbox, T]:
    """Exchanges with the plan and the step that they belong to."""

    def tag(outbox: Outbox) -> Generator[Planned, Inbox, Inbox]:
        return (yield plan, step, outbox)

    return (yield from delegate(exchanges, tag))


def _evaluates(settings: Settings, step: int) -> bool:
    return step % settings.evaluate_every == 0 or step == settings.steps


@dataclass(frozen=True)
class Schedule:
    """What every position of a run expects, read off the generators themselves with zeros for messages."""

    settings: Settings
    full: tuple[Slot, ...]
    plain: tuple[Slot, ...]  # a training step without consensus
    mixed: tuple[Slot, ...]  # one with it

    def __call__(self, position: Position) -> Slot | None:
        step, slot = position
        if step > self.settings.steps:
            return None
        slots = self.full if _evaluates(self.settings, step) else ()
        if step < self.settings.steps:
            every = self.settings.consensus_every
            slots += self.mixed if every and (step + 1) % every == 0 else self.plain
        return slots[slot] if slot < len(slots) else None

    @property
    def largest(self) -> int:
        """Numbers in the largest message that may arrive."""
        shapes = [shape for *_, by in (*self.full, *self.plain, *self.mixed) for shape in by.values()]
        return max((torch.Size(shape).numel() for shape in shapes), default=0)


def make_schedule(host: Host, settings: Settings) -> Schedule:
    every = settings.consensus_every
    return Schedule(
        settings,
        _expected("full", evaluate(_copied(host, 0)), host),
        _expected("train", training_step(_copied(host, 0)), host) if every != 1 else (),
        _expected("train", training_step(_copied(host, every - 1)), host) if every else (),
    )


def _copied(host: Host, step: int) -> Host:
    def copied(parts: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        return {name: part.clone() for name, part in parts.items()}

    return replace(host, params=copied(host.params), state=copied(host.state), step=step)


def _expected(plan: str, exchanges: Generator[Outbox, Inbox, object], host: Host) -> tuple[Slot, ...]:
    dtype = next(iter(host.params.values())).dtype
    slots: list[Slot] = []

    def receive_zeros(outbox: Outbox) -> Inbox:
        shapes = {link.sender: shape for link, shape in outbox.expected.items()}
        slots.append((plan, str(outbox.phase), outbox.index, outbox.dtype, shapes))
        return {link: torch.zeros(shape, dtype=outbox.dtype or dtype) for link, shape in outbox.expected.items()}

    drive(exchanges, receive_zeros)
    return tuple(slots)
