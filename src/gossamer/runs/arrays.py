"""Named arrays of a file, taken one by one and checked in type, shape and range."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from gossamer.errors import GossamerError

INTS, REALS = ("int32", "int64"), ("float32", "float64")
NUMBERS = (*REALS, "float16", "bool", "uint8", "uint16", "uint32", "uint64", "int8", "int16", *INTS)
INITIAL_PREFIX = "initial."  # of the weights that all agents start from
MAX_VERTEX_NUMBER = 2**62


class StoredArrays:
    """Arrays of one file that are still to be taken. Errors name the file and the array."""

    def __init__(self, path: Path, arrays: Mapping[str, NDArray[Any]], remedy: str) -> None:
        self.path, self.remedy = path, remedy
        self._remaining = dict(arrays)

    def __contains__(self, name: str) -> bool:
        return name in self._remaining

    def take(self, name: str, dtypes: tuple[str, ...] | str, *shape: int | None) -> NDArray[Any]:
        """Take the array of this name; None in its shape stands for any length."""
        if name not in self._remaining:
            raise GossamerError(f"{self.path} is damaged: it has no {name}; {self.remedy}")
        array = self._remaining.pop(name)
        allowed = (dtypes,) if isinstance(dtypes, str) else dtypes
        fits = len(array.shape) == len(shape) and all(n in (None, m) for n, m in zip(shape, array.shape, strict=True))
        if str(array.dtype) not in allowed or not fits:
            lengths = ", ".join("n" if n is None else str(n) for n in shape)
            kinds = "numbers" if allowed == NUMBERS else " or ".join(allowed)
            self.refuse(name, f"{kinds} [{lengths}]", f"{array.dtype} {list(array.shape)}")
        return array

    def take_within(
        self, name: str, below: int, *shape: int | None, least: int = 0, dtypes: tuple[str, ...] | str = "int64"
    ) -> NDArray[Any]:
        """Take whole numbers from `least` to below `below`."""
        array = self.take(name, dtypes, *shape)
        if array.size and (array.min() < least or array.max() >= below):
            self.refuse(name, f"numbers {least} to {below - 1}", f"{array.min()} to {array.max()}")
        return array

    def take_finite(self, name: str, dtypes: tuple[str, ...] | str, *shape: int | None) -> NDArray[Any]:
        array = self.take(name, dtypes, *shape)
        if not np.isfinite(array).all():
            self.refuse(name, "finite numbers", "NaN or infinite ones")
        return array

    def take_combination(self, num_agents: int) -> NDArray[Any]:
        """C [m, m], or a sequence of them [topologies, m, m]."""
        sequence = "combination" in self and self._remaining["combination"].ndim == 3
        C = self.take_finite("combination", "float64", *(None,) * sequence, num_agents, num_agents)
        if not len(C):
            self.refuse("combination", "at least one matrix", "none")
        return C

    def take_features(self, rows: int) -> Any:
        """Features of `rows` vertices: dense [rows, d] or [rows, times, d], or the parts of a CSR matrix."""
        if "features" in self:
            ndim = self._remaining["features"].ndim
            features = self.take_finite("features", REALS, rows, *(None,) * (2 if ndim == 3 else 1))
            if 0 in features.shape[1:]:
                self.refuse("features", "at least one column", f"{list(features.shape)}")
            return features
        shape = self.take("features.shape", INTS, 2).tolist()
        if shape[0] != rows or not 1 <= shape[1] < 2**31:
            self.refuse("features.shape", f"[{rows}, columns]", str(shape))
        values = self.take_finite("features.data", NUMBERS, None)
        indices = self.take_within("features.indices", shape[1], len(values), dtypes=INTS)
        starts = self.take_within("features.indptr", len(values) + 1, rows + 1, dtypes=INTS)
        if starts[0] != 0 or starts[-1] != len(values) or (np.diff(starts) < 0).any():
            self.refuse("features.indptr", f"ascending numbers from 0 to {len(values)}", "others")
        return sparse.csr_array((values, indices, starts), shape=tuple(shape))

    def take_targets(self, rows: int, times: int | None, num_classes: int | None, used: NDArray[np.bool_]) -> Any:
        """Classes [rows] (-1: unknown, which no mask may have), labels [rows, classes] as booleans, or real values
        [rows(, times), outputs]."""
        if num_classes is None:
            targets = self.take_finite("targets", REALS, rows, *(() if times is None else (times,)), None)
            if targets.shape[-1] == 0:
                self.refuse("targets", "at least one column", f"{list(targets.shape)}")
            return targets
        if times is not None:
            self.refuse("targets", "real values, as there is a time axis", f"{num_classes} classes")
        if "targets" in self and self._remaining["targets"].dtype == np.bool_:
            return self.take("targets", "bool", rows, num_classes)
        targets = self.take_within("targets", num_classes, rows, least=-1)
        if (targets[used] < 0).any():
            self.refuse("targets", "a known class wherever a mask has a vertex", "an unknown one")
        return targets

    def take_masks(self, names: tuple[str, ...], rows: int, times: int | None) -> dict[str, NDArray[np.bool_]]:
        shape = (rows,) if times is None else (rows, times)
        return {name: self.take(f"mask.{name}", "bool", *shape) for name in names}

    def take_vertices(self) -> NDArray[np.int64]:
        """Take the global numbers of vertices, ascending."""
        vertices = self.take_within("vertices", MAX_VERTEX_NUMBER, None)
        if (np.diff(vertices) <= 0).any():
            self.refuse("vertices", "ascending numbers", "others")
        return vertices

    def finish(self) -> None:
        """Refuse arrays that were not taken."""
        if self._remaining:
            raise GossamerError(f"{self.path} is damaged: unknown array {min(self._remaining)[:80]!a}; {self.remedy}")

    def refuse(self, name: str, expected: str, found: str) -> NoReturn:
        raise GossamerError(f"{self.path}: {name} should hold {expected}, found {found}; {self.remedy}")


def topology_prefix(number: int) -> str:
    """Prefix of the arrays of a share's topology: none for the first, which is the only one of most runs."""
    return f"topology.{number}." if number else ""
