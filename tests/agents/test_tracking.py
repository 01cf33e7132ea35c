"""Tracked updates: every agent's estimate of the whole gradient, whose mean is that of the gradients at every step."""

from typing import Any

import pytest
import torch
from agents.cases import COMPRESSIONS, M, make_case

from gossamer.agents import loss_gradient, training_step
from gossamer.agents.batches import draw_mini_batch
from gossamer.agents.step import step_size
from gossamer.engines.simulation import run
from gossamer.runs.hosts import training_of
from gossamer.runs.settings import make_settings


@pytest.mark.parametrize(
    ("options", "how"),
    [
        ({"dropout": 0.4}, {}),
        ({"dropout": 0.4, "bias": True}, {"weight_decay": 0.3, "consensus_every": 3}),
        ({"batch": 9, "dropout": 0.2}, {"batch": 2, "consensus_every": 2, "mix_first": True}),
        *(({}, {"compress": compress, "consensus_every": 2}) for compress in COMPRESSIONS),
    ],
    ids=str,
)
def test_the_mean_of_the_trackers_is_that_of_the_gradients_at_every_step(
    options: dict[str, Any], how: dict[str, Any]
) -> None:
    host = make_case(**options).host(rule="adam", step_size=0.01, track=True, **how)
    spread = []
    for _ in range(8):
        _, gradient = run(loss_gradient(host, draw_mini_batch(host)))
        expected = {name: g + how.get("weight_decay", 0) / M * host.params[name] for name, g in gradient.items()}
        host, _ = run(training_step(host))
        for name, g in expected.items():
            tracker = host.state[f"tracker.{name}"]
            torch.testing.assert_close(tracker.mean(0), g.mean(0), rtol=1e-12, atol=1e-13)
        spread.append(float((tracker - tracker.mean(0)).norm() / (g - g.mean(0)).norm()))
    assert min(spread) < 0.9  # the estimates are closer to each other than the agents' own gradients


@pytest.mark.parametrize(("rule", "eta"), [("gd", 0.1), ("momentum", 0.05), ("adam", 0.01)])
def test_with_all_links_and_equal_weights_every_agent_trains_as_one_agent_would(rule: str, eta: float) -> None:
    case = make_case(bias=True)
    whole = torch.full((M, M), 1 / M, dtype=torch.float64).numpy()
    host = case.host(rule=rule, step_size=eta, combination=whole, same_initial=True, track=True)
    case.owner[:] = 0
    alone = case.host([0], rule=rule, step_size=eta, combination=whole[:1, :1] * M, same_initial=True)
    for _ in range(30):
        host, _ = run(training_step(host))
        alone, _ = run(training_step(alone))
    for name, part in alone.params.items():
        torch.testing.assert_close(host.params[name], part.expand_as(host.params[name]), rtol=0, atol=1e-10)


def test_an_agent_without_labels_or_vertices_gets_an_estimate_all_the_same() -> None:
    host = make_case().host(rule="adam", step_size=0.01, track=True)
    for _ in range(10):
        host, _ = run(training_step(host))
    assert host.state["gradient.layer.0.weight"][4].abs().max() == 0
    assert host.state["tracker.layer.0.weight"][4].abs().max() > 1e-4


@pytest.mark.parametrize(
    ("given", "tracks"),
    [
        ({"update": "adam"}, True),
        ({"update": "gd"}, False),
        ({"update": "momentum"}, False),
        ({"update": "adam", "track": False}, False),
        ({"update": "gd", "track": True}, True),
        ({"update": "adam", "agents": 1}, False),
        ({"update": "adam", "agents": 1, "track": True}, False),
    ],
    ids=str,
)
def test_adam_tracks_unless_told_otherwise_and_one_agent_never(given: dict[str, Any], tracks: bool) -> None:
    settings = make_settings(given)
    assert settings.tracks == tracks
    assert training_of(settings).track == tracks


def test_the_step_size_is_the_centralised_one() -> None:
    case = make_case()
    sizes = {
        (rule, track): step_size(case.host(rule=rule, step_size=0.25, track=track))
        for rule in ("gd", "momentum", "adam")
        for track in (False, True)
    }
    untracked = {("gd", False): 0.25 * M, ("momentum", False): 0.25 * M, ("adam", False): 0.25}
    assert sizes == untracked | {(rule, True): 0.25 for rule in ("gd", "momentum", "adam")}
