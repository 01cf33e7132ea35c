"""Reader of untrusted CSV files and of matrices in text; every error names the file and the line.

A file may have a sixteenth of the available memory, because cells take more memory than their text, and a cell 131072
characters, the csv module's limit. Rows are yielded one by one.
"""

import csv
from array import array
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from gossamer.errors import FileError, GossamerError, one_line, shown
from gossamer.files import require_regular
from gossamer.machine import as_size, available_memory

SHARE = 16  # of the available memory, for a file
MAX_DIGITS = 18  # of a whole number, so that it fits in 64 bits
Row = tuple[int, list[str]]  # line number and cells


def read_rows(path: Path, columns: int) -> tuple[list[str], Iterator[Row]]:
    """Read the header, which must have at least `columns` cells, and the rows, each as long as the header."""
    cells = _cells(path)
    _, header = next(cells, (1, []))
    if len(header) < columns:
        raise GossamerError(f"{path} needs a header with at least {columns} columns, got {shown(header)}")
    return header, _require_width(path, len(header), cells)


def read_named_rows(path: Path, columns: Sequence[str], expected: str) -> Iterator[Row]:
    """Read the cells of the named columns, in this order; `expected` describes the rows in errors."""
    try:
        header, rows = read_rows(path, len(columns))
        missing = [name for name in columns if name not in header]
        if missing:
            raise GossamerError(f"{path} has no column {missing[0]}, its header is {shown(header)}")
        places = [header.index(name) for name in columns]
        for line, row in rows:
            yield line, [row[place] for place in places]
    except GossamerError as error:
        raise GossamerError(f"{error}; expected {expected}") from None


def parse_whole_number(cell: str) -> int:
    """Parse a whole number of at most 18 digits."""
    if len(cell) > MAX_DIGITS:
        raise ValueError(f"{shown(cell)} is no whole number of at most {MAX_DIGITS} digits")
    return int(cell)


def parse_numbers(path: Path, line: int, cells: list[str]) -> list[float]:
    """Parse the cells of a row as numbers."""
    try:
        return [float(cell) for cell in cells]
    except ValueError as error:
        raise GossamerError(f"{path}, line {line}: expected numbers: {one_line(error)}") from None


def read_matrix(path: Path) -> NDArray[np.float64]:
    """Read a matrix in text: a row a line, numbers separated by commas or blanks, comments after a #."""
    numbers, width, rows = array("d"), 0, 0
    for line, text in _lines(path):
        groups = text.partition("#")[0].strip().split(",")
        if groups == [""]:
            continue
        try:
            row = [float(cell) for group in groups for cell in (group.split() or [""])]
        except ValueError as error:
            raise FileError(path, f"it is not a matrix of numbers: line {line}: {one_line(error)}") from None
        if rows and len(row) != width:
            raise FileError(
                path, f"it is not a matrix of numbers: line {line} has {len(row)} of them, those before {width}"
            )
        width, rows = len(row), rows + 1
        numbers.extend(row)
    return np.array(numbers, dtype=np.float64).reshape(rows, max(width, 1))


def _require_width(path: Path, width: int, cells: Iterator[Row]) -> Iterator[Row]:
    for line, row in cells:
        if len(row) != width:
            raise GossamerError(f"{path}, line {line}: expected {width} cells as in the header, got {len(row)}")
        yield line, row


def _cells(path: Path) -> Iterator[Row]:
    """Yield the rows that are not empty, their cells stripped of blanks."""
    reader = csv.reader(text for _, text in _lines(path))
    try:
        for row in reader:
            if row:
                yield reader.line_num, [cell.strip() for cell in row]
    except csv.Error as error:
        raise GossamerError(f"cannot read {path}, line {reader.line_num}: {error}") from None


def _lines(path: Path) -> Iterator[tuple[int, str]]:
    """Yield the lines with their numbers and line ends."""
    try:
        require_regular(path)
        size, most = path.stat().st_size, available_memory() // SHARE
        if size > most:
            raise FileError(
                path,
                f"it has {as_size(size)}; a table may have {as_size(most)}, 1/{SHARE} of the memory that is available. "
                "An .npz file takes less",
            )
        with path.open(newline="", encoding="utf-8-sig") as file:
            line = 0
            for line, text in enumerate(file, 1):
                if "\0" in text:
                    raise GossamerError(f"cannot read {path}, line {line}: expected text, got a NUL byte")
                yield line, text
    except OSError as error:
        raise FileError(path, error.strerror or str(error)) from None
    except UnicodeDecodeError as error:
        where = _line_of_bad_text(path)
        raise GossamerError(f"cannot read {path}, line {where}: it is not UTF-8 text ({error.reason})") from None


def _line_of_bad_text(path: Path) -> int:
    with path.open("rb") as file:
        for line, content in enumerate(file, 1):
            try:
                content.decode()
            except UnicodeDecodeError:
                return line
    return 1
