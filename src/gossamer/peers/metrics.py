"""The metrics log of an agent: its sums for each evaluation, a line of metrics.jsonl each, appended as they come."""

import math
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import torch

from gossamer.agents.scores import Scores, ScoreSums, Task, compute_scores
from gossamer.agents.share import MASKS
from gossamer.errors import GossamerError
from gossamer.files import PRIVATE, read_bytes, wait_for_descriptor
from gossamer.peers.shards.manifests import AgentEvaluation
from gossamer.runs.documents import MAX_JSON_BYTES, parse_json, to_json, validate

AgentMetrics = dict[str, Any]  # step, and for each mask the sums of agents/scores.py


class MetricsLog:
    """The file that an agent appends to. An evaluation that a rollback repeats is written again."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.last: AgentMetrics | None = None
        if path.is_file():
            known = read_metrics_log(path)
            self.last = known[-1] if known else None
            with path.open("r+b") as file:  # the next line must not be joined to one that a crash has cut off
                file.truncate(file.read().rfind(b"\n") + 1)

    def add(self, step: int, sums: ScoreSums) -> None:
        """Append an evaluation and flush it to the disk: training that resumes after this step does not repeat it."""
        self.last = {"step": step, **{name: list(map(_shorten, part.tolist())) for name, part in sums.items()}}
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND
        with os.fdopen(wait_for_descriptor(lambda: os.open(self.path, flags, PRIVATE)), "ab") as file:
            file.write(to_json(self.last).encode() + b"\n")
            file.flush()
            os.fsync(file.fileno())


def read_metrics_log(path: Path) -> list[AgentMetrics]:
    """The last evaluation of each step, ascending; a last line that is cut off is left out."""
    content = read_bytes(path, MAX_JSON_BYTES)
    by_step: dict[int, AgentMetrics] = {}
    for number, line in enumerate(content[: content.rfind(b"\n") + 1].splitlines(), 1):
        source = f"{path}, line {number}"
        try:
            stored = validate(AgentEvaluation, parse_json(line, source), source)
        except GossamerError as error:
            raise GossamerError(f"{error}; remove the line, or finish the run with the version that wrote it") from None
        sums = {name: [math.nan if s is None else s for s in getattr(stored, name)] for name in MASKS}
        by_step[stored.step] = {"step": stored.step, **sums}
    return [by_step[step] for step in sorted(by_step)]


def score_agents(parts: Iterable[AgentMetrics], task: Task, width: int, scale: torch.Tensor | None = None) -> Scores:
    """Scores from the sums of some agents; the rest is as for compute_scores."""
    return compute_scores(
        [
            {
                name: torch.tensor([math.nan if s is None else s for s in part[name]], dtype=torch.float64)
                for name in MASKS
            }
            for part in parts
        ],
        task,
        width,
        scale,
    )


def _shorten(value: float) -> float:
    """A whole number without a point: most sums are counts."""
    return int(value) if value.is_integer() else value
