"""Routes of data edges between agents without a link: over agents between them, as few and as evenly loaded as can be.

The paper leaves out such edges (Sec. V-C) and names multi-hop exchanges as the way to keep them (Sec. VI). A route is
a shortest path along links. Which of several is taken follows from the demands of all pairs by the same search at
every agent: from the paths by ascending agent number, pairs are taken out one by one, the largest demand first, and put
back on the shortest path whose most loaded link has the least load, then whose links have the least in sum, until none
moves. No move raises the largest load, so that it is at most that of the paths by number. This is best-response search
of integral multicommodity routing, whose optimum is NP-hard (Raghavan and Thompson 1987, Randomized rounding).
"""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import sparse

from gossamer.errors import GossamerError
from gossamer.topology.checks import check_agent_graph
from gossamer.topology.families import Links, Matrix

SWEEPS = 4  # over all pairs; on the families and random graphs the largest load hardly falls after the second
SHOWN_GROUPS, SHOWN_AGENTS = 4, 8  # of groups without a route between them, in a message

Path = tuple[int, ...]


@dataclass(frozen=True)
class Routes:
    """Paths of all pairs of agents that share data edges without a link."""

    paths: Mapping[tuple[int, int], Path] = field(default_factory=dict)  # of pairs k < z: agents from k to z, both in

    def path(self, sender: int, receiver: int) -> Path:
        """Agents from the sender to the receiver, both included; the two alone if they have a link."""
        if sender < receiver:
            return self.paths.get((sender, receiver), (sender, receiver))
        return self.paths.get((receiver, sender), (receiver, sender))[::-1]

    @property
    def longest(self) -> int:
        """Links of the longest route; 1 if there are none."""
        return max((len(path) - 1 for path in self.paths.values()), default=1)


def plan_routes(links: Links, demand: ArrayLike) -> Routes:
    """Plan the routes of every pair k != z with demand_kz > 0 and no link; demand [m, m] is symmetric: edges or rows.

    A pure function of its arguments: agents that know them plan alike. Whole numbers up to 2^53 stay exact.
    """
    check_agent_graph(links, len(links))
    wanted = _check_demand(demand, len(links))
    hops = _hops(links)
    k, z = np.nonzero(np.triu((wanted > 0) & ~links, 1))
    if not np.isfinite(hops[k, z]).all():
        raise GossamerError(_describe_groups(links, wanted))
    order = np.lexsort((z, k, -wanted[k, z]))
    search = _Search(links, hops.tolist())
    load = np.where(links, wanted, 0.0).tolist()
    pairs = [(a, b, float(wanted[a, b])) for a, b in zip(k[order].tolist(), z[order].tolist(), strict=True)]
    paths = {}
    for a, b, number in pairs:
        path = paths[a, b] = search.first(a, b)
        _add(load, path, number)
    for _ in range(SWEEPS):
        moved = False
        for a, b, number in pairs:
            current = paths[a, b]
            _add(load, current, -number)
            best = search.best(a, b, load)
            if _cost(load, best) < _cost(load, current):
                paths[a, b], moved = best, True
            _add(load, paths[a, b], number)
        if not moved:
            break
    return Routes({pair: paths[pair] for pair in sorted(paths)})


def link_load(routes: Routes, demand: ArrayLike) -> Matrix:
    """Load of each direction of each link [m, m]: demand_kz, from k to z, counts on every link of its route."""
    wanted = np.asarray(demand, dtype=np.float64)
    load = np.where(np.eye(len(wanted), dtype=bool), 0.0, wanted)
    for (k, z), path in routes.paths.items():
        there, back = load[k, z], load[z, k]
        load[k, z] = load[z, k] = 0.0  # a pair with a route has no link, so that no other path goes there
        for a, b in pairwise(path):
            load[a, b] += there
            load[b, a] += back
    return load


def count_hops(routes: Routes, demand: ArrayLike) -> dict[int, float]:
    """Demand of pairs k < z by the links that it takes, ascending: {1: over a link, 2: over one agent between, ...}."""
    wanted = np.triu(np.asarray(demand, dtype=np.float64), 1)
    found: Counter[int] = Counter()
    for k, z in np.argwhere(wanted > 0).tolist():
        found[len(routes.path(k, z)) - 1] += wanted[k, z]
    return {hops: float(found[hops]) for hops in sorted(found)}


def connected_pairs(links: Links) -> NDArray[np.bool_]:
    """Mask [m, m] of the pairs k, z that some path along links joins, an agent with itself included."""
    _, group = sparse.csgraph.connected_components(sparse.csr_array(links), directed=False)
    return np.asarray(group[:, None] == group[None, :])


class _Search:
    """Shortest paths between two agents, by their distances [m][m] in links."""

    def __init__(self, links: Links, hops: list[list[float]]) -> None:
        self.neighbours = [np.flatnonzero(row).tolist() for row in links]
        self.hops = hops

    def first(self, k: int, z: int) -> Path:
        """The path from k that goes on to the agent of the smallest number each time."""
        to, path = self.hops[z], [k]
        while path[-1] != z:
            left = to[path[-1]] - 1
            path.append(next(a for a in self.neighbours[path[-1]] if to[a] == left))
        return tuple(path)

    def best(self, k: int, z: int, load: list[list[float]]) -> Path:
        """The path with the least (largest load, sum of loads), by dynamic programming from k one link at a time.

        Where two prefixes tie, that over the smaller agent stays.
        """
        to = self.hops[z]
        reached: dict[int, tuple[float, float, int]] = {k: (0.0, 0.0, -1)}
        levels = [reached]
        for left in range(int(to[k]) - 1, -1, -1):
            following: dict[int, tuple[float, float, int]] = {}
            for a in sorted(reached):
                largest, total, _ = reached[a]
                row = load[a]
                for b in self.neighbours[a]:
                    if to[b] == left:
                        here = row[b]
                        label = (here if here > largest else largest, total + here, a)
                        if b not in following or label < following[b]:
                            following[b] = label
            levels.append(following)
            reached = following
        path = [z]
        for level in reversed(levels[1:]):
            path.append(level[path[-1]][2])
        return tuple(reversed(path))


def _check_demand(demand: ArrayLike, m: int) -> Matrix:
    wanted = np.asarray(demand, dtype=np.float64)
    if wanted.shape != (m, m):
        raise GossamerError(f"the demand must be {m} x {m}, one row for each agent, got {wanted.shape}")
    if not np.isfinite(wanted).all() or (wanted < 0).any() or (wanted != wanted.T).any():
        raise GossamerError("the demand must be symmetric, finite and nowhere negative")
    return wanted


def _hops(links: Links) -> Matrix:
    """Links of a shortest path between any two agents [m, m]; infinite if there is none."""
    if not len(links):
        return np.zeros((0, 0))
    return np.asarray(sparse.csgraph.shortest_path(sparse.csr_array(links), unweighted=True, directed=False))


def _describe_groups(links: Links, wanted: Matrix) -> str:
    """Message that names the groups of agents that share data edges without a path between them."""
    _, group = sparse.csgraph.connected_components(sparse.csr_array(links), directed=False)
    apart = (wanted > 0) & (group[:, None] != group[None, :])
    k, z = np.argwhere(np.triu(apart, 1))[0]
    names = []
    for number in np.unique(group[apart.any(1)])[:SHOWN_GROUPS]:
        agents = np.flatnonzero(group == number).tolist()
        names.append(", ".join(map(str, agents[:SHOWN_AGENTS])) + (", ..." if len(agents) > SHOWN_AGENTS else ""))
    return (
        f"no path of links joins agents {k} and {z}, which share data edges: the links leave the groups "
        f"{' | '.join(names)} apart; add a link between them, or drop the edges with --lost-edges drop"
    )


def _add(load: list[list[float]], path: Path, number: float) -> None:
    for a, b in pairwise(path):
        load[a][b] += number
        load[b][a] += number


def _cost(load: list[list[float]], path: Path) -> tuple[float, float]:
    """Largest load of a path's links, and their sum, without what the path itself would add."""
    loads = [load[a][b] for a, b in pairwise(path)]
    return max(loads), sum(loads)
