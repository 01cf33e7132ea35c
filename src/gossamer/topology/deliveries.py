"""Boundary rows while links change: which pairs of agents get each other's rows in a step, and what stands in for them.

    relay   over any path of links that are up in the step; rows arrive as long as there is one
    last    the last rows that arrived stand in for missing ones, up to an age, as constants
    drop    missing rows are left out

Rows between agents without a link of their own take their planned routes; with `relay` any path.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from gossamer.topology.families import Links
from gossamer.topology.routes import Routes, connected_pairs
from gossamer.topology.sequences import LinkSequence

MISSING_ROWS = ("relay", "last", "drop")
NOT_KNOWN = -1  # age of rows that do not arrive, and for which none stand in


@dataclass(frozen=True)
class RowStatistics:
    """Boundary rows of some steps, by pairs of agents that share data edges."""

    links_up: float  # share of the links
    arrived: float  # share of the pairs whose rows arrived
    replaced: float  # share for which the last rows stood in
    mean_age: float  # of these, in steps; 0 if there are none
    largest_age: int


@dataclass(frozen=True)
class Deliveries:
    """Boundary rows between m agents in the steps of a sequence."""

    sequence: LinkSequence
    shared: Links  # pairs of agents that share data edges [m, m]
    routes: Routes  # of those without a link
    missing: str  # one of MISSING_ROWS
    max_age: int  # of the last rows

    @property
    def rows_change(self) -> bool:
        """Boundary rows take links that may be down."""
        return not self.sequence.partners_only

    def arriving(self, step: int) -> Links:
        """Pairs of agents whose rows reach each other in a step [m, m], each with itself included."""
        up = self.sequence.up(step)
        if self.missing == "relay":
            return connected_pairs(up)
        found = up | np.eye(len(up), dtype=bool)
        for (k, z), path in self.routes.paths.items():
            found[k, z] = found[z, k] = all(up[a, b] for a, b in pairwise(path))
        return found

    def ages(self, step: int) -> NDArray[np.int64]:
        """Age in steps of the rows that each pair of agents uses [m, m]: 0 where they arrive; NOT_KNOWN: none."""
        found = np.where(self.arriving(step), 0, NOT_KNOWN)
        if self.missing == "last":
            for age in range(1, min(self.max_age, step) + 1):
                if (found >= 0).all():
                    break
                found[(found < 0) & self.arriving(step - age)] = age
        return found

    def summarise(self, steps: Iterable[int]) -> RowStatistics:
        """What happened to the rows of these steps."""
        pairs, links = np.triu(self.shared, 1), np.triu(self.sequence.links, 1)
        ages, up = [], []
        for step in steps:
            ages.append(self.ages(step)[pairs])
            up.append(self.sequence.up(step)[links])
        age = np.concatenate([np.zeros(0, dtype=np.int64), *ages])
        old = age[age > 0]
        return RowStatistics(
            links_up=_mean(np.concatenate([np.zeros(0, dtype=bool), *up])),
            arrived=_mean(age == 0),
            replaced=_mean(age > 0) if len(age) else 0.0,
            mean_age=float(old.mean()) if len(old) else 0.0,
            largest_age=int(old.max(initial=0)),
        )


def _mean(holds: NDArray[np.bool_]) -> float:
    """Share of what holds; all of nothing."""
    return float(holds.mean()) if len(holds) else 1.0
