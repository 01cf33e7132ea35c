"""What is known of a topology: (A1)-(A3), its links and spectrum, its proved optimality, and what a round costs."""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gossamer.topology.assumptions import Assumptions, check_assumptions
from gossamer.topology.design import Design
from gossamer.topology.families import Links, links_of

REDUCTION = 1e-3  # of the disagreement, for which rounds are predicted


@dataclass(frozen=True)
class Certificate:
    combination: NDArray[np.float64]  # C [m, m]
    links: Links  # who talks to whom
    needed: Links  # who shares data edges
    assumptions: Assumptions
    spectrum: NDArray[np.float64]  # the eigenvalues of C, ascending; 1 is among them
    objective: float  # ||C o A||_1: the weight on links that the data does not need
    design: Design | None  # the gap asked for, the floor and the proved bound, if C was designed

    @property
    def num_agents(self) -> int:
        return len(self.combination)

    @property
    def added(self) -> Links:
        """The links that the data does not need."""
        return self.links & ~self.needed

    @property
    def num_added(self) -> int:
        return int(self.added.sum()) // 2

    @property
    def nonnegative(self) -> bool:
        return bool((self.combination >= 0).all())

    @property
    def sparsity(self) -> float:
        """The share of zero entries of C."""
        return float((self.combination == 0).mean())

    @property
    def rounds(self) -> int | None:
        """Consensus rounds that make the disagreement 1000 times smaller: rho^rounds <= 1e-3; None if none do."""
        radius = self.assumptions.spectral_radius
        if radius >= 1.0 - 1e-12:
            return None
        return 1 if radius <= REDUCTION else math.ceil(math.log(REDUCTION) / math.log(radius))

    def bytes_per_round(self, num_parameters: int, bytes_each: int = 4) -> int:
        """What all agents send in a round: each its parameters to each neighbour."""
        return int(self.links.sum()) * num_parameters * bytes_each

    def to_dict(self, num_parameters: int, bytes_each: int = 4) -> dict[str, Any]:
        """The object of `--json`."""
        found, made = self.assumptions, self.design
        return {
            "agents": self.num_agents,
            "combination": self.combination.tolist(),
            "spectral_radius": found.spectral_radius,
            "spectrum": self.spectrum.tolist(),
            "objective": self.objective,
            "lower_bound": made and made.lower_bound,
            "needed_links": _pairs(self.needed & self.links),
            "added_links": _pairs(self.added),
            "missing_links": _pairs(self.needed & ~self.links),
            "holds": found.holds,
            "asymmetry": found.asymmetry,
            "row_error": found.row_error,
            "off_links": found.off_links,
            "own_weight": found.own_weight,
            "components": found.components,
            "nonnegative": self.nonnegative,
            "sparsity": self.sparsity,
            "gap": made and made.gap,
            "floor": made and made.floor,
            "floor_cost": made and made.floor_cost,
            "iterations": made and made.iterations,
            "rounds": self.rounds,
            "parameters": num_parameters,
            "bytes_per_round": self.bytes_per_round(num_parameters, bytes_each),
        }


def certify(combination: NDArray[np.float64], links: Links, needed: Links, design: Design | None = None) -> Certificate:
    """Measure a C [m, m] on its links against the links that the data needs."""
    return Certificate(
        combination,
        links,
        needed,
        check_assumptions(combination, links, None if design is None else 1.0 - design.gap),
        np.asarray(np.linalg.eigvalsh((combination + combination.T) / 2), dtype=np.float64),
        float(abs(combination[~needed & ~np.eye(len(needed), dtype=bool)]).sum()),
        design,
    )


def certify_design(made: Design) -> Certificate:
    """The certificate of a designed C on the links that it has."""
    return certify(made.combination, links_of(made.combination), made.needed, made)


def _pairs(links: Links) -> list[list[int]]:
    return [[int(k), int(z)] for k, z in np.argwhere(np.triu(links, 1))]
