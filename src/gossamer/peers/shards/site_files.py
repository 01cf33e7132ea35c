"""Site files as users write them: the keys of a site.toml, checked before anything is computed from them."""

import re
from pathlib import Path
from typing import Annotated, Any

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError
from pydantic_core import ErrorDetails

from gossamer.data.rows import SHARE, read_matrix
from gossamer.data.tasks import Task, infer_stored_task
from gossamer.errors import FileError, GossamerError, one_line, shown
from gossamer.files import read_text
from gossamer.machine import available_memory
from gossamer.runs.toml_files import read_toml

MAX_CLASSES = 1 << 16
MAX_CLASS_NAME = 100  # characters
MAX_ENTRY_BYTES = 160  # for an entry of C in a topology.json, and for the links that belong to it
MAX_OTHER_BYTES = 1 << 20  # for all else in it


def _read_classes(given: Any) -> list[str]:
    """Names of the classes, from the names or from their number."""
    if isinstance(given, bool) or not isinstance(given, int | list):
        raise ValueError(f"must be a whole number or a list, got {shown(given)}")
    many = given if isinstance(given, int) else len(given)
    if not 1 <= many <= MAX_CLASSES:
        raise ValueError(f"must be 2 to {MAX_CLASSES} names, of labels at least 1, or their number, got {shown(many)}")
    if isinstance(given, int):
        return [str(c) for c in range(given)]
    wrong = [name for name in given if not isinstance(name, str | int | float) or len(shown(name)) > MAX_CLASS_NAME]
    if wrong:
        raise ValueError(f"must be short names, got {shown(wrong[0])}")
    names = [str(name) for name in given]
    if len(set(names)) < len(names):
        raise ValueError(f"must have different names, got {shown(given)}")
    return names


Address = Annotated[str, Field(max_length=300)]
FilePath = Annotated[str, Field(pattern=r"^[^\x00-\x1f\x7f]{1,4000}$")]


class SiteFile(BaseModel):
    """The keys of a site file; the descriptions are for error messages."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    run: str = Field(pattern=r"^[A-Za-z0-9._-]{1,64}$", description="up to 64 letters, digits, dots or dashes")
    agent: int = Field(description="a whole number")
    address: Address = Field(description="text, host:port")
    data: FilePath = Field(description="text, the path of a folder of tables or of an .npz file")
    neighbours: dict[str, Any] = Field(description="a table")
    settings: dict[str, Any] = Field(description="a table")
    secret: FilePath | None = Field(None, description="text, the path of a secret key")
    classes: Annotated[list[str] | None, BeforeValidator(_read_classes)] = None
    task: Task | None = Field(None, description="multiclass, multilabel or regression")
    combination: FilePath | None = Field(None, description="text, the path of a topology.json or a CSV file with C")
    members: dict[str, Any] = Field(default_factory=dict, description="a table")


class Neighbour(BaseModel):
    """An entry of the table of neighbours."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    address: Address
    key: str | None = Field(None, max_length=100)


class TopologyFile(BaseModel):
    """The part of a topology.json that a site needs."""

    model_config = ConfigDict(extra="ignore", frozen=True)

    combination: list[list[float]]
    sequence: Any = None  # of links that change


def read_site_file(path: Path) -> SiteFile:
    """The keys of a site file; the first that does not fit is named."""
    given = read_toml(path)
    try:
        found = SiteFile.model_validate(given)
    except ValidationError as error:
        problems = error.errors(include_url=False, include_context=False)
        first = min(problems, key=lambda problem: problem["type"] != "missing")
        raise GossamerError(_describe_problem(path, first)) from None
    _check_task(path, found)
    return found


def _check_task(path: Path, site: SiteFile) -> None:
    """Require classes where the task has any, at least two unless a vertex may have several labels or none."""
    task = infer_stored_task(site.task, site.classes)
    if (task == "regression") != (site.classes is None):
        raise GossamerError(f"{path}: the task {task} {'has no' if site.classes else 'needs'} classes")
    if task == "multiclass" and len(site.classes or ()) < 2:
        raise GossamerError(
            f"{path}: classes must be 2 to {MAX_CLASSES} names or their number, got 1; one label "
            'may do, with task = "multilabel"'
        )
    if "task" in site.settings:
        raise GossamerError(f"{path}: task stands beside classes, not among the settings")


def _describe_problem(path: Path, problem: ErrorDetails) -> str:
    name = str(problem["loc"][0])
    if problem["type"] == "missing":
        needed = [field for field, info in SiteFile.model_fields.items() if info.is_required()]
        return f"{path} has no {name}; a site file needs {', '.join(needed)}"
    if problem["type"] == "extra_forbidden":
        return f"{path}: unknown key {shown(name)}; known: {', '.join(SiteFile.model_fields)}"
    if problem["type"] == "value_error":
        return f"{path}: {name} {problem['msg'].removeprefix('Value error, ')}"
    return f"{path}: {name} must be {SiteFile.model_fields[name].description}, got {shown(problem['input'])}"


def read_neighbours(path: Path, table: dict[str, Any], agent: int, m: int) -> dict[int, Neighbour]:
    """The entries of the table of neighbours by number, ascending."""
    found = {}
    for name, entry in table.items():
        if not _is_agent(name, m) or int(name) == agent:
            raise GossamerError(
                f"{path}: neighbours are numbered 0 to {m - 1} without {agent} itself, got {shown(name)}"
            )
        try:
            found[int(name)] = Neighbour.model_validate(entry)
        except ValidationError:
            raise GossamerError(
                f'{path}: neighbour {name} must be {{ address = "host:port", key = "..." }}, got {shown(entry)}'
            ) from None
    if not found and m > 1:
        raise GossamerError(f"{path} names no neighbour, so this site could train with nobody")
    return dict(sorted(found.items()))


def read_members(path: Path, table: dict[str, Any], m: int) -> dict[int, Any]:
    """The entries of the table of members by number."""
    wrong = [name for name in table if not _is_agent(name, m)]
    if wrong:
        raise GossamerError(f"{path}: members are numbered 0 to {m - 1}, got {shown(wrong[0])}")
    return {int(name): entry for name, entry in table.items()}


def _is_agent(name: str, m: int) -> bool:
    return bool(re.fullmatch("0|[1-9][0-9]{0,8}", name)) and int(name) < m


def read_combination(path: Path, m: int) -> NDArray[np.float64]:
    """C, or a row of it, from the topology.json of `gossamer topology` or a CSV file."""
    try:
        if path.suffix != ".json":
            return read_matrix(path)
        most = min(MAX_OTHER_BYTES + MAX_ENTRY_BYTES * m**2, available_memory() // SHARE)
        found = TopologyFile.model_validate_json(read_text(path, most))
        if found.sequence is None:
            return np.array(found.combination, dtype=np.float64)
        reason = "its links change from step to step, and those of sites stay"
    except FileError as error:
        reason = error.reason
    except ValidationError as error:
        problem = error.errors(include_url=False, include_context=False, include_input=False)[0]
        reason = f"{'.'.join(map(str, problem['loc']))}: {one_line(ValueError(problem['msg']))}".lstrip(": ")
    except ValueError:
        reason = "combination: expected rows of equal length"
    raise GossamerError(f"cannot read C from {path}: {reason}")
