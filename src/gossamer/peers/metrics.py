"""An agent's own records of its evaluations, a line each, appended as they come."""

import math
import os
from pathlib import Path
from typing import Any

from gossamer.agents.measures import Sums
from gossamer.agents.share import MASKS
from gossamer.errors import GossamerError
from gossamer.files import PRIVATE, patiently, read_bytes
from gossamer.peers.shards.manifests import AgentEvaluation
from gossamer.runs.documents import MOST_BYTES, checked, parse_json, to_json

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
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND
        with os.fdopen(patiently(lambda: os.open(self.path, flags, PRIVATE)), "ab") as file:
            file.write(to_json(self.last).encode() + b"\n")
            file.flush()
            os.fsync(file.fileno())


def read_records(path: Path) -> list[Record]:
    """One record a step, by step; a last line without its end is no record."""
    whole = read_bytes(path, MOST_BYTES)
    records: dict[int, Record] = {}
    for number, line in enumerate(whole[: whole.rfind(b"\n") + 1].splitlines(), 1):
        source = f"{path}, line {number}"
        try:
            record = checked(AgentEvaluation, parse_json(line, source), source)
        except GossamerError as error:
            raise GossamerError(f"{error}; remove the line") from None
        sums = {name: [math.nan if s is None else s for s in getattr(record, name)] for name in MASKS}
        records[record.step] = {"step": record.step, **sums}
    return [records[step] for step in sorted(records)]
