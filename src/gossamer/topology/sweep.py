"""Designs for many spectral gaps: sparsity of C against 1 - gamma (Fig. 2)."""

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from gossamer.topology.certificate import certify_design
from gossamer.topology.checks import check_shared_edges
from gossamer.topology.design import design
from gossamer.topology.families import Matrix, count_components, needed_links, random_connected
from gossamer.topology.fastest import fastest_mixing

RADII = tuple(round(0.05 * i, 2) for i in range(20))  # 1 - gamma


@dataclass(frozen=True)
class SweepPoint:
    """One design of a sweep."""

    radius: float  # 1 - gamma
    sparsity: float  # fraction of zero entries of C
    added_links: int
    objective: float
    lower_bound: float
    spectral_radius: float
    iterations: int


@dataclass(frozen=True)
class Sweep:
    """Designs in the order of their radii, and the limit that they approach."""

    name: str
    agents: int
    points: list[SweepPoint]
    limit_sparsity: float  # of the minimally connected network: the needed links alone
    limit_radius: float | None  # least 1 - gamma for which the needed links suffice; None if they are disconnected

    def to_dict(self) -> dict[str, Any]:
        """The object of `--json`."""
        return asdict(self)

    @staticmethod
    def from_dict(stored: dict[str, Any]) -> "Sweep":
        """A sweep from its object of `--json`."""
        return Sweep(**{**stored, "points": [SweepPoint(**point) for point in stored["points"]]})


def random_shared_edges(num_agents: int = 20, seed: int = 0) -> Matrix:
    """Random B: A is 0 on the links of a random connected graph."""
    return random_connected(num_agents, seed).astype(np.float64)


def sweep_gaps(
    name: str,
    shared_edges: Matrix,
    radii: Sequence[float] = RADII,
    nonnegative: bool = False,
    progress: Callable[[int, int, str], None] | None = None,
    **design_options: Any,
) -> Sweep:
    """Design C for each radius = 1 - gamma in ascending order, each with the one before as a warm start."""
    needed = needed_links(check_shared_edges(shared_edges))
    points, warm = [], None
    for number, radius in enumerate(sorted(radii), 1):
        made = design(shared_edges, 1.0 - radius, nonnegative=nonnegative, warm_start=warm, **design_options)
        warm = made.warm_start
        found = certify_design(made)
        points.append(
            SweepPoint(
                radius,
                found.sparsity,
                found.num_added_links,
                made.objective,
                made.lower_bound,
                found.assumptions.spectral_radius,
                made.iterations,
            )
        )
        if progress is not None:
            progress(number, len(radii), f"1 - gap {radius:.2f}: {found.sparsity:.0%} zeros")
    alone = fastest_mixing(needed, nonnegative)
    return Sweep(
        name,
        len(needed),
        points,
        float((~needed & ~np.eye(len(needed), dtype=bool)).mean()),
        alone.spectral_radius if count_components(needed) == 1 else None,
    )
