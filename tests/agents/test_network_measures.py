"""Measures of the whole network by sums between neighbours: the simulation's, at every agent, and nothing else sent."""

import math

import numpy as np
import pytest
import torch
from agents.cases import make_case, watched

from gossamer.agents import Host, Outbox, Phase
from gossamer.agents import network_measures as measuring
from gossamer.agents.measures import disagreement, mean_params
from gossamer.agents.network_measures import NetworkMeasures, TreeSums, measure_network
from gossamer.agents.scores import check_sums
from gossamer.agents.sums import plan_tree
from gossamer.data.tasks import Task
from gossamer.engines.simulation import Simulation, run_together
from gossamer.errors import DivergedError, GossamerError
from gossamer.privacy.audit import find_separable
from gossamer.runs.training import stationarity


def pad(sender: int, receiver: int, step: int, index: int, size: int) -> torch.Tensor:
    """Pads that cancel in the sum over all agents; the receiver of a sum has their number."""
    streams = [np.random.default_rng((step, index, k)).integers(-(2**62), 2**62, size) for k in range(receiver)]
    return torch.from_numpy(streams[sender] - streams[(sender + 1) % receiver])


def measure(*, masked: bool = False, gradient: bool = True) -> tuple[list[NetworkMeasures], Host, list[Outbox]]:
    """What each agent finds, a host with all of them, and the messages."""
    case = make_case(dropout=0.5)
    whole, m = case.host(), len(case.combination)
    links = np.ones((m, m), dtype=bool) & ~np.eye(m, dtype=bool)
    tree = plan_tree(links)
    assert tree is not None
    boxes: list[Outbox] = []
    programs = [
        watched(
            measure_network(case.host([k]), TreeSums(tree[k], m, masked, pad if masked else None, gradient), 7),
            boxes.append,
        )
        for k in range(m)
    ]
    return run_together(programs), whole, boxes


@pytest.mark.parametrize("masked", [False, True])
def test_every_agent_finds_what_a_simulation_measures(masked: bool) -> None:
    found, whole, boxes = measure(masked=masked)
    mean, tolerance = mean_params(whole.params), 1e-10 if masked else 1e-12
    for one in found:
        for name, part in one.mean.items():
            torch.testing.assert_close(part, mean[name][:1], rtol=0, atol=tolerance)
        assert one.stationarity == pytest.approx(stationarity(whole, Simulation()), rel=1e-6 if masked else 1e-10)
        if masked:
            assert math.isnan(one.disagreement)
        else:
            assert one.disagreement == pytest.approx(disagreement(whole.params), rel=1e-12)
    assert {box.phase for box in boxes} <= {Phase.MEASURES, Phase.SCORES}


def test_no_masked_sum_shows_an_agents_weights() -> None:
    """A leaf's message to its parent differs from its weights in every number, by pads of 63 bits."""
    _, whole, boxes = measure(masked=True)
    sums = [box for box in boxes if box.dtype is torch.int64 and box.messages]
    assert sums
    flat = torch.cat([part.flatten(1) for part in whole.params.values()], 1)
    for box in sums[: len(flat)]:
        for link, message in box.messages.items():
            assert isinstance(message, torch.Tensor)
            plain = (flat[link.sender] * 2.0**40 / len(flat)).round().long()
            if len(message) == len(plain):
                assert not bool((message == plain).any())


def test_gradients_that_must_not_be_seen_are_not_sent() -> None:
    found, whole, boxes = measure(gradient=False)
    assert all(math.isnan(one.stationarity) for one in found)
    assert found[0].disagreement == pytest.approx(disagreement(whole.params), rel=1e-12)
    size = sum(part[0].numel() for part in whole.params.values())
    lengths = {len(part) for box in boxes for part in box.messages.values() if isinstance(part, torch.Tensor)}
    assert lengths == {size, len(whole.params[next(iter(whole.params))]) * size, 2}  # the mean, all weights, results


def test_the_disagreement_of_many_weights_is_estimated_from_some(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(measuring, "SAMPLED_NUMBERS", 60)
    found, whole, _ = measure()
    exact = disagreement(whole.params)
    assert found[0].disagreement != exact
    assert found[0].disagreement == pytest.approx(exact, rel=0.5)
    for size in (2, 3, 97, 1024, 5000):
        stride = measuring._find_stride(size)
        assert len({number * stride % size for number in range(size)}) == size


def test_a_masked_sum_that_nobody_can_have_is_refused() -> None:
    tree = plan_tree(np.zeros((1, 1), dtype=bool))
    assert tree is not None
    sums = TreeSums(tree[0], 1, masked=True)
    with pytest.raises(DivergedError, match="numbers beyond 4194304 in a masked sum"):
        sums.encode(torch.tensor([1.0, 1e8]), 0, 0)
    with pytest.raises(DivergedError, match="a masked sum that no agents' numbers have"):
        sums.decode(torch.tensor([2**62 + 2**61]))


@pytest.mark.parametrize(
    ("task", "part", "honest"),
    [
        ("multiclass", [2.0, 4, 4, 1, 0, 1, 3, 4, 0], True),
        ("multiclass", [2.0, 4, 4, 1e300, 0, 1e300, 3, 1e300, 0], False),  # scores beyond what a float takes
        ("multiclass", [2.0, 4, 99, 1, 0, 1, 3, 4, 0], False),  # more examples than there are
        ("multiclass", [2.0, 4, 4, 3, 0, 1, 3, 4, 0], False),  # more right than predicted
        ("multiclass", [-2.0, 4, 4, 1, 0, 1, 3, 4, 0], False),
        ("regression", [2.0, 4, 4, 1.0, 1.0, 1.0, 1.0, -5.0, 2.0, 9.0, 4.0], True),
        ("regression", [2.0, 4, 4, -1.0, 1.0, 1.0, 1.0, -5.0, 2.0, 9.0, 4.0], False),  # a negative square
    ],
)
def test_sums_of_scores_that_no_data_have_are_refused(task: Task, part: list[float], honest: bool) -> None:
    sums = {"train": torch.tensor(part, dtype=torch.float64)}
    if honest:
        check_sums(sums, task, 2, 10, 3)
    else:
        with pytest.raises(GossamerError, match="agent 3 has sent sums of scores on train that no data have"):
            check_sums(sums, task, 2, 10, 3)


def test_the_mean_makes_the_one_agent_that_is_not_mixed_with_separable() -> None:
    ring = np.array([[2, 1, 0, 1], [1, 2, 1, 0], [0, 1, 2, 1], [1, 0, 1, 2]]) / 4
    assert find_separable(ring, [0]) == ()
    assert find_separable(ring, [0], mean_known=True) == (2,)
