"""Observers from outside the package see a run's events in order, and an error of theirs leaves the directory whole."""

from pathlib import Path
from typing import Any

import pytest
import torch
from agents.cases import make_case

import gossamer
from gossamer import Observer
from gossamer.runs.run_json import read_manifest

Event = tuple[Any, ...]
OPTIONS: dict[str, Any] = {
    "agents": 4, "hidden": 5, "topology": "complete", "steps": 7, "evaluate_every": 3, "checkpoint_every": 2,
    "dtype": "float64", "initial_deviation": 0.3, "dropout": 0.0,
}  # fmt: skip
EVENTS: list[Event] = [
    ("start", 0), ("record", 0), ("step", 1), ("step", 2), ("checkpoint", 2), ("step", 3), ("record", 3), ("step", 4),
    ("checkpoint", 4), ("step", 5), ("step", 6), ("record", 6), ("checkpoint", 6), ("step", 7), ("record", 7),
    ("end", 7),
]  # fmt: skip


class Log:
    """An observer's state as a user would write it: an object whose methods note the events."""

    def __init__(self) -> None:
        self.events: list[Event] = []
        self.losses: list[float] = []

    def note_step(self, step: int, loss: float) -> None:
        self.events.append(("step", step))
        self.losses.append(loss)

    def observer(self) -> Observer:
        return Observer(
            on_start=lambda run: self.events.append(("start", run.host.step)),
            on_step=self.note_step,
            on_record=lambda record: self.events.append(("record", record["step"])),
            on_checkpoint=lambda run: self.events.append(("checkpoint", run.host.step)),
            on_end=lambda run: self.events.append(("end", run.host.step)),
        )


def test_every_event_is_seen_in_order_and_the_references_have_none(tmp_path: Path) -> None:
    log, other = Log(), Log()
    models: list[str] = []

    def display(name: str, first: int, last: int) -> Observer:
        models.append(name)
        return Observer()

    result = gossamer.train(
        make_case(n=40).graph,
        out=tmp_path / "run",
        observers=[log.observer(), other.observer()],
        display=display,
        **OPTIONS,
    )
    assert result.complete
    assert log.events == other.events == EVENTS
    evaluated = {record["step"]: record["train"]["loss"] for record in result.run.history}
    assert log.losses[0::3] == pytest.approx([evaluated[step] for step in (0, 3, 6)])  # of the weights before the step
    assert models == ["distributed", "centralised", "graphless"]


def test_an_observer_does_not_change_the_numbers() -> None:
    graph = make_case(n=40).graph
    plain, watched = (
        gossamer.train(graph, observers=observers, baselines=False, **OPTIONS).run.host.params
        for observers in ([], [Log().observer()])
    )
    assert all(torch.equal(plain[name], watched[name]) for name in plain)


def test_a_stop_is_an_end_and_a_resumption_sees_the_rest(tmp_path: Path) -> None:
    graph, log = make_case(n=40).graph, Log()
    stop = iter([False, False, False, True]).__next__
    stopped = gossamer.train(graph, out=tmp_path / "run", observers=[log.observer()], should_stop=stop, **OPTIONS)
    assert not stopped.complete
    assert log.events == [*EVENTS[:7], ("end", 3)]
    rest = Log()
    assert gossamer.resume(tmp_path / "run", graph=graph, observers=[rest.observer()]).complete
    assert rest.events == [("start", 3), *EVENTS[7:]]


@pytest.mark.parametrize("event", ["on_step", "on_record", "on_checkpoint", "on_end"])
def test_an_error_ends_the_run_and_leaves_its_directory_whole(event: str, tmp_path: Path) -> None:
    graph, log = make_case(n=40).graph, Log()
    options = {**OPTIONS, "baselines": False}
    expected = gossamer.train(graph, **options).run

    def fail(*_: Any) -> None:
        reached = log.events[-1][1]
        if reached >= 4:
            raise ZeroDivisionError(f"at {reached}")

    broken = Observer(**{event: fail})
    with pytest.raises(ZeroDivisionError, match=r"at [4-7]"):
        gossamer.train(graph, out=tmp_path / "run", observers=[log.observer(), broken], **options)
    assert read_manifest(tmp_path / "run").complete is False
    again = gossamer.resume(tmp_path / "run", graph=graph).run
    assert again.history == expected.history
    assert all(torch.equal(part, expected.host.params[name]) for name, part in again.host.params.items())


def test_checkpoints_and_weights_are_on_disk_before_other_observers_are_called(tmp_path: Path) -> None:
    found: list[Event] = []

    def look(run: Any) -> None:
        names = ("checkpoint.safetensors", "weights.safetensors")
        found.append((run.host.step, *((tmp_path / "run" / name).exists() for name in names)))

    watch = Observer(on_checkpoint=look, on_end=look)
    gossamer.train(make_case(n=40).graph, out=tmp_path / "run", observers=[watch], baselines=False, **OPTIONS)
    assert found == [(2, True, False), (4, True, False), (6, True, False), (7, True, True)]
