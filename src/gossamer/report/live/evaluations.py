"""Evaluations as pages and metrics show them, from a run's records and from agents' own logs."""

import json
import math
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Generic, TypeVar

from gossamer.report.live.view import EvaluationView

REFERENCE_NAMES = {"graphless": "graph-less"}
BASIC = ("accuracy", "mse")  # scores that evaluations of older versions have been validated on


def view_evaluation(record: Mapping[str, Any]) -> EvaluationView:
    """An evaluation of the run's network, with the score that it is validated on."""
    score = record.get("score") or next(name for name in BASIC if name in record["train"])
    return _view_scores(record, record, score)


def view_logged(metrics: Mapping[str, Any], score: str) -> EvaluationView:
    """The whole network's evaluation, as far as an agent knows it (peers/evaluation_log.py)."""
    network = metrics.get("network") or {}
    return _view_scores(metrics, {mask: network.get(mask) or {} for mask in ("train", "validation", "test")}, score)


def name_activity(reference: str) -> str:
    """The activity of a run whose reference is being trained."""
    return f"training the {REFERENCE_NAMES.get(reference, reference)} reference"


def _view_scores(about: Mapping[str, Any], scores: Mapping[str, Mapping[str, Any]], score: str) -> EvaluationView:
    return {
        "step": int(about["step"]),
        "loss": _find(scores["train"], "loss"),
        "train": _find(scores["train"], score),
        "validation": _find(scores["validation"], score),
        "test": _find(scores["test"], score),
        "disagreement": _find(about, "disagreement"),
    }


def _find(values: Mapping[str, Any], name: str) -> float | None:
    value = values.get(name)
    return None if value is None or not math.isfinite(value) else float(value)


_One = TypeVar("_One", bound=Mapping[str, Any])


class EvaluationFile(Generic[_One]):
    """A file of evaluations that grows: each is read once. After a recovery or in a new file, it is read anew."""

    def __init__(self, view: Callable[[Mapping[str, Any]], _One]) -> None:
        """`view` makes of a line what is kept of it, with its `step`."""
        self._view = view
        self._path: Path | None = None
        self._inode, self._offset = 0, 0
        self.found: list[_One] = []  # ascending steps; grows at its end, or is another list

    def read(self, path: Path) -> list[_One]:
        """All evaluations of a file, without a last line that has not been written to its end."""
        try:
            about = path.stat()
            if (path, about.st_ino) != (self._path, self._inode) or about.st_size < self._offset:
                self._path, self._inode, self._offset, self.found = path, about.st_ino, 0, []
            if about.st_size == self._offset:
                return self.found
            with path.open("rb") as file:
                file.seek(self._offset)
                content = file.read()
        except OSError:
            return self.found
        whole = content[: content.rfind(b"\n") + 1]
        self._offset += len(whole)
        for line in whole.splitlines():
            self._add(line)
        return self.found

    def _add(self, line: bytes) -> None:
        try:
            one = self._view(json.loads(line))
        except (ValueError, KeyError, TypeError, AttributeError, StopIteration, OverflowError, RecursionError):
            return  # a damaged line: the program that reads the run says so
        if self.found and self.found[-1]["step"] >= one["step"]:  # made again after a recovery
            self.found = [known for known in self.found if known["step"] < one["step"]]
        self.found.append(one)
