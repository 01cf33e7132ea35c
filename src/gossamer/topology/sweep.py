"""C designed by (29) for many spectral gaps gamma: sparsity of C against 1 - gamma (Fig. 2)."""

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from gossamer.topology.certificate import certify_design
from gossamer.topology.checks import check_shared_edges
from gossamer.topology.design import design
from gossamer.topology.families import Matrix, count_components, needed_links, random_connected
from gossamer.topology.fastest import fastest_mixing

RADII = tuple(round(0.05 * i, 2) for i in range(20))  # values of 1 - gamma


@dataclass(frozen=True)
class SweepPoint:
    """One design of a sweep."""

    radius: float  # required: at most 1 - gamma
    sparsity: float  # fraction of zero entries of C
    added_links: int
    objective: float
    lower_bound: float
    spectral_radius: float  # reached
    iterations: int  # of ADMM


@dataclass(frozen=True)
class Sweep:
    """Designs in ascending order of 1 - gamma, and the needed links alone, which they approach as gamma falls."""

    name: str
    agents: int
    points: list[SweepPoint]
    limit_sparsity: float  # of the needed links alone
    limit_radius: float | None  # least 1 - gamma for which the needed links suffice; None if they are disconnected

    def to_dict(self) -> dict[str, Any]:
        """The object that `--json` prints."""
        return asdict(self)

    @staticmethod
    def from_dict(stored: dict[str, Any]) -> "Sweep":
        """The sweep of an object that `to_dict` returned."""
        return Sweep(**{**stored, "points": [SweepPoint(**point) for point in stored["points"]]})


def draw_shared_edges(num_agents: int = 20, seed: int = 0) -> Matrix:
    """Random matrix B of shared edges: 1 on the links of a random connected graph, 0 elsewhere."""
    return random_connected(num_agents, seed).astype(np.float64)


def sweep_gaps(
    name: str,
    shared_edges: Matrix,
    radii: Sequence[float] = RADII,
    nonnegative: bool = False,
    progress: Callable[[int, int, str], None] | None = None,
    **design_options: Any,
) -> Sweep:
    """Design C for each radius = 1 - gamma in ascending order, each with the one before as a warm start.

    `progress` is called with the designs done, all designs, and a description of the last.
    """
    needed = needed_links(check_shared_edges(shared_edges))
    points, warm_start = [], None
    for number, radius in enumerate(sorted(radii), 1):
        result = design(shared_edges, 1.0 - radius, nonnegative=nonnegative, warm_start=warm_start, **design_options)
        warm_start = result.warm_start
        certificate = certify_design(result)
        points.append(
            SweepPoint(
                radius=radius,
                sparsity=certificate.sparsity,
                added_links=certificate.num_added_links,
                objective=result.objective,
                lower_bound=result.lower_bound,
                spectral_radius=certificate.assumptions.spectral_radius,
                iterations=result.iterations,
            )
        )
        if progress is not None:
            progress(number, len(radii), f"1 - gap {radius:.2f}: {certificate.sparsity:.0%} zeros")
    fastest = fastest_mixing(needed, nonnegative)
    return Sweep(
        name=name,
        agents=len(needed),
        points=points,
        limit_sparsity=float((~needed & ~np.eye(len(needed), dtype=bool)).mean()),
        limit_radius=fastest.spectral_radius if count_components(needed) == 1 else None,
    )
