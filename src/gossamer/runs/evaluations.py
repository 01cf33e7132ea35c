"""The file of a run's evaluations, metrics.jsonl: a line for each, appended when it is made."""

from collections.abc import Sequence
from pathlib import Path

from gossamer.files import write_atomically
from gossamer.runs.documents import to_json
from gossamer.runs.records import Record


def append_evaluation(path: Path, record: Record) -> None:
    """Append a line; one that a kill cuts off is ignored by readers and rewritten by the next `write_evaluations`."""
    with path.open("ab") as file:
        file.write(to_json(record).encode() + b"\n")


def write_evaluations(path: Path, history: Sequence[Record]) -> None:
    """Write all lines, whole or not at all."""
    write_atomically(path, "".join(to_json(record) + "\n" for record in history).encode())
