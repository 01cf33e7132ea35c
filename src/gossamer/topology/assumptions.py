"""Assumption A of Sec. III-C on a combination matrix, (A1) to (A3), and C_kk != 0 of (28), each with its number."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from gossamer.topology.families import Links, count_components


@dataclass(frozen=True)
class Assumptions:
    """Measurements of (A1) symmetric and doubly stochastic, (A2) the spectral gap, (A3) zero off the allowed links."""

    asymmetry: float
    row_error: float
    spectral_radius: float  # rho(C - 11^T/m)
    off_links: float  # the largest |C_kz| where agents k and z may not talk
    own_weight: float  # the least |C_kk|, which (28) wants to be nonzero
    components: int  # of the graph of C's nonzero entries
    radius: float  # 1 - gap, the limit of the spectral radius; 1 without a gap

    @property
    def a1(self) -> bool:
        return self.asymmetry <= 1e-12 and self.row_error <= 1e-12

    @property
    def a2(self) -> bool:
        return self.spectral_radius <= min(self.radius, 1.0 - 1e-12) + 1e-13 and self.components == 1

    @property
    def a3(self) -> bool:
        return self.off_links == 0.0

    @property
    def keeps_own(self) -> bool:
        """C_kk != 0 for every agent, as (28) asks."""
        return self.own_weight > 0.0

    @property
    def holds(self) -> dict[str, bool]:
        return {"A1": self.a1, "A2": self.a2, "A3": self.a3}


def check_assumptions(combination: NDArray[np.float64], links: Links, radius: float | None = None) -> Assumptions:
    """Measure C [m, m] against the links [m, m] that are allowed and, for a designed C, radius = 1 - gap."""
    m = len(combination)
    spectrum = np.linalg.eigvalsh((combination + combination.T) / 2 - 1.0 / m)
    off = ~links & ~np.eye(m, dtype=bool)
    return Assumptions(
        asymmetry=float(abs(combination - combination.T).max()),
        row_error=float(abs(combination.sum(1) - 1).max()),
        spectral_radius=float(abs(spectrum).max()),
        off_links=float(abs(combination[off]).max(initial=0.0)),
        own_weight=float(abs(np.diag(combination)).min()),
        components=count_components(combination != 0),
        radius=1.0 if radius is None else radius,
    )
