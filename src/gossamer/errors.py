"""Errors and warnings for faults of a user's input, not of the program."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

MAX_SHOWN = 120  # characters of a value in a message


class GossamerError(ValueError):
    """A mistake in the input: the message has what was expected, what was found and the remedy."""


class FileError(GossamerError):
    """A file that cannot be read; `reason` is the message without the file's name."""

    def __init__(self, path: Any, reason: str) -> None:
        super().__init__(f"cannot read {path}: {reason}")
        self.reason = reason


class VertexError(GossamerError):
    """A mistake at some vertices, for which `template` has a {} each."""

    def __init__(self, template: str, *vertices: int) -> None:
        super().__init__(template.format(*vertices))
        self.template, self.vertices = template, vertices


class DivergedError(GossamerError):
    """Divergence of a training; `found` describes the numbers."""

    def __init__(self, found: str) -> None:
        super().__init__(f"{found}: the run has diverged; try a smaller --step-size")
        self.found = found


class GossamerWarning(UserWarning):
    """Input that is legal but probably not what the user meant."""


def shown(value: Any) -> str:
    """A value of any size as a piece of one line."""
    if isinstance(value, str | bytes | list | tuple) and len(value) > MAX_SHOWN:
        value = value[:MAX_SHOWN]  # its representation would be as long
    try:
        text = repr(value)
    except (ValueError, RecursionError):  # digits beyond what Python prints
        return "a number of thousands of digits" if isinstance(value, int) else "a value too large to show"
    return text if len(text) <= MAX_SHOWN else f"{text[:MAX_SHOWN]}..."


def one_line(error: Exception) -> str:
    """Another library's message as a piece of one line."""
    text = " ".join(str(error).split())
    return text if len(text) <= 2 * MAX_SHOWN else f"{text[: 2 * MAX_SHOWN]}..."


@contextmanager
def naming(source: Any) -> Iterator[None]:
    """Put the name of a file before the message of a mistake found in it, where that does not have it."""
    try:
        yield
    except GossamerError as error:
        if str(source) in str(error):
            raise
        raise GossamerError(f"{source}: {error}") from None


@contextmanager
def naming_vertices(names: Sequence[str] | None) -> Iterator[None]:
    """Name the vertices of a mistake as the user does, where they have names."""
    try:
        yield
    except VertexError as error:
        if names is None or any(i >= len(names) for i in error.vertices):
            raise
        raise GossamerError(error.template.format(*(shown(names[i]) for i in error.vertices))) from None
