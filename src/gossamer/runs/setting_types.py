"""Types of single settings, with their spellings and bounds."""

from typing import Annotated, Any

from pydantic import AfterValidator, BeforeValidator, Field

from gossamer.errors import GossamerError

MOST_WIDTH, MOST_LAYERS = 1 << 20, 64  # of the hidden layers


def _split_widths(value: Any) -> Any:
    """Accept 64, "64,32" and [64, 32]."""
    if isinstance(value, int):
        return (value,)
    if isinstance(value, str):
        return tuple(part for part in value.replace(" ", "").split(",") if part)
    return value


def _check_one_line(value: Any) -> Any:
    if value is not None and not value.isprintable():
        raise ValueError("expected text without control characters")
    return value


def _check_compression(value: str) -> str:
    from gossamer.agents.consensus import parse_method

    try:
        parse_method(value)
    except GossamerError as error:
        raise ValueError(str(error)) from None
    return value


Text = Annotated[str, Field(max_length=4000), AfterValidator(_check_one_line)]  # a name or a path
OptionalText = Annotated[str | None, Field(max_length=4000), AfterValidator(_check_one_line)]
Width = Annotated[int, Field(ge=1, le=MOST_WIDTH)]
Widths = Annotated[tuple[Width, ...], BeforeValidator(_split_widths), Field(max_length=MOST_LAYERS)]
Compression = Annotated[str, Field(max_length=100), AfterValidator(_check_compression)]
