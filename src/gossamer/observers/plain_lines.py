"""Progress as lines of text with time stamps, for output that goes to a file or a pipe."""

import time
from collections.abc import Callable, Mapping
from typing import Any

from gossamer.runs.observers import Observer
from gossamer.runs.records import Record

WriteLine = Callable[[str], object]


def make_line_display(write: WriteLine) -> Callable[[str, int, int], Observer]:
    """A display, as `gossamer.train` takes it, that writes a line for each evaluation of each model."""

    def display(model: str, first: int, last: int) -> Observer:
        return Observer(on_record=lambda record: write(_stamp(f"{model}: {describe_record(record, last)}")))

    return display


def describe_record(record: Record, last: int) -> str:
    """Step, training loss and validation score of an evaluation, as text."""
    held_out = {name: value for name, value in record["validation"].items() if name != "loss"}
    scores = "".join(f", validation {name} {value:.4f}" for name, value in held_out.items())
    return f"step {record['step']} of {last}, loss {record['train']['loss']:.4f}{scores}"


def make_report_writer(write: WriteLine, num_agents: int, last: int, score: str) -> Callable[..., None]:
    """A function that follows the reports of agents' processes and writes a line when all have evaluated again.

    The loss and the score are those of each agent's last evaluation; some agents may be a few steps ahead.
    """
    written = -1

    def follow(reports: Mapping[int, Mapping[str, Any]]) -> None:
        nonlocal written
        found = [report["metrics"] for report in reports.values() if report["metrics"]]
        step = min((metrics["step"] for metrics in found), default=-1)
        if len(found) < num_agents or step <= written:
            return
        written = step
        loss, _, labelled = map(sum, zip(*(metrics["train"] for metrics in found), strict=True))
        _, hits, held = map(sum, zip(*(metrics["validation"] for metrics in found), strict=True))
        text = f"{num_agents} agents: step {step} of {last}"
        text += f", loss {loss / labelled:.4f}" if labelled else ""
        write(_stamp(text + (f", validation {score} {hits / held:.4f}" if held else "")))

    return follow


def _stamp(text: str) -> str:
    return f"{time.strftime('%Y-%m-%d %H:%M:%S')} {text}"
