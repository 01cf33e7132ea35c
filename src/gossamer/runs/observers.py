"""The observer seam: progress bars, logs, TensorBoard, metrics, checkpoints follow a run without changing its numbers.

An observer is a value with a function for each event. There is no base class to derive from: a stateful observer passes
its bound methods, as in `Observer(on_record=table.add, on_end=table.close)`, and states only the events it follows.
"""

from collections.abc import Callable
from dataclasses import dataclass, fields

from gossamer.runs.records import Record
from gossamer.runs.run import Run


@dataclass(frozen=True)
class Observer:
    """Functions that the training loop calls, those of several observers in the order in which they were given.

    An exception of theirs ends the run. On a cluster every rank calls its own observers: `run.engine.leads` holds on
    the one that reports, and what needs all ranks, such as `run.scores`, must be called on all.
    """

    on_start: Callable[[Run], object] = lambda run: None
    """Once, with the run at the step from which it trains, before its first evaluation and step."""
    on_step: Callable[[int, float], object] = lambda step, loss: None
    """After each step, with its number (from 1) and the training loss before it."""
    on_record: Callable[[Record], object] = lambda record: None
    """After each evaluation, with its record: `step`, scores of each mask, `disagreement`, `stationarity`."""
    on_checkpoint: Callable[[Run], object] = lambda run: None
    """Every `checkpoint_every` steps, with the run as it stands between two steps."""
    on_end: Callable[[Run], object] = lambda run: None
    """Once, when all steps are done or the run was stopped; not after an error."""


def join_observers(first: Observer, second: Observer) -> Observer:
    """An observer that passes every event on to two others."""

    def join(event: str) -> Callable[..., None]:
        call, then = getattr(first, event), getattr(second, event)

        def both(*args: object) -> None:
            call(*args)
            then(*args)

        return both

    return Observer(**{field.name: join(field.name) for field in fields(Observer)})
