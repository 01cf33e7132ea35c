"""Restriction of a data graph to the links that the agents have (Sec. III-A, footnote 2, and Sec. V-C)."""

import numpy as np
from numpy.typing import NDArray

from gossamer.topology.families import Links


def carried_edges(edges: NDArray[np.int64], assignment: NDArray[np.int64], links: Links) -> NDArray[np.bool_]:
    """Marks the data edges [edges] that stay inside an agent or cross a link; the others must be removed."""
    k, z = assignment[edges].T
    return np.asarray((k == z) | links[k, z])
