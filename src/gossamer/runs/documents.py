"""JSON files that Gossamer reads back: bounded in size and nesting, and validated by a typed model before use."""

import json
import math
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NoReturn, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError

from gossamer.errors import GossamerError, shown
from gossamer.files import read_bytes

FORMAT = 1  # version of all formats that Gossamer writes, but for the manifests of shards
MAX_JSON_BYTES = 1 << 28  # of a file
MAX_NESTING = 32  # lists and objects within each other


class Document(BaseModel):
    """A JSON object of Gossamer, or a part of one: unknown keys and values of another type are errors."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, allow_inf_nan=False)


Model = TypeVar("Model", bound=Document)


def read_json(path: Path, most: int = MAX_JSON_BYTES) -> Any:
    """Read a JSON file. An OSError means that it cannot be read, a GossamerError that it is not valid."""
    return parse_json(read_bytes(path, most), str(path))


def parse_json(text: bytes, source: str) -> Any:
    """Parse JSON. Refuse NaN and Infinity, which Python's parser would accept, and nesting deeper than MAX_NESTING."""
    try:
        content = json.loads(text.decode(), parse_constant=_refuse_constant)
    except (ValueError, RecursionError) as error:
        raise GossamerError(f"{source} is not valid JSON: {error}") from None
    level = [content]
    for _ in range(MAX_NESTING):
        level = [part for value in level for part in _nested_containers(value)]
        if not level:
            return content
    raise GossamerError(f"{source} is nested more than {MAX_NESTING} levels deep")


def read_lines(path: Path) -> Iterator[tuple[str, Any]]:
    """JSON values of a file with one on every line, each with the file's name and line number.

    A last line without an end is left out: its writer was killed.
    """
    try:
        content = read_bytes(path, MAX_JSON_BYTES)
    except OSError as error:
        raise GossamerError(f"cannot read {path}: {error}") from None
    for number, line in enumerate(content[: content.rfind(b"\n") + 1].split(b"\n"), 1):
        if line.strip():
            source = f"{path}, line {number}"
            yield source, parse_json(line, source)


def check_format(content: Any, path: Path, expected: int = FORMAT) -> None:
    """Refuse a file of another format version."""
    version = content.get("format") if isinstance(content, dict) else None
    if version != expected or isinstance(version, bool):  # True == 1
        raise GossamerError(
            f"{path} should have the format version {expected}, found {shown(version)}; it was written by another "
            "version of Gossamer"
        )


def validate(model: type[Model], content: Any, source: str, remedy: str = "") -> Model:
    """Return the content as a value of the model, or raise an error that names the first key that does not fit."""
    end = f"; {remedy}" if remedy else ""
    if not isinstance(content, dict):
        raise GossamerError(f"{source} should hold an object, found {shown(content)}{end}")
    try:
        return model.model_validate(content)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        key = ".".join(shown(part).strip("'\"") for part in first["loc"])
        if first["type"] == "missing":
            raise GossamerError(f"{source} is damaged: it has no {key}{end}") from None
        if first["type"] == "extra_forbidden":
            raise GossamerError(f"{source} is damaged: unknown key {key}{end}") from None
        problem = first["msg"].removeprefix("Value error, ")
        raise GossamerError(f"{source}: {key}: {problem}, found {shown(first['input'])}{end}") from None


def _nested_containers(value: Any) -> list[Any]:
    inside = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return [part for part in inside if isinstance(part, (dict, list))]


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not a JSON number")


def to_json(content: Any, indent: int | None = None) -> str:
    """JSON that every reader takes: a number that is not finite, such as the score on an empty mask, becomes null."""

    def finite(value: Any) -> Any:
        if isinstance(value, Mapping):
            return {name: finite(part) for name, part in value.items()}
        if isinstance(value, (list, tuple)):
            return [finite(part) for part in value]
        return None if isinstance(value, float) and not math.isfinite(value) else value

    return json.dumps(finite(content), indent=indent, allow_nan=False)
