"""The evaluation log of an agent, evaluations.jsonl: a line for each evaluation, appended as they come."""

import math
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from gossamer.agents.scores import Scores, compute_scores
from gossamer.agents.share import MASKS
from gossamer.data.tasks import Task
from gossamer.errors import GossamerError
from gossamer.files import PRIVATE, read_bytes, wait_for_descriptor, write_atomically
from gossamer.peers.evaluation import PeerEvaluation
from gossamer.peers.shards.manifests import AgentEvaluation
from gossamer.runs.documents import MAX_JSON_BYTES, parse_json, to_json, validate
from gossamer.runs.evaluations import null_is_nan

# step, and for each mask the sums of agents/scores.py; as far as they are known also `network`, the scores of all
# agents on each mask, `best_step`, `disagreement` and `stationarity`
AgentMetrics = dict[str, Any]


MEASURES = ("disagreement", "stationarity")


class EvaluationLog:
    """The file that an agent appends to. An evaluation that a rollback repeats is written again."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.last: AgentMetrics | None = None
        if path.is_file():
            known = read_evaluation_log(path)
            self.last = known[-1] if known else None
            with path.open("r+b") as file:  # the next line must not be joined to one that a crash has cut off
                file.truncate(file.read().rfind(b"\n") + 1)

    def begin_with(self, source: Path, before: int) -> None:
        """Begin anew with the evaluations of an earlier membership, in its log, before a step."""
        known = read_evaluation_log(source) if source.is_file() else []
        kept = [one for one in known if one["step"] < before]
        write_atomically(self.path, "".join(f"{to_json(one)}\n" for one in kept).encode(), PRIVATE)
        self.last = kept[-1] if kept else None

    def add(self, evaluation: PeerEvaluation) -> None:
        """Append an evaluation and flush it to the disk: training that resumes after this step does not repeat it."""
        sums = {name: list(map(_shorten, part.tolist())) for name, part in evaluation.own.items()}
        self.last = {"step": evaluation.step, **sums}
        if evaluation.whole is not None:
            self.last["network"] = evaluation.whole
        if evaluation.best_step is not None:
            self.last["best_step"] = evaluation.best_step
        for name in MEASURES:
            if not math.isnan(getattr(evaluation, name)):
                self.last[name] = getattr(evaluation, name)
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND
        with os.fdopen(wait_for_descriptor(lambda: os.open(self.path, flags, PRIVATE)), "ab") as file:
            file.write(to_json(self.last).encode() + b"\n")
            file.flush()
            os.fsync(file.fileno())


def read_evaluation_log(path: Path) -> list[AgentMetrics]:
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
        known = stored.model_dump(include={"network", "best_step", *MEASURES}, exclude_none=True)
        by_step[stored.step] |= null_is_nan(known)
    return [by_step[step] for step in sorted(by_step)]


def score_agents(parts: Iterable[AgentMetrics], task: Task, width: int, scale: Tensor | None = None) -> Scores:
    """Scores from the sums of some agents, for a network with so many outputs and targets divided by `scale`."""
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
