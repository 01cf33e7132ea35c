"""The one reader of TOML files that users write: settings and sites.

tomllib takes time in the square of a key's dots and a frame of the stack for each bracket, so both are bounded before
it sees the text, and so is the size of the file.
"""

import re
import tomllib
from pathlib import Path
from typing import Any

from gossamer.choices import ASSIGNMENT_NAMES, DATASET_NAMES
from gossamer.errors import GossamerError, one_line
from gossamer.files import read_text

MAX_TOML_BYTES = 1_000_000
MAX_DOTS = 8  # in a key
MAX_BRACKETS = 16  # inside each other
TOKENS = re.compile(
    r"""
      \#[^\n]*                                        # a comment
    | \"{3} (?: [^"\\] | \\. | \"{1,2}(?!\") )*+ \"{0,3}   # text in several lines; without an end, all that follows
    | '{3} (?: [^'] | '{1,2}(?!') )*+ '{0,3}
    | \" (?: [^"\\\n] | \\. )*+ \"?                   # text in one line
    | ' [^'\n]*+ '?
    | [\[\]{}=,.\n]
    """,
    re.VERBOSE | re.DOTALL,
)


def read_toml(path: Path) -> dict[str, Any]:
    """The tables of a file, unchecked but for their number and depth."""
    text = read_text(path, MAX_TOML_BYTES)
    _check_depth(path, text)
    try:
        return tomllib.loads(text)
    except (ValueError, RecursionError) as error:  # of TOML itself, or an integer of thousands of digits
        raise GossamerError(f"{path} is not valid TOML: {one_line(error)}") from None


def _check_depth(path: Path, text: str) -> None:
    """Refuse keys of many dots and many brackets inside each other, wherever they are not part of a text."""
    dots = brackets = 0
    for token in TOKENS.finditer(text):
        mark = token[0]
        if mark == ".":
            dots += 1
        elif mark in ("[", "]", "{", "}", "=", ",", "\n"):
            dots = 0
            brackets = max(0, brackets + (mark in "[{") - (mark in "]}"))
        if dots > MAX_DOTS or brackets > MAX_BRACKETS:
            line = text.count("\n", 0, token.start()) + 1
            what = f"{MAX_DOTS} dots in a key" if dots > MAX_DOTS else f"{MAX_BRACKETS} brackets inside each other"
            raise GossamerError(f"{path}, line {line}: expected at most {what}")


def read_settings(path: Path) -> dict[str, Any]:
    """The keys of a TOML settings file, unchecked. A dataset given as a path is relative to the file."""
    values = read_toml(path)
    for name in ("dataset", "assignment", "initial"):
        given = values.get(name)
        if given in (*DATASET_NAMES.names, *ASSIGNMENT_NAMES.names):
            continue
        if isinstance(given, str) and not Path(given).is_absolute() and _exists(path.parent / given):
            values[name] = str(path.parent / given)
    return values


def _exists(path: Path) -> bool:
    try:
        return path.exists()
    except OSError:  # a name too long for any file
        return False
