"""Certificate of a topology: (A1)-(A3), links, spectrum, proved optimality, and the cost of a consensus round."""

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gossamer.topology.assumptions import Assumptions, check_assumptions
from gossamer.topology.design import Design
from gossamer.topology.families import Links, links_of
from gossamer.topology.sequences import LinkSequence, measure_contraction

REDUCTION = 1e-3  # of the disagreement, after the predicted number of rounds


@dataclass(frozen=True)
class Certificate:
    """Measurements of a C [m, m] on its links."""

    combination: NDArray[np.float64]  # C [m, m]
    links: Links  # pairs of agents that talk [m, m]
    needed_links: Links  # where agents share data edges
    assumptions: Assumptions
    spectrum: NDArray[np.float64]  # the eigenvalues of C, ascending; 1 is among them
    objective: float  # ||C o A||_1: the weight on links that the data does not need
    design: Design | None  # gap, floor and proved bound, if C was designed
    sequence: LinkSequence | None = None  # of links that change; C is then that of all links, or the mean of C^t

    @property
    def num_agents(self) -> int:
        return len(self.combination)

    @property
    def added_links(self) -> Links:
        """Links that the data does not need [m, m]."""
        return self.links & ~self.needed_links

    @property
    def num_added_links(self) -> int:
        return int(self.added_links.sum()) // 2

    @property
    def nonnegative(self) -> bool:
        return bool((self.combination >= 0).all())

    @property
    def sparsity(self) -> float:
        """Fraction of zero entries of C."""
        return float((self.combination == 0).mean())

    @cached_property
    def contraction(self) -> float:
        """Contraction of the sequence (sequences.py), of a period or in the mean square; without one the radius."""
        return self.assumptions.spectral_radius if self.sequence is None else measure_contraction(self.sequence)

    @property
    def rounds(self) -> int | None:
        """Consensus rounds that make the disagreement 1000 times smaller: rho^rounds <= 1e-3; None if none do."""
        factor = self.contraction
        if factor >= 1.0 - 1e-12:
            return None
        period = 1 if self.sequence is None else self.sequence.period
        goal = REDUCTION if period else REDUCTION**2  # of the expected square of random ones
        length = period or 1
        return length * (1 if factor <= goal else math.ceil(math.log(goal) / math.log(factor)))

    @property
    def messages_per_round(self) -> float:
        """Agents' weights that are sent in a round; of links that change in the mean."""
        return float(self.links.sum()) if self.sequence is None else self.sequence.mean_sent

    def bytes_per_round(self, num_parameters: int, bytes_each: int = 4) -> int:
        """Bytes that all agents send in a round: each its parameters to each neighbour."""
        return round(self.messages_per_round * num_parameters * bytes_each)

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
            "needed_links": _pairs(self.needed_links & self.links),
            "added_links": _pairs(self.added_links),
            "missing_links": _pairs(self.needed_links & ~self.links),
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
            "sequence": self._describe_sequence(),
        }

    def _describe_sequence(self) -> dict[str, Any] | None:
        if self.sequence is None:
            return None
        return {
            "period": self.sequence.period,
            "contraction": self.contraction,
            "symmetric": self.sequence.symmetric,
            "partners_only": self.sequence.partners_only,
            "messages_per_round": self.messages_per_round,
        }


def certify(
    combination: NDArray[np.float64],
    links: Links,
    needed_links: Links,
    design: Design | None = None,
    sequence: LinkSequence | None = None,
) -> Certificate:
    """Measure a C [m, m] on its links against the links that the data needs, or C and a sequence of C^t."""
    return Certificate(
        combination,
        links,
        needed_links,
        check_assumptions(combination, links, None if design is None else 1.0 - design.gap),
        np.asarray(np.linalg.eigvalsh((combination + combination.T) / 2), dtype=np.float64),
        float(abs(combination[~needed_links & ~np.eye(len(needed_links), dtype=bool)]).sum()),
        design,
        sequence,
    )


def certify_design(made: Design) -> Certificate:
    """Measure a designed C on its own links."""
    return certify(made.combination, links_of(made.combination), made.needed_links, made)


def _pairs(links: Links) -> list[list[int]]:
    return [[int(k), int(z)] for k, z in np.argwhere(np.triu(links, 1))]
