"""Training equals the stacked recursion of eq. (14) and the re-derived update rules, dropout on."""

from typing import Any

import numpy as np
import pytest
import torch
from agents.cases import COMPRESSIONS, Case, M, make_case
from oracles.whole_graph import recursion

from gossamer.agents import Host, training_step
from gossamer.engines.simulation import run

STEPS = 12


def trained(case: Case, steps: int = STEPS, **options: Any) -> Host:
    host = case.host(**options)
    for _ in range(steps):
        host, _ = run(training_step(host))
    return host


@pytest.mark.parametrize(("rule", "eta"), [("gd", 0.05), ("momentum", 0.02), ("adam", 0.01)])
@pytest.mark.parametrize(
    "extras",
    [
        {},
        {"weight_decay": 0.3, "step_decay": 0.1},
        {"consensus_every": 3},
        {"consensus_every": 0},
        {"mix_first": True, "weight_decay": 0.3, "consensus_every": 2},
        {"track": True},
        {"track": True, "mix_first": True, "weight_decay": 0.3, "step_decay": 0.1, "consensus_every": 3},
    ],
    ids=str,
)
@pytest.mark.parametrize("kind", ["gcn", "chebyshev"])
def test_training_equals_the_recursion(rule: str, eta: float, extras: dict[str, Any], kind: str) -> None:
    case = make_case(
        kind, 1 if kind == "gcn" else 2, dropout=0.4, shift="normalized" if kind == "gcn" else "scaled-laplacian"
    )
    start = case.weights(case.host())
    every = extras.get("consensus_every", 1)
    oracle_extras = {name: value for name, value in extras.items() if name != "consensus_every"}
    expected = recursion(
        case.problem, start, torch.tensor(case.combination), rule, eta, STEPS, every=every, **oracle_extras
    )
    host = trained(case, rule=rule, step_size=eta, **extras)
    for found, reference, before in zip(case.weights(host), expected, start, strict=True):
        torch.testing.assert_close(found, reference, rtol=0, atol=1e-10 * float(reference.abs().max()))
        assert (found - before).abs().max() > 1e-3
    assert host.step == STEPS


@pytest.mark.parametrize(
    ("rule", "eta", "track"),
    [("gd", 0.1, False), ("momentum", 0.05, False), ("gd", 0.1, True), ("momentum", 0.05, True), ("adam", 0.01, True)],
)
def test_golden_run_reproduces_centralised_descent(rule: str, eta: float, track: bool) -> None:
    """C = 11^T/m and equal initial weights: every agent walks the centralised path with the same step size."""
    case = make_case(dropout=0.4)
    host = trained(case, rule=rule, step_size=eta, combination=np.full((M, M), 1 / M), same_initial=True, track=track)
    alone = make_case(dropout=0.4)
    alone.problem.owner[:] = 0
    start = [w[:1] for w in case.weights(case.host(same_initial=True))]
    expected = recursion(alone.problem, start, torch.ones(1, 1, dtype=torch.float64), rule, eta, STEPS)
    for found, reference in zip(case.weights(host), expected, strict=True):
        torch.testing.assert_close(found, reference.expand_as(found), rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("compress", ["none", *COMPRESSIONS])
def test_the_mean_of_the_weights_is_kept_by_every_consensus(compress: str) -> None:
    """Whatever is left out, and whatever the agents do between two rounds."""
    case = make_case(kind="chebyshev", order=2, bias=True, shift="scaled-laplacian")
    host = case.host(compress=compress)
    state, random = host.consensus.init(host.params), torch.Generator().manual_seed(0)
    psi = {name: torch.randn(w.shape, generator=random, dtype=w.dtype) for name, w in host.params.items()}
    for step in range(12):
        mixed = run(host.consensus(psi, {name: torch.empty_like(part) for name, part in psi.items()}, state, 0, step))
        for name, part in mixed.items():
            torch.testing.assert_close(part.mean(0), psi[name].mean(0), rtol=1e-12, atol=1e-13)
            assert (part - psi[name]).abs().max() > 1e-3
        psi = {name: part + torch.randn(part.shape, generator=random, dtype=part.dtype) for name, part in mixed.items()}


@pytest.mark.parametrize(
    "compress", ["power:5", "power:5,bits=32", "choco:bits=32", "choco:topk=1.0,gamma=1", "choco:randk=1.0,gamma=1"]
)
@pytest.mark.parametrize("track", [False, True])
def test_compression_that_leaves_nothing_out_changes_nothing(compress: str, track: bool) -> None:
    """Over a whole run; arrays of rank 5 or less go whole."""
    case = make_case(dropout=0.4, bias=True)
    options: dict[str, Any] = {"rule": "momentum", "step_size": 0.02, "consensus_every": 2}
    plain = trained(case, **options, track=track)
    host = trained(case, **options, track=track, compress=compress)
    for name, part in plain.params.items():
        torch.testing.assert_close(host.params[name], part, rtol=0, atol=1e-10)


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"order": 3},
        {"kind": "chebyshev", "order": 3, "shift": "scaled-laplacian"},
        {"batch": 3},
        {"num_layers": 3, "sparse_features": False},
    ],
    ids=str,
)
def test_the_receptive_field_changes_no_number(options: dict[str, Any]) -> None:
    case = make_case(dropout=0.3, n=60, **options)
    saving = case.host(rule="momentum")
    everything = case.host(rule="momentum", receptive_field=False)
    assert sum(sum(p.sizes) for p in saving.train_pass.plan.layers) < sum(
        sum(p.sizes) for p in everything.train_pass.plan.layers
    )
    for _ in range(8):
        saving, _ = run(training_step(saving))
        everything, _ = run(training_step(everything))
    for name, part in saving.params.items():
        torch.testing.assert_close(part, everything.params[name], rtol=1e-10, atol=1e-12)
