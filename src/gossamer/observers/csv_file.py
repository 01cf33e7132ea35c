"""Evaluations as a CSV table that grows while the run goes on."""

import csv
from pathlib import Path

from gossamer.runs.observers import Observer
from gossamer.runs.records import Record, flatten_record


def make_csv_observer(path: str | Path) -> Observer:
    """An observer that writes a row for each evaluation, below the header `step,train/loss,...`.

    Its folder is made, and a file that is there overwritten, at the first evaluation. Numbers that are not finite are
    left empty.
    """
    target, columns = Path(path), list[str]()

    def write(record: Record) -> None:
        flat = {"step": record["step"], **flatten_record(record)}
        new = not columns
        target.parent.mkdir(parents=True, exist_ok=True)
        columns[:] = columns or flat
        with target.open("w" if new else "a", newline="") as file:
            table = csv.DictWriter(file, columns, lineterminator="\n", extrasaction="ignore")
            if new:
                table.writeheader()
            table.writerow({name: value if abs(value) < float("inf") else "" for name, value in flat.items()})

    return Observer(on_record=write)
