"""CSV tables: rows as mappings with the same columns."""

import csv
import io
from collections.abc import Mapping, Sequence
from pathlib import Path

from gossamer.files import write_atomically

Cell = str | float | None  # a whole number is a float to the type checker


def write_csv(path: Path, rows: Sequence[Mapping[str, Cell]]) -> None:
    """Write rows with the same columns below a header, whole or not at all."""
    text = io.StringIO()
    table = csv.DictWriter(text, list(rows[0]), lineterminator="\n")
    table.writeheader()
    table.writerows(rows)
    write_atomically(path, text.getvalue().encode())
