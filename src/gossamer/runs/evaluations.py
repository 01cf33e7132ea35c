"""The file of a run's evaluations, metrics.jsonl: a line is appended when one is made, and checked when it is read."""

import math
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

from gossamer.agents.share import MASKS
from gossamer.errors import GossamerError, shown
from gossamer.files import ALL_MAY_READ, write_atomically
from gossamer.runs.documents import read_lines, to_json, validate
from gossamer.runs.manifests import Evaluation
from gossamer.runs.records import Record


def append_evaluation(path: Path, record: Record) -> None:
    """Append a line; one that a kill cuts off is ignored by readers and rewritten by the next `write_evaluations`."""
    with path.open("ab") as file:
        file.write(to_json(record).encode() + b"\n")


def write_evaluations(path: Path, history: Sequence[Record], mode: int = ALL_MAY_READ) -> None:
    """Write all lines, whole or not at all."""
    write_atomically(path, "".join(to_json(record) + "\n" for record in history).encode(), mode)


def read_evaluations(path: Path, model: type[Evaluation], score: str | None = None) -> list[dict[str, Any]]:
    """Evaluations of a file, which must all have this score, and the one that they name as validated on."""
    records: list[dict[str, Any]] = []
    for source, content in read_lines(path):
        record = validate(model, content, source)
        usual = "accuracy" if "accuracy" in record.test.model_fields_set else "mse"  # that of older versions
        validated = record.score or usual
        for mask in MASKS:
            for name in (score or usual, validated):
                if name not in getattr(record, mask).model_fields_set:
                    raise GossamerError(f"{source}: {mask} has no {shown(name)}, which this run's evaluations have")
        records.append({**null_is_nan(content), "score": validated})
    return records


def check_order(history: Sequence[Record], source: str) -> None:
    """Require ascending steps."""
    if any(one["step"] >= other["step"] for one, other in pairwise(history)):
        raise GossamerError(f"{source}: the evaluations' steps should ascend")


def null_is_nan(content: dict[str, Any]) -> dict[str, Any]:
    """The content of a line, with NaN for numbers that were not finite."""
    return {
        name: math.nan if value is None else null_is_nan(value) if isinstance(value, dict) else value
        for name, value in content.items()
    }
