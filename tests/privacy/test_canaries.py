"""Canaries: bounds on epsilon lie below what is proved, and above it where a release has half its noise."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from agents.cases import M, make_case
from agents.test_noisy_sums import ROWS, SECRETS, shared
from agents.test_private_gradient import hosted, steps

from gossamer.agents.noisy_sums import draw_sums, normalise_rows, plan_sums
from gossamer.agents.private_gradient import private_gradient
from gossamer.agents.secret_streams import derive_secrets
from gossamer.data import DataGraph
from gossamer.engines.simulation import run, start_run
from gossamer.errors import GossamerError
from gossamer.experiments.theory import draw_block_graph
from gossamer.privacy.canaries import audit_scores, bound_epsilon, bound_gaussian, convert_to_epsilon
from gossamer.privacy.canary_runs import audit_with_canaries
from gossamer.runs.settings import make_settings

DRAWS = 400
NOISE = 2.0
PROVED = convert_to_epsilon(1 / NOISE, 1e-5)  # of one release with this multiplier


def score_sums(noise: float, draws: int = DRAWS) -> list[np.ndarray]:
    """Scores of a canary in draws of one hop with it and without it, by an auditor who knows all other rows."""
    plan, rows = plan_sums(shared(), weighted=True), normalise_rows(ROWS)
    without = rows.clone()
    without[7] = 0.0
    alone = rows - without
    found = []
    for given, first in ((rows, 0), (without, 10_000)):
        drawn = [draw_sums(plan, given, 0, noise, SECRETS, first + n) - plan.operator @ without for n in range(draws)]
        found.append(np.array([float((part * (plan.operator @ alone)).sum()) for part in drawn]))
    return found


def score_gradients(noise: float, draws: int = DRAWS) -> list[np.ndarray]:
    """Scores of an example in draws of one private gradient, whose own gradient is of the norm that is allowed."""
    case = make_case("mlp", n=40, bias=True)
    clip = 0.01  # below all norms
    host = hosted(case, steps(clip=clip))
    trained = np.flatnonzero(case.graph.train)
    left = case.graph.train.copy()
    left[trained[0]] = False
    smaller = replace(case, graph=replace(case.graph, train=left))
    hosts = [host, replace(hosted(smaller, steps(clip=clip)), num_labelled=host.num_labelled)]

    def release(at: Any, sigma: float) -> torch.Tensor:
        _, gradient = run(private_gradient(at, steps(clip=clip, noise=sigma)))
        return torch.cat([part.flatten() for part in gradient.values()]) * host.num_labelled

    clean = [release(at, 0.0) for at in hosts]
    v = clean[0] - clean[1]
    assert float(v.norm()) == pytest.approx(clip)
    return [
        np.array([float((release(replace(at, step=first + n), noise) - clean[1]) @ v) for n in range(draws)])
        for at, first in zip(hosts, (0, 10_000), strict=True)
    ]


@pytest.mark.parametrize("score", [score_sums, score_gradients])
def test_a_release_keeps_what_is_proved_and_half_its_noise_is_noticed(score: Any) -> None:
    inside, outside = score(NOISE)
    assert bound_gaussian(inside, outside, 1e-5) < PROVED
    inside, outside = score(NOISE / 2)
    assert bound_gaussian(inside, outside, 1e-5) > PROVED


@pytest.fixture(scope="module")
def graph() -> DataGraph:
    blocks = draw_block_graph()
    train = np.random.default_rng(0).random(blocks.num_vertices) < 0.8
    return replace(blocks, train=train, validation=~train, test=~train)


def test_twenty_private_runs_keep_what_is_proved(graph: DataGraph) -> None:
    """One training each, with 60 canaries, at several budgets and numbers of hops; some bounds are above 0."""
    found = []
    for seed in range(20):
        epsilon, hops = (1.0, 20.0)[seed % 2], (1, 1, 0, 2)[seed % 4]
        privacy = f"node:epsilon={epsilon},delta=1e-5,hops={hops}"
        given = {"agents": 4, "topology": "ring", "steps": 8, "encoder_steps": 8, "seed": seed, "privacy": privacy}
        started = start_run(graph, make_settings(given))
        audit = audit_with_canaries(started.deployment, started.whole_settings, 60, seed)
        assert audit.epsilon < epsilon
        found.append(audit.epsilon)
    assert max(found) > 1


def test_a_run_with_too_little_noise_is_noticed(graph: DataGraph) -> None:
    """The settings say that noise keeps epsilon 0.3; an auditor that is told so sees more."""
    given = {"agents": 4, "topology": "ring", "steps": 8, "encoder_steps": 8, "seed": 0}
    started = start_run(graph, make_settings({**given, "privacy": "node:epsilon=100,delta=1e-5"}))
    assert audit_with_canaries(started.deployment, started.whole_settings, 80, 0).epsilon > 0.3


def test_bounds_from_guesses() -> None:
    assert bound_epsilon(100, 60, 30, 1e-5) == 0.0  # as many as by guessing
    all_right = bound_epsilon(100, 60, 60, 1e-5)
    assert 2.5 < all_right < np.log(60 / 0.05)
    assert bound_epsilon(100, 60, 55, 1e-5) < all_right
    assert bound_epsilon(100, 60, 60, 1e-3) < all_right  # a larger delta allows for more right guesses
    # Randomised response at epsilon 1 is right in e / (1 + e) of its answers: a bound exceeds 1 in 5 % of runs at most.
    random = np.random.default_rng(0)
    right = random.binomial(200, np.e / (1 + np.e), size=400)
    assert np.mean([bound_epsilon(200, 200, int(r), 0.0) > 1 for r in right]) < 0.08


def test_scores_decide_guesses() -> None:
    scores = np.array([0.9, 0.1, 0.8, 0.2, 0.5, 0.5, 0.5, 0.5, 0.7, 0.3])
    taken = [True, False, True, False, False, True, False, True, False, True]
    audit = audit_scores(scores, taken, 1e-5)
    assert (audit.canaries, audit.guesses, audit.right) == (10, 6, 4)


def test_mistakes_about_canaries(graph: DataGraph) -> None:
    started = start_run(graph, make_settings({"agents": 4, "topology": "ring", "steps": 2}))
    with pytest.raises(GossamerError, match="canaries are vertices of a run with --privacy"):
        audit_with_canaries(started.deployment, started.settings, 20, 0)
    private = {"agents": 4, "topology": "ring", "steps": 2, "privacy": "node:epsilon=8,delta=1e-5"}
    started = start_run(graph, make_settings(private))
    with pytest.raises(GossamerError, match="expected 10 to"):
        audit_with_canaries(started.deployment, started.whole_settings, 5, 0)
    assert derive_secrets(0, range(M)) != SECRETS
