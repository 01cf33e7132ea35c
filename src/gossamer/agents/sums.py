"""Sums over all agents, along a spanning tree of the links: no coordinator, and the same total at every agent.

Towards the root each agent adds its children's vectors to its own, and from there the total comes back: a
convergecast and a broadcast (Segall 1983, "Distributed network protocols"), two exchanges for each level of the tree.
An agent's parent learns the sum of the agent's subtree, all agents learn the total, and nothing else is passed on.
"""

from collections.abc import Callable, Generator
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import sparse
from torch import Tensor

from gossamer.agents.exchange import Inbox, Outbox, Phase
from gossamer.agents.links import Link
from gossamer.array_types import Floats, Ints

ROOT = -1  # parent of the root
Merge = Callable[[Tensor, Tensor], Tensor]
Check = Callable[[int, Tensor], None]  # takes a sender and its vector, and refuses one that cannot be


def accept_all(sender: int, vector: Tensor) -> None:
    """Check nothing."""


@dataclass(frozen=True)
class TreeNode:
    """An agent's place in the spanning tree."""

    agent: int
    parent: int
    children: tuple[int, ...]  # ascending
    depth: int  # links to the root
    height: int  # of the tree: the largest depth


def sum_over_tree(
    node: TreeNode, vector: Tensor, phase: Phase, index: int = 0, merge: Merge = torch.add, check: Check = accept_all
) -> Generator[Outbox, Inbox, Tensor]:
    """The sum of all agents' vectors, by 2 * height exchanges, the first with this index.

    Another `merge` than the sum must not depend on the order of its parts but for rounding. `check` sees every sum that
    a neighbour sends.
    """
    total = yield from sum_to_root(node, vector, phase, index, merge, check)
    return (yield from spread_from_root(node, total, phase, index + node.height, check))


def sum_to_root(
    node: TreeNode, vector: Tensor, phase: Phase, index: int = 0, merge: Merge = torch.add, check: Check = accept_all
) -> Generator[Outbox, Inbox, Tensor]:
    """The sum of the vectors of an agent's subtree, at the root that of all, by `height` exchanges."""
    total, k, shape = vector, node.agent, tuple(vector.shape)
    for level in reversed(range(node.height)):  # of the receivers
        sends, receives = node.depth == level + 1, node.depth == level
        messages = {Link(k, node.parent): total} if sends else {}
        expected = {Link(z, k): shape for z in node.children} if receives else {}
        inbox = yield Outbox(phase, index, messages, expected, vector.dtype)
        for link in expected:
            check(link.sender, inbox[link])
            total = merge(total, inbox[link])
        index += 1
    return total


def spread_from_root(
    node: TreeNode, vector: Tensor, phase: Phase, index: int = 0, check: Check = accept_all
) -> Generator[Outbox, Inbox, Tensor]:
    """The root's vector at every agent, by `height` exchanges; others give one of the same shape."""
    k, shape = node.agent, tuple(vector.shape)
    for level in range(node.height):  # of the senders
        sends, receives = node.depth == level, node.depth == level + 1
        messages = {Link(k, z): vector for z in node.children} if sends else {}
        expected = {Link(node.parent, k): shape} if receives else {}
        inbox = yield Outbox(phase, index, messages, expected, vector.dtype)
        if receives:
            vector = inbox[Link(node.parent, k)]
            check(node.parent, vector)
        index += 1
    return vector


def choose_root(eccentricities: Floats | Ints) -> int:
    """The root that makes the tree lowest, the first of several."""
    return int(np.argmin(eccentricities))


def choose_parent(distances: dict[int, float], own: float) -> int:
    """The parent among neighbours, by their `distances` to the root: the first that is nearer to it than this agent."""
    nearer = [z for z, distance in sorted(distances.items()) if distance == own - 1]
    return nearer[0] if nearer else ROOT


def plan_tree(links: NDArray[np.bool_]) -> list[TreeNode] | None:
    """Every agent's place in a breadth-first tree over the links [m, m]; None if they do not connect the agents."""
    lengths = sparse.csgraph.shortest_path(sparse.csr_array(links), unweighted=True)
    if not np.isfinite(lengths).all():
        return None
    depth = lengths[choose_root(lengths.max(1))]
    m = len(links)
    parents = [choose_parent({int(z): depth[z] for z in np.flatnonzero(links[k])}, depth[k]) for k in range(m)]
    children = [tuple(z for z in range(m) if parents[z] == k) for k in range(m)]
    height = int(depth.max())
    return [TreeNode(k, parents[k], children[k], int(depth[k]), height) for k in range(m)]
