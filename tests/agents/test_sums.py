"""Sums over a spanning tree: the same total at every agent, by messages between parent and child alone."""

from typing import Any

import networkx as nx
import numpy as np
import pytest
import torch
from agents.cases import watched

from gossamer.agents import Outbox, Phase
from gossamer.agents.sums import ROOT, plan_tree, sum_over_tree
from gossamer.engines.simulation import run_together

GRAPHS: dict[str, Any] = {
    "one agent": nx.path_graph(1),
    "two": nx.path_graph(2),
    "line": nx.path_graph(9),
    "ring": nx.cycle_graph(8),
    "star": nx.star_graph(6),
    "complete": nx.complete_graph(5),
    "tree": nx.balanced_tree(3, 3),
    "random": nx.connected_watts_strogatz_graph(25, 4, 0.4, seed=1),
}


@pytest.mark.parametrize("name", GRAPHS)
def test_every_agent_has_the_sum_of_all(name: str) -> None:
    links = nx.to_numpy_array(GRAPHS[name]) > 0
    nodes, m = plan_tree(links), len(links)
    assert nodes is not None
    vectors = torch.randint(-(2**40), 2**40, (m, 7), generator=torch.Generator().manual_seed(0)).double()
    boxes: list[Outbox] = []
    plans = [
        watched(sum_over_tree(node, vector, Phase.SCORES, 3), boxes.append)
        for node, vector in zip(nodes, vectors, strict=True)
    ]
    for total in run_together(plans):
        torch.testing.assert_close(total, vectors.sum(0), rtol=0, atol=0)
    sent = [link for box in boxes for link in box.messages]
    assert len(sent) == 2 * (m - 1)  # one up and one down each edge of the tree
    assert all(links[link.sender, link.receiver] for link in sent)
    assert {box.index for box in boxes} == {3 + i for i in range(2 * nodes[0].height)}


@pytest.mark.parametrize("name", GRAPHS)
def test_the_tree_is_a_lowest_one(name: str) -> None:
    graph = GRAPHS[name]
    nodes = plan_tree(nx.to_numpy_array(graph) > 0)
    assert nodes is not None
    assert nodes[0].height == nx.radius(graph)
    assert [node.agent for node in nodes if node.parent == ROOT] == [min(nx.center(graph))]
    for node in nodes:
        assert node.depth <= node.height
        for child in node.children:
            assert (nodes[child].parent, nodes[child].depth) == (node.agent, node.depth + 1)


def test_agents_without_a_path_between_them_have_no_tree() -> None:
    assert plan_tree(np.zeros((3, 3), dtype=bool)) is None


def test_another_merge_reaches_all() -> None:
    nodes = plan_tree(nx.to_numpy_array(GRAPHS["line"]) > 0)
    assert nodes is not None
    vectors = torch.rand(9, 4, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    plans = [
        sum_over_tree(node, vector, Phase.PLANNING, merge=torch.maximum)
        for node, vector in zip(nodes, vectors, strict=True)
    ]
    for found in run_together(plans):
        torch.testing.assert_close(found, vectors.max(0).values, rtol=0, atol=0)
