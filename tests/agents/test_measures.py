"""Scores, disagreement and stationarity against their definitions."""

import itertools

import pytest
import torch
from agents.cases import make_case
from oracles.whole_graph import gradients, outputs

from gossamer.agents.measures import disagreement, evaluate
from gossamer.agents.scores import compute_scores
from gossamer.engines.simulation import Simulation, run, run_together
from gossamer.runs.training import stationarity


def test_disagreement_is_the_mean_over_pairs() -> None:
    params = {"a": torch.randn(6, 4, 3, dtype=torch.float64), "b": torch.randn(6, 5, dtype=torch.float64)}
    flat = torch.cat([part.flatten(1) for part in params.values()], 1)
    pairs = [(flat[k] - flat[z]).abs().mean() for k, z in itertools.combinations(range(6), 2)]
    assert disagreement(params) == pytest.approx(float(torch.stack(pairs).mean()), rel=1e-12)
    assert disagreement({"a": params["a"][:1]}) == 0.0
    assert disagreement({"a": params["a"][:1].float().expand(6, 4, 3)}) == 0.0


def test_stationarity_is_the_projected_gradient_at_the_mean() -> None:
    """g = grad^T Pi grad with Pi = 11^T/m x I written out (eq. (9), (19))."""
    case = make_case(dropout=0.5)
    host = case.host()
    centre = [w.mean(0, keepdim=True).expand_as(w).clone() for w in case.weights(host)]
    stacked = torch.cat([g.flatten(1) for g in gradients(case.problem, centre, step=None)], 1)
    m, p = stacked.shape
    projector = torch.kron(torch.full((m, m), 1 / m, dtype=torch.float64), torch.eye(p, dtype=torch.float64))
    expected = float(stacked.flatten() @ projector @ stacked.flatten())
    assert stationarity(host, Simulation()) == pytest.approx(expected, rel=1e-10)


def test_scores_count_every_vertex_once_over_several_hosts() -> None:
    case = make_case()
    host = case.host()
    y = outputs(case.problem, case.weights(host), None, step=None)
    right = y.argmax(-1) == case.problem.targets
    each = torch.nn.functional.cross_entropy(y, case.problem.targets, reduction="none")
    parts = run_together([evaluate(case.host(group)) for group in ([0, 2], [1], [3, 4])])
    found = compute_scores([sums for _, sums in parts], "multiclass", 3)
    for name in ("train", "validation", "test"):
        mask = torch.tensor(getattr(case.graph, name))
        assert found[name]["accuracy"] == pytest.approx(float(right[mask].double().mean()))
        assert found[name]["loss"] == pytest.approx(float(each[mask].mean()), rel=1e-12)


def test_real_targets_are_scored_by_squared_error() -> None:
    case = make_case(batch=3)
    _, sums = run(evaluate(case.host()))
    found = compute_scores([sums], "regression", 3)
    y = outputs(case.problem, case.weights(case.host()), None, step=None)
    error = ((y - case.problem.targets) ** 2).mean(-1)
    for name in ("train", "validation", "test"):
        mask = torch.tensor(getattr(case.graph, name))
        assert found[name]["mse"] == pytest.approx(float(error[mask].mean()), rel=1e-12)
