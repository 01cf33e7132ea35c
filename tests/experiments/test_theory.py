"""Theorem 2: measurements of a run against the whole graph, the inequalities against the paper's sums."""

from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from agents.cases import M, make_case
from oracles.whole_graph import gradients, loss

from gossamer.agents.step import training_step
from gossamer.api import train
from gossamer.engines.simulation import run
from gossamer.experiments import bounds, theory


def made(steps: int = 30, decay: float = 0.3) -> dict[str, Any]:
    """A trajectory of artificial numbers."""
    random = np.random.default_rng(5)
    columns = ("apart", "slope", "stationarity", "loss", "inner", "projected", "secant", "recursion")
    table = {name: random.uniform(0.5, 1.5, steps + 1).tolist() for name in columns}
    return {"eta": 0.7, "decay": decay, "radius": 0.6, **table}


@pytest.fixture(scope="module")
def short() -> dict[str, Any]:
    return theory.measure_trajectory(theory.draw_block_graph(), 0.25, 0.1, 60)


def test_the_claims_of_the_theorem_hold_on_a_small_problem(tmp_path: Path) -> None:
    told: list[tuple[int, int]] = []
    outcome = theory.reproduce(
        tmp_path, quick=True, seeds=1, progress=lambda done, total, what: told.append((done, total))
    )
    assert told == [(1, 3), (2, 3), (3, 3)]
    assert len(outcome.claims) == 12
    assert all(claim.holds for claim in outcome.claims), outcome.claims
    for name in outcome.files:
        assert (tmp_path / name).stat().st_size > 1000


def test_every_step_shrinks_the_disagreement_and_adds_a_gradient(short: dict[str, Any]) -> None:
    """Eq. (42), with the step sizes of (C2)."""
    assert short["eta"] == theory.RING_AGENTS * 0.25
    assert len(short["apart"]) == 61
    for t, (now, then) in enumerate(pairwise(short["apart"])):
        assert then <= short["radius"] * now + short["eta"] / (1 + 0.1 * t) * short["slope"][t]
    assert max(short["recursion"]) < 1e-12
    assert short["recursion"][0] == 0.0


def test_what_is_measured_is_the_whole_graphs(short: dict[str, Any]) -> None:
    """Gradients at the agents' own weights and at their mean, which differ, weight decay included."""
    case = make_case(activation="tanh")
    host = case.host(step_size=0.2, weight_decay=0.7)

    def oracle(weights: list[torch.Tensor]) -> tuple[float, torch.Tensor]:
        decay = 0.7 / M
        g = [g + decay * w for g, w in zip(gradients(case.problem, weights), weights, strict=True)]
        value = float(loss(case.problem, weights)) + decay / 2 * sum(float(w.square().sum()) for w in weights)
        return value, torch.cat([part.flatten(1) for part in g], 1)

    iterates, expected = [], []
    for _ in range(2):
        iterates.append(theory._evaluate_iterate(host))
        weights = case.weights(host)
        centre = [w.mean(0, keepdim=True).expand_as(w).clone() for w in weights]
        flat, flat_centre = (torch.cat([w.flatten(1) for w in part], 1) for part in (weights, centre))
        expected.append((flat, flat_centre, oracle(weights)[1], *oracle(centre)))
        host, _ = run(training_step(host))
    found = theory._measure(iterates[1], iterates[0], 0.2 * M)
    w, w_S, g, L_S, g_S = expected[1]
    assert float((g_S.norm() - g.norm()).abs()) > 0.01  # else the test below would not tell them apart
    assert found["slope"] == pytest.approx(float(g.norm()), rel=1e-10)
    assert found["apart"] == pytest.approx(float((w - w_S).norm()), rel=1e-10)
    assert found["loss"] == pytest.approx(L_S, rel=1e-10)
    assert found["stationarity"] == pytest.approx(float(g_S.sum(0).square().sum()) / M, rel=1e-10)
    assert found["inner"] == pytest.approx(float(g_S.sum(0) @ g.sum(0)) / M, rel=1e-10)
    assert found["projected"] == pytest.approx(float(g.sum(0).square().sum()) / M, rel=1e-10)
    across = float((g - g_S).norm() / (w - w_S).norm())
    along = float((g_S - expected[0][4]).norm() / (w_S - expected[0][1]).norm())
    assert found["secant"] == pytest.approx(max(across, along), rel=1e-10)
    assert found["recursion"] < 1e-13
    wrong = replace(iterates[0], gradient=2 * iterates[0].gradient)
    assert theory._measure(iterates[1], wrong, 0.2 * M)["recursion"] > 1e-3


def test_the_bound_on_the_disagreement_is_the_papers_sum() -> None:
    """Eq. (45) written out: the gradient of step l - 1 came with eta^(l-1)."""
    found = made()
    G, r = max(found["slope"]), found["radius"]
    for t, value in enumerate(bounds.disagreement_bound(found)):
        drift = sum(r ** (t - n) * found["eta"] / (1 + found["decay"] * (n - 1)) for n in range(1, t + 1))
        assert value == pytest.approx(r**t * found["apart"][0] + G * drift, rel=1e-12)


def test_the_bounds_of_the_descent_are_the_papers_sums() -> None:
    found = made()
    G, c, r, T = max(found["slope"]), max(found["secant"]), found["radius"], 30
    eta = [found["eta"] / (1 + found["decay"] * t) for t in range(T + 1)]
    g, L = found["stationarity"], found["loss"]
    lemma, whole = bounds.descent_slack(found)
    left, right = bounds.descent_sums(found)
    assert len(lemma) == len(whole) == T
    for t in range(T):
        by_lemma = L[t] - eta[t] * found["inner"][t] + c / 2 * eta[t] ** 2 * found["projected"][t]
        drift = sum(r ** (t - n) * eta[n - 1] for n in range(1, t + 1))
        by_whole = L[t] - eta[t] * g[t] + c / 2 * G**2 * eta[t] ** 2
        by_whole += c * G * found["apart"][0] * r**t * eta[t] + c * G**2 * eta[t] * drift
        assert lemma[t] == pytest.approx(by_lemma - L[t + 1], rel=1e-10)
        assert whole[t] == pytest.approx(by_whole - L[t + 1], rel=1e-10)
        twice = sum(r ** (n - k) * eta[n] * eta[k - 1] for n in range(t + 1) for k in range(1, n + 1))
        total = L[0] + c * G * found["apart"][0] * sum(r**n * eta[n] for n in range(t + 1))
        total += c / 2 * G**2 * sum(e**2 for e in eta[: t + 1]) + c * G**2 * twice
        assert left[t] == pytest.approx(sum(eta[n] * g[n] for n in range(t + 1)), rel=1e-12)
        assert right[t] == pytest.approx(total, rel=1e-12)
        assert bounds.best_bound(found)[t] == pytest.approx(total / sum(eta[: t + 1]), rel=1e-12)


def test_a_constant_step_size_has_the_bound_53_and_its_limit() -> None:
    found = made(steps=4000, decay=0.0)
    falling, limit = bounds.rate_bound(found)
    t = np.arange(4001)
    above = falling / (t + 1) + limit
    assert (bounds.best_bound(found) <= above * (1 + 1e-12)).all()  # (53) replaces sums of (52) by their limits
    assert bounds.best_bound(found)[-1] == pytest.approx(limit, rel=5e-3)
    G, c, gap = max(found["slope"]), max(found["secant"]), 0.4
    assert limit == pytest.approx(c * G**2 * (2 + gap) / (2 * gap) * 0.7)


def test_the_best_stationarity_begins_at_step_1() -> None:
    """Eq. (20) is over n = 1..t: a start that happens to be flat does not count."""
    found = made()
    found["stationarity"][0] = 1e-9
    best = bounds.best(found)
    assert np.isnan(best[0])
    assert best[1:].tolist() == [min(found["stationarity"][1 : t + 1]) for t in range(1, 31)]
    flat = train(  # tiny weights: the gradient grows at first
        theory.draw_block_graph(), preset="paper", agents=3, hidden=4, dropout=0.0, update="gd", dtype="float64",
        steps=5, evaluate_every=1, topology="complete", baselines=False,
    )  # fmt: skip
    g = [record["stationarity"] for record in flat.run.history]
    assert g[0] < min(g[1:])
    recorded = [record["best_stationarity"] for record in flat.run.history]
    assert np.isnan(recorded[0])
    assert recorded[1:] == [min(g[1 : t + 1]) for t in range(1, 6)]


@pytest.mark.parametrize(
    ("changed", "factor", "fails"),
    [
        ("apart", 1e3, ["(45)"]),
        ("recursion", 1e9, ["(48)"]),
        ("loss", 30.0, ["(49)", "(50c)"]),
        ("stationarity", 1e8, ["(50c)", "(51)", "(52)"]),
    ],
)
def test_a_broken_inequality_is_seen(short: dict[str, Any], changed: str, factor: float, fails: list[str]) -> None:
    assert all(claim.holds for claim in theory._check_inequalities([short]))
    broken = {**short, changed: [*short[changed][:40], *(factor * value for value in short[changed][40:])]}
    if changed == "stationarity":  # g_best is a minimum
        broken[changed] = [factor * value for value in short[changed]]
    failed = [claim.claim for claim in theory._check_inequalities([broken]) if not claim.holds]
    assert [
        name for name in ("(45)", "(48)", "(49)", "(50c)", "(51)", "(52)") if any(name in text for text in failed)
    ] == fails


def test_a_rate_slower_than_the_theorems_is_seen() -> None:
    t = np.arange(2001)
    found = {**made(steps=2000, decay=0.0), "eta": 0.1}
    assert theory._check_rate([{**found, "stationarity": (1 / (t + 1) ** 2).tolist()}]).holds
    assert not theory._check_rate([{**found, "stationarity": (1 / (t + 1) ** 0.5).tolist()}]).holds
    assert not theory._check_rate([{**found, "stationarity": (1e6 / (t + 1) ** 2).tolist()}]).holds  # above the bound
