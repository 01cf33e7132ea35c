"""Mini-batches of time steps: exact and unbiased gradients, the same at every hosting; chunks change nothing."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from agents.cases import Case, M, make_case
from agents.test_hosting import GROUPINGS, stacked
from oracles.whole_graph import loss, outputs

from gossamer.agents import Host, loss_gradient, training_step
from gossamer.agents.batches import draw_mini_batch, split_chunks
from gossamer.agents.counter_rng import draw_order
from gossamer.agents.measures import evaluate
from gossamer.engines.simulation import Simulation, run, run_together
from gossamer.errors import GossamerError
from gossamer.runs.training import whole_gradient

OPTIONS = [
    {},
    {"dropout": 0.4},
    {"kind": "chebyshev", "order": 2, "shift": "scaled-laplacian", "bias": True},
    {"sampled": True},
]


def columns_of(host: Host, case: Case) -> np.ndarray:
    """The time steps of the data that the host's next training step takes, found by their features."""
    on = draw_mini_batch(host)
    assert case.graph.batch is not None
    rows = case.graph.features[on.plan.layers[0].inputs]
    there = [t for t in range(case.graph.batch) if any(np.array_equal(rows[:, t], f) for f in on.features.unbind(1))]
    assert len(there) == on.features.shape[1]
    return np.array(there)


@pytest.mark.parametrize("options", OPTIONS, ids=str)
@pytest.mark.parametrize("step", [0, 1, 4])
def test_a_mini_batch_gradient_is_autograd_of_its_columns(options: dict[str, Any], step: int) -> None:
    case = make_case(batch=9, **options)
    T = int(case.graph.train.any(0).sum())
    host = replace(case.host(batch=2), step=step)
    drawn = torch.zeros(9, dtype=torch.bool)
    drawn[columns_of(host, case)] = True
    assert drawn.sum() == 2
    leaves = [w.requires_grad_() for w in case.weights(host)]
    biases = case.biases(host)
    y = outputs(case.problem, leaves, biases, step)
    assert case.problem.weights is not None
    each = case.problem.weights * ((y - case.problem.targets) ** 2).mean(-1)
    whole = case.problem.weights[case.problem.labelled].sum()
    expected = each[case.problem.labelled & drawn].sum() / (whole * 2 / T)
    value, gradient = run(loss_gradient(host, draw_mini_batch(host)))
    torch.testing.assert_close(value, expected.detach(), rtol=1e-12, atol=0)
    for index, reference in enumerate(torch.autograd.grad(expected, leaves)):
        torch.testing.assert_close(gradient[f"layer.{index}.weight"], reference, rtol=1e-10, atol=1e-13)


@pytest.mark.parametrize("sampled", [False, True])
@pytest.mark.parametrize("receptive_field", [True, False])
def test_the_gradients_of_an_epoch_average_to_the_whole_one(receptive_field: bool, sampled: bool) -> None:
    case = make_case(batch=10, seed=1, sampled=sampled)
    T = int(case.graph.train.any(0).sum())
    b = next(b for b in range(2, T) if T % b == 0)
    host = case.host(batch=b, receptive_field=receptive_field)
    whole, expected = run(loss_gradient(host))
    torch.testing.assert_close(whole, loss(case.problem, case.weights(host)), rtol=1e-12, atol=0)
    for epoch in (0, 3):
        steps = range(epoch * T // b, (epoch + 1) * T // b)
        found = [run(loss_gradient(at, draw_mini_batch(at))) for at in (replace(host, step=t) for t in steps)]
        torch.testing.assert_close(sum(value for value, _ in found) / len(found), whole, rtol=1e-12, atol=0)
        for name, reference in expected.items():
            mean = sum(gradient[name] for _, gradient in found) / len(found)
            torch.testing.assert_close(mean, reference, rtol=1e-10, atol=1e-13)


def test_an_epoch_draws_no_time_step_twice_and_the_next_one_another_order() -> None:
    case = make_case(batch=30, seed=2)
    T = int(case.graph.train.any(0).sum())
    assert T % 3 != 0  # some wait for the next epoch
    host = case.host(batch=3)
    steps = T // 3
    epochs = [[columns_of(replace(host, step=e * steps + s), case) for s in range(steps)] for e in range(4)]
    for epoch in epochs:
        drawn = np.concatenate(epoch)
        assert len(np.unique(drawn)) == len(drawn) == 3 * steps
        assert np.asarray(case.graph.train.any(0))[drawn].all()
    assert len({tuple(np.concatenate(epoch)) for epoch in epochs}) == 4
    other = case.host(batch=3, seed=4)
    assert any((columns_of(replace(other, step=s), case) != epochs[0][s]).any() for s in range(steps))


def test_every_time_step_is_drawn_equally_often() -> None:
    counts = torch.zeros(7)
    for epoch in range(7000):
        counts[draw_order(7, seed=5, epoch=epoch)[:2]] += 1
    assert (counts / 2000 - 1).abs().max() < 0.08


def test_a_batch_of_all_time_steps_is_the_whole_pass() -> None:
    case = make_case(batch=6, dropout=0.3)
    T = int(case.graph.train.any(0).sum())
    one, other = case.host(), case.host(batch=T)
    for _ in range(3):
        one, _ = run(training_step(one))
        other, _ = run(training_step(other))
        for name, part in one.params.items():
            assert torch.equal(part, other.params[name])


@pytest.mark.parametrize("grouping", GROUPINGS, ids=str)
@pytest.mark.parametrize("options", OPTIONS, ids=str)
@pytest.mark.parametrize("chunk", [1000, 2])
def test_hosting_parity_with_mini_batches(grouping: list[list[int]], options: dict[str, Any], chunk: int) -> None:
    case = make_case(batch=9, **options)
    one = case.host(rule="momentum", step_size=0.02, batch=3)
    many = [replace(case.host(group, rule="momentum", step_size=0.02, batch=3), chunk=chunk) for group in grouping]
    for _ in range(4):
        one, value = run(training_step(one))
        results = run_together([training_step(host) for host in many])
        many = [host for host, _ in results]
        torch.testing.assert_close(sum(part for _, part in results), value, rtol=1e-10, atol=1e-12)
    for name, part in stacked(many).items():
        torch.testing.assert_close(part, one.params[name], rtol=1e-10, atol=1e-12)


def test_stationarity_is_that_of_all_training_examples() -> None:
    case = make_case(batch=6)
    expected = whole_gradient(case.host(), case.host().params, Simulation())
    found = whole_gradient(case.host(batch=2), case.host().params, Simulation())
    for name, part in expected.items():
        assert torch.equal(found[name], part)


@pytest.mark.parametrize("chunk", [1, 2, 5])
@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_chunks_give_what_the_whole_gives(options: dict[str, Any], chunk: int) -> None:
    case = make_case(batch=7, **options)
    host = case.host()
    cut = replace(host, chunk=chunk)
    assert len(list(split_chunks(cut, cut.full_pass))) == -(-7 // chunk)
    whole, sums = run(evaluate(host))
    found, found_sums = run(evaluate(cut))
    torch.testing.assert_close(found, whole, rtol=1e-12, atol=1e-14)
    for name, part in sums.items():
        torch.testing.assert_close(found_sums[name], part, rtol=1e-12, atol=1e-14)
    value, gradient = run(loss_gradient(host))
    cut_value, cut_gradient = run(loss_gradient(cut))
    torch.testing.assert_close(cut_value, value, rtol=1e-12, atol=0)
    for name, part in gradient.items():
        torch.testing.assert_close(cut_gradient[name], part, rtol=1e-10, atol=1e-14)


def test_chunks_are_the_same_on_every_host() -> None:
    case = make_case(batch=3)
    assert len({case.host(group).chunk for grouping in GROUPINGS for group in grouping} | {case.host().chunk}) == 1


@pytest.mark.parametrize(
    ("batch", "size", "message"),
    [
        (None, 4, r"a batch of 4 draws time steps, and this data has none.*leave --batch at 0"),
        (6, 7, r"a batch of 7 is more than the \d time steps with a training example; give --batch at most \d, or 0"),
    ],
)
def test_a_batch_that_cannot_be_drawn_is_refused(batch: int | None, size: int, message: str) -> None:
    case = make_case(batch=batch)
    for agents in (range(M), [2]):
        with pytest.raises(GossamerError, match=message):
            case.host(agents, batch=size)
