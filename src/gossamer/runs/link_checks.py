"""Arrays of a peer's share about links: its place in the spanning tree, and the senders of its neighbours."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from gossamer.agents.consensus.masked import LEAST_SENDERS, find_senders
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
