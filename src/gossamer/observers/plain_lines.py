"""Progress as lines of text with time stamps, for output that goes to a file or a pipe."""

import math
import time
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from gossamer.runs.observers import Observer
from gossamer.runs.records import Record

if TYPE_CHECKING:
    from gossamer.agents.scores import Scores
    from gossamer.peers.evaluation_log import AgentMetrics

WriteLine = Callable[[str], object]


def make_line_display(write: WriteLine) -> Callable[[str, int, int], Observer]:
    """A display, as `gossamer.train` takes it, that writes a line for each evaluation of each model."""

    def display(model: str, first: int, last: int) -> Observer:
        return Observer(on_record=lambda record: write(_stamp(f"{model}: {describe_record(record, last)}")))

    return display


def describe_record(record: Record, last: int) -> str:
    """Step, training loss and validation score of an evaluation, as text."""
    held_out = f"validation {record['score']} {record['validation'][record['score']]:.4f}"
    return f"step {record['step']} of {last}, loss {record['train']['loss']:.4f}, {held_out}"


def make_event_writer(write: WriteLine) -> Callable[[str], None]:
    """A function that writes what has happened, with the time."""

    def follow(text: str) -> None:
        for line in text.splitlines():
            write(_stamp(line))

    return follow


def make_report_writer(
    write: WriteLine, num_agents: int, last: int, score: str, measure: "Callable[[Sequence[AgentMetrics]], Scores]"
) -> Callable[..., None]:
    """A function that follows the reports of agents' processes and writes a line when all have evaluated again.

    `measure` makes scores of the agents' sums; where agents leave and join, the function is given how many there are.
    The loss and the score are those of each agent's last evaluation; some agents may be a few steps ahead.
    """
    written = -1

    def follow(reports: Mapping[int, Mapping[str, Any]], present: int = num_agents) -> None:
        nonlocal written
        found = [report["metrics"] for report in reports.values() if report["metrics"]]
        step = min((metrics["step"] for metrics in found), default=-1)
        if len(found) < present or step <= written:
            return
        written = step
        scores = measure(found)
        loss, held_out = scores["train"]["loss"], scores["validation"][score]
        text = f"{present} agents: step {step} of {last}"
        text += "" if math.isnan(loss) else f", loss {loss:.4f}"
        write(_stamp(text + ("" if math.isnan(held_out) else f", validation {score} {held_out:.4f}")))

    return follow


def _stamp(text: str) -> str:
    return f"{time.strftime('%Y-%m-%d %H:%M:%S')} {text}"
