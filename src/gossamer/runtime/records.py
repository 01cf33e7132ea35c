"""An agent's own records of its evaluations, a line each, appended as they come."""

import json
import os
from pathlib import Path
from typing import Any

from gossamer.agents.measures import Sums
from gossamer.errors import GossamerError
from gossamer.runtime.directory import to_json

Record = dict[str, Any]


class Records:
    """The file that an agent appends to. An evaluation that a rollback repeats is written again."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.last: Record | None = None
        if path.is_file():
            known = read_records(path)
            self.last = known[-1] if known else None
            with path.open("r+b") as file:  # what comes next must not go on a line that a crash has torn
                file.truncate(file.read().rfind(b"\n") + 1)

    def add(self, step: int, sums: Sums) -> None:
        """On the disk before the training goes on: a checkpoint after this step does not bring it again."""
        self.last = {"step": step, **{name: part.tolist() for name, part in sums.items()}}
        with self.path.open("ab") as file:
            file.write(to_json(self.last).encode() + b"\n")
            file.flush()
            os.fsync(file.fileno())


def read_records(path: Path) -> list[Record]:
    """One record a step, by step; a last line without its end is no record."""
    whole = path.read_bytes()
    records: dict[int, Record] = {}
    try:
        for line in whole[: whole.rfind(b"\n") + 1].splitlines():
            record = json.loads(line)
            records[record["step"]] = record
    except (ValueError, KeyError, TypeError):
        raise GossamerError(
            f"cannot read {path}: line {line[:60]!r} is no record of an evaluation; remove the line"
        ) from None
    return [records[step] for step in sorted(records)]
