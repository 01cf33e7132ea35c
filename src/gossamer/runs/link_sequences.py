"""Topologies whose links change from step to step (topology/sequences.py), by the settings.

The written forms are read without NumPy: settings are checked before anything heavy is imported.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gossamer.choices import SEQUENCE_FORMS, TOPOLOGY_NAMES
from gossamer.errors import FileError, GossamerError, naming, shown

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from gossamer.runs.settings import Settings
    from gossamer.topology import LinkSequence

ONE_PEER, MATCHINGS, FAILING, SWITCHING = "one-peer", "matchings", "failing", "switching"
MOST_LINKS = 1 << 28  # entries of the links of a file, [steps, m, m]


@dataclass(frozen=True)
class SequenceChoice:
    """A written form of `--topology` for links that change."""

    kind: str
    base: str  # topology of the links that boundary rows take, or that may fail; of a file's links "needed"
    probability: float = 0.0  # of a link to be down
    file: str = ""


def parse_sequence(text: str) -> SequenceChoice | None:
    """The sequence that `one-peer`, `matchings`, `failing:P[,TOPOLOGY]` or `switching:FILE` stands for; None for other
    topologies."""
    kind, colon, rest = text.partition(":")
    if kind in (ONE_PEER, MATCHINGS) and not colon:
        return SequenceChoice(kind, "needed")
    if kind == SWITCHING and rest:
        return SequenceChoice(kind, "needed", file=rest)
    if kind == FAILING and colon:
        number, _, base = rest.partition(",")
        base = base or "admm"
        if base not in TOPOLOGY_NAMES.names:
            raise GossamerError(f"expected a topology among {', '.join(TOPOLOGY_NAMES.names)}, got {shown(base)}")
        return SequenceChoice(kind, base, _parse_probability(number))
    if kind in (ONE_PEER, MATCHINGS, FAILING, SWITCHING):
        raise GossamerError(f"expected {', '.join(SEQUENCE_FORMS.names)}, got {shown(text)}")
    return None


def find_base(topology: str) -> str:
    """Name of the topology itself, or of that which a sequence is made of."""
    choice = parse_sequence(topology)
    return topology if choice is None else choice.base


def require_fixed_links(settings: "Settings", who: str) -> None:
    """Refuse links that change, which only agents in one process know of each other."""
    if parse_sequence(settings.topology) is not None:
        raise GossamerError(
            f"{who} have links that stay, and those of --topology {settings.topology} change from step to step: they "
            "are simulated by gossamer train alone; choose another topology"
        )


def make_partners(choice: SequenceChoice, m: int, seed: int) -> "LinkSequence":
    """The sequence of consensus partners of m agents."""
    from gossamer.topology import Matchings, OnePeer

    return OnePeer(m) if choice.kind == ONE_PEER else Matchings(m, seed)


def read_switching(path: Path, m: int) -> "NDArray[np.bool_]":
    """Links by step [T, m, m] of a CSV file with the columns step,agent,neighbour or a .npy array."""
    import numpy as np

    from gossamer.data.arrays import read_array

    if path.suffix == ".npy":
        try:
            found = np.asarray(read_array(path))
        except FileError as error:
            raise GossamerError(f"{error}; expected links by step, [steps, {m}, {m}]") from None
        if found.ndim != 3 or found.shape[1:] != (m, m) or not len(found) or found.dtype.kind not in "biuf":
            raise GossamerError(
                f"{path}: expected links by step, [steps, {m}, {m}], got {list(found.shape)} of {found.dtype}"
            )
        if not np.isin(found, (0, 1)).all():
            raise GossamerError(f"{path}: expected 1 where two agents have a link in a step, and 0 elsewhere")
        steps = found.astype(bool)
    else:
        steps = _read_rows(path, m)
    with naming(path):
        _check_steps(steps)
    return steps


def _read_rows(path: Path, m: int) -> "NDArray[np.bool_]":
    import numpy as np

    from gossamer.data.rows import parse_whole_number, read_named_rows

    expected = f"rows step,agent,neighbour with steps from 0 on and agents below {m}"
    rows: list[tuple[int, int, int]] = []
    for line, cells in read_named_rows(path, ("step", "agent", "neighbour"), expected):
        try:
            step, k, z = map(parse_whole_number, cells)
        except ValueError:
            raise GossamerError(f"{path}, line {line}: expected {expected}, got {shown(','.join(cells))}") from None
        if step < 0 or not (0 <= k < m and 0 <= z < m) or k == z or (step + 1) * m * m > MOST_LINKS:
            raise GossamerError(f"{path}, line {line}: expected {expected}, got {shown(','.join(cells))}")
        rows.append((step, k, z))
    if not rows:
        raise GossamerError(f"{path} holds no link; expected {expected}")
    step, k, z = np.array(rows).T
    found = np.zeros((int(step.max()) + 1, m, m), dtype=bool)
    found[step, k, z] = found[step, z, k] = True
    return found


def _check_steps(steps: "NDArray[np.bool_]") -> None:
    one_way: Any = steps != steps.transpose(0, 2, 1)
    if one_way.any():
        step, k, z = _first(one_way)
        raise GossamerError(f"links go both ways: that of agents {k} and {z} in step {step} goes one way alone")
    if steps.diagonal(axis1=1, axis2=2).any():
        raise GossamerError("links join no agent to itself")


def _first(mask: Any) -> Sequence[int]:
    import numpy as np

    found: list[int] = np.argwhere(mask)[0].tolist()
    return found


def _parse_probability(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0.0 <= value < 1.0:
        raise GossamerError(
            f"expected failing:P with a probability of at least 0 and below 1, as in failing:0.1, got {shown(text)}"
        )
    return value
