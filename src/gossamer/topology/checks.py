"""Checks of an agent graph, and of a design's input: the matrix B of shared edges, the gap and the floor."""

import numpy as np
from numpy.typing import ArrayLike, NDArray

from gossamer.errors import GossamerError


def check_shared_edges(shared_edges: ArrayLike) -> NDArray[np.float64]:
    """Require B [m, m] with B_kz > 0 where agents k and z share data edges; the returned diagonal is 0."""
    try:
        if np.iscomplexobj(shared_edges):
            raise TypeError("it has complex entries")
        B = np.asarray(shared_edges, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise GossamerError(f"B must be a matrix of numbers: {error}") from None
    if B.ndim != 2 or B.shape[0] != B.shape[1]:
        raise GossamerError(f"B must be square, a row and a column for each agent; got the shape {B.shape}")
    if len(B) < 2:
        raise GossamerError("a topology joins at least 2 agents; got a B for a single one")
    B = np.where(np.eye(len(B), dtype=bool), 0.0, B)
    if not np.isfinite(B).all():
        k, z = np.argwhere(~np.isfinite(B))[0]
        raise GossamerError(f"B holds NaN or infinite entries, the first for agents {k} and {z}")
    if (B < 0).any():
        k, z = np.argwhere(B < 0)[0]
        raise GossamerError(f"B counts edges and cannot be negative; it is {B[k, z]:g} for agents {k} and {z}")
    one_way = (B > 0) != (B.T > 0)
    if one_way.any():
        k, z = np.argwhere(one_way)[0]
        raise GossamerError(
            f"B must be symmetric in its support: it is {B[k, z]:g} for agents {k} and {z}, but {B[z, k]:g} for "
            f"{z} and {k} ({one_way.sum() // 2} such pairs); give both directions"
        )
    return B


def check_agent_graph(links: NDArray[np.bool_], num_agents: int) -> NDArray[np.bool_]:
    """Require an undirected agent graph: boolean [m, m], symmetric, no self-links."""
    if links.dtype != np.bool_ or links.shape != (num_agents, num_agents):
        raise GossamerError(
            f"links must be booleans, {num_agents} x {num_agents}, one row for each agent; got {links.dtype} "
            f"{links.shape}"
        )
    if (links != links.T).any() or links.diagonal().any():
        raise GossamerError("links must be symmetric and join no agent to itself")
    return links


def check_gap(gap: float, floor: float | None, num_agents: int, tolerance: float) -> None:
    """Require a gap, a floor and a tolerance that problem (29) can have."""
    if not 0.0 < gap <= 1.0:
        raise GossamerError(f"the gap must be above 0 and at most 1, got {gap:g}; the paper uses 0.5")
    if gap < 1e-9:
        raise GossamerError(f"a gap of {gap:g} drowns in rounding; give at least 1e-9")
    if floor is not None and not 0.0 < floor <= 0.5 / num_agents:
        raise GossamerError(f"the floor must be above 0 and at most 1/(2m) = {0.5 / num_agents:g}, got {floor:g}")
    if not 0.0 < tolerance < 1.0:
        raise GossamerError(f"the tolerance must be between 0 and 1, got {tolerance:g}")
