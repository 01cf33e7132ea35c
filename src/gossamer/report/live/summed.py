"""Evaluations of a private run, whose agents know their own sums alone, where the folders of all agents are at hand."""

from collections.abc import Mapping, Sequence
from typing import Any

from gossamer.peers.evaluation_log import score_agents
from gossamer.report.live.agents import WatchedAgent
from gossamer.report.live.evaluations import EvaluationFile, view_evaluation
from gossamer.report.live.view import EvaluationView


class SummedEvaluations:
    """The scores of all agents' vertices, from the sums that each has logged."""

    def __init__(self, agents: Sequence[WatchedAgent]) -> None:
        self._agents = agents
        self._files = [EvaluationFile[Mapping[str, Any]](_keep) for _ in agents]
        self._found: list[EvaluationView] = []

    def read(self) -> list[EvaluationView]:
        """The evaluations that all agents have made."""
        logs = [file.read(one.evaluations) for file, one in zip(self._files, self._agents, strict=True)]
        whole = min(map(len, logs))
        last = len(self._found) - 1
        if last >= whole or (last >= 0 and logs[0][last]["step"] != self._found[last]["step"]):
            self._found = []  # after a recovery
        for parts in zip(*(log[len(self._found) : whole] for log in logs), strict=True):
            self._found.append(self._score(parts))
        return self._found

    def _score(self, parts: Sequence[Mapping[str, Any]]) -> EvaluationView:
        first = self._agents[0]
        scale = None if first.transform is None else first.transform.find_target_scale()
        scores = score_agents(map(dict, parts), first.task, first.num_outputs, scale)
        return view_evaluation({"step": parts[0]["step"], "score": first.score, **scores})


def _keep(metrics: Mapping[str, Any]) -> Mapping[str, Any]:
    return {"step": int(metrics["step"]), **{mask: metrics[mask] for mask in ("train", "validation", "test")}}
