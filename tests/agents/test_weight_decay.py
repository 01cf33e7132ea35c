"""Weight decay of the first layer or of all: the gradient of lambda/2 sum_k |w_k|^2 / m, and training with it."""

from typing import Any

import pytest
import torch
from agents.cases import M, make_case
from agents.test_hosting import GROUPINGS, stacked
from oracles.whole_graph import gradients, recursion

from gossamer.agents import training_step
from gossamer.engines.simulation import Simulation, run_together
from gossamer.runs.training import whole_gradient

DECAY = 0.3
DECAYED = {"first": 1, "all": None}  # the number of layers that do; None: all


def is_decayed(name: str, layers: str) -> bool:
    return layers == "all" or name.split(".")[1] == "0"


@pytest.mark.parametrize("layers", DECAYED)
@pytest.mark.parametrize("options", [{}, {"bias": True, "num_layers": 3}, {"order": 2}], ids=str)
def test_the_gradient_of_the_decay_is_that_of_half_the_squares(layers: str, options: dict[str, Any]) -> None:
    host = make_case(**options).host(weight_decay=DECAY, decay_layers=layers)
    draw = torch.Generator().manual_seed(1)
    params, before = (
        {name: torch.randn(part.shape, generator=draw, dtype=part.dtype) for name, part in host.params.items()}
        for _ in range(2)
    )
    found = {name: part.clone() for name, part in before.items()}
    host.add_decay(found, params)
    leaves = {name: part.clone().requires_grad_() for name, part in params.items()}
    squares = [w.square().sum() for name, w in leaves.items() if is_decayed(name, layers)]
    penalty = DECAY / 2 * torch.stack(squares).sum() / M
    added = torch.autograd.grad(penalty, list(leaves.values()), allow_unused=True)
    for (name, part), more in zip(before.items(), added, strict=True):
        assert (more is not None) == is_decayed(name, layers)
        expected = part if more is None else part + more
        torch.testing.assert_close(found[name], expected, rtol=0, atol=1e-12)


def test_without_a_factor_nothing_is_added() -> None:
    host = make_case(bias=True).host(decay_layers="all")
    found = {name: torch.ones_like(part) for name, part in host.params.items()}
    host.add_decay(found, host.params)
    assert all(torch.equal(part, torch.ones_like(part)) for part in found.values())


@pytest.mark.parametrize("layers", DECAYED)
def test_the_whole_gradient_has_the_decay(layers: str) -> None:
    """At the weights that are given, which are not the host's."""
    case = make_case(dropout=0.4)
    host = case.host(weight_decay=DECAY, decay_layers=layers)
    params = {name: 2 * part + 0.1 for name, part in host.params.items()}
    weights = case.weights(host.with_params(params))
    found = whole_gradient(host, params, Simulation())
    for index, gradient in enumerate(gradients(case.problem, weights, step=None)):
        expected = gradient + DECAY / M * weights[index] if index == 0 or layers == "all" else gradient
        torch.testing.assert_close(found[f"layer.{index}.weight"], expected, rtol=0, atol=1e-12)


@pytest.mark.parametrize("layers", DECAYED)
@pytest.mark.parametrize(
    ("rule", "eta", "track"), [("gd", 0.05, False), ("momentum", 0.02, False), ("adam", 0.01, True)]
)
@pytest.mark.parametrize("grouping", [[list(range(M))], GROUPINGS[2]], ids=str)
def test_training_equals_the_recursion_on_the_whole_graph(
    layers: str, rule: str, eta: float, track: bool, grouping: list[list[int]]
) -> None:
    case, steps = make_case(dropout=0.4), 20
    assert len(case.problem.layers) == 2
    options: dict[str, Any] = {"rule": rule, "step_size": eta, "track": track, "weight_decay": DECAY}
    start = case.weights(case.host())
    plan: dict[str, Any] = {"track": track, "weight_decay": DECAY}
    reference, other = (
        recursion(case.problem, start, torch.tensor(case.combination), rule, eta, steps, decayed=decayed, **plan)
        for decayed in (DECAYED[layers], DECAYED["all" if layers == "first" else "first"])
    )
    hosts = [case.host(group, decay_layers=layers, **options) for group in grouping]
    for _ in range(steps):
        hosts = [host for host, _ in run_together([training_step(host) for host in hosts])]
    found = stacked(hosts)
    for index, expected in enumerate(reference):
        torch.testing.assert_close(found[f"layer.{index}.weight"], expected, rtol=0, atol=1e-10)
        assert (expected - other[index]).abs().max() > 1e-4  # the layers that decay matter
