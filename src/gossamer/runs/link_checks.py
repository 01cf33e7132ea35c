"""Arrays of a peer's share about links: its place in the spanning tree, its neighbours' senders, and its routes."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from gossamer.agents.consensus.masked import LEAST_SENDERS, find_senders
from gossamer.agents.relays import AgentRoutes
from gossamer.agents.sums import ROOT, TreeNode
from gossamer.runs.arrays import StoredArrays


def take_senders(arrays: StoredArrays, name: str, row: NDArray[np.float64], agent: int, m: int) -> NDArray[np.int64]:
    """Pairs of an agent's neighbours and the agents that send to each: this one and at least another."""
    pairs = arrays.take_within(name, m, None, 2)
    code = pairs[:, 0] * m + pairs[:, 1]
    receivers, counts = np.unique(pairs[:, 0], return_counts=True)
    if receivers.tolist() != list(find_senders(row, agent)) or (np.diff(code) <= 0).any():
        arrays.refuse(name, "the neighbours that the agent mixes with, ascending", "others")
    if (pairs[:, 0] == pairs[:, 1]).any() or not np.isin(receivers * m + agent, code).all():
        arrays.refuse(name, f"agent {agent} among the senders of each neighbour, which is none itself", "others")
    if (counts < LEAST_SENDERS).any():
        alone = receivers[np.argmin(counts)]
        arrays.refuse(name, f"at least {LEAST_SENDERS} senders of each neighbour", f"agent {agent} alone for {alone}")
    return pairs


def take_tree(arrays: StoredArrays, agents: Sequence[int], m: int, known: set[int] | None) -> TreeNode | None:
    """Place of a peer's agent in the spanning tree, with its neighbours around it, if the share has one."""
    if "tree" not in arrays:
        return None
    numbers = arrays.take_within("tree", m, None, least=ROOT).tolist()
    if len(numbers) < 3:
        arrays.refuse("tree", "parent, depth, height and children", f"{len(numbers)} numbers")
    parent, depth, height, *children = numbers
    around = set(children) | ({parent} - {ROOT})
    if (
        (parent == ROOT) != (depth == 0)
        or not 0 <= depth <= height
        or (children and depth == height)
        or children != sorted(set(children))
        or parent in children
        or around & {*agents, ROOT}
        or not around <= (known if known is not None else around)
    ):
        arrays.refuse("tree", "the place of this agent in a tree of its links", str(numbers)[:80])
    return TreeNode(agents[0], parent, tuple(children), depth, height)


def take_routes(arrays: StoredArrays, agents: Sequence[int], m: int, known: set[int] | None) -> AgentRoutes | None:
    """Routes that begin, end or pass at a peer's agent, over its neighbours, in both directions, if the share has any
    in a run that relays rows."""
    if "routes" not in arrays:
        return None
    stored = arrays.take_within("routes", m, None, None, least=-1)
    longest = stored.shape[1] - 1
    if not 2 <= longest < m:  # it is that of all agents, and the rounds of every exchange
        arrays.refuse("routes", f"routes of 2 to {m - 1} links", f"{longest}")
    paths = [tuple(row[row >= 0].tolist()) for row in stored]
    agent = agents[0]
    for row, path in zip(stored.tolist(), paths, strict=True):
        at = path.index(agent) if agent in path else None
        around = set() if at is None else {path[n] for n in (at - 1, at + 1) if 0 <= n < len(path)}
        if (
            at is None
            or len(path) < 3
            or len(set(path)) < len(path)
            or tuple(row[: len(path)]) != path
            or not around <= (known if known is not None else around)
        ):
            arrays.refuse("routes", f"routes of agent {agent} over its neighbours", str(row)[:80])
    ends = {(path[0], path[-1]): path for path in paths}
    both = all(ends.get((z, k)) == path[::-1] for (k, z), path in ends.items())
    if paths != sorted(paths) or len(ends) < len(paths) or not both:
        arrays.refuse("routes", "each route once in each direction, ascending", "others")
    exchanges = None
    counts = []
    for name in ("routes.train", "routes.full"):
        counts.append(arrays.take_within(name, 2**31, len(paths), exchanges))
        exchanges = counts[-1].shape[1]
    return AgentRoutes(agent, longest, tuple(paths), *counts)
