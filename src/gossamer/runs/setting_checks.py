"""Checks of settings: spellings that are taken, and what is refused with a ValueError."""

from typing import Any

from gossamer.errors import GossamerError


def split_widths(value: Any) -> Any:
    """Accept 64, "64,32" and [64, 32]."""
    if isinstance(value, int):
        return (value,)
    if isinstance(value, str):
        return tuple(part for part in value.replace(" ", "").split(",") if part)
    return value


def check_one_line(value: Any) -> Any:
    """Refuse control characters."""
    if value is not None and not value.isprintable():
        raise ValueError("expected text without control characters")
    return value


def check_compression(value: str) -> str:
    """Refuse what no consensus method understands."""
    from gossamer.agents.consensus import parse_method

    try:
        parse_method(value)
    except GossamerError as error:
        raise ValueError(str(error)) from None
    return value


def check_codecs(bits: int, codec: str) -> None:
    """Refuse two codecs of the boundary rows."""
    if bits and codec not in ("none", f"quantised-{bits}"):
        raise ValueError(
            f"boundary_bits = {bits} and boundary_codec = {codec!r} ask for two codecs of the same rows; give one of "
            "them"
        )


def check_patience(patience: int, keep: str) -> None:
    """Refuse to wait for a better score where none is followed."""
    if patience and keep != "best":
        raise ValueError(
            f"patience = {patience} counts steps from the best validation score, which keep = {keep!r} does not "
            "follow; take keep = 'best'"
        )
