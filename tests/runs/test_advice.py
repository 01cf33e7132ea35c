"""Warnings come where they should, with their remedy, and nowhere else."""

import warnings
from typing import Any

import numpy as np
import pytest
from agents.cases import make_case

from gossamer import api
from gossamer.data import load
from gossamer.engines.simulation import start_run
from gossamer.errors import GossamerWarning
from gossamer.runs.advice import label_skew, warn_of_agents_apart
from gossamer.runs.settings import make_settings
from gossamer.runs.training import run_training

SHORT = {"steps": 2, "evaluate_every": 1, "baselines": False}


def test_skew_is_nought_for_agents_alike_and_large_for_classes_apart() -> None:
    graph = load("digits")
    there = np.flatnonzero(graph.labelled)
    apart = np.zeros(graph.num_vertices, dtype=np.int64)
    apart[there] = graph.targets[there]
    assert label_skew(graph, apart, 10) == pytest.approx(0.9, abs=0.02)
    alike = np.zeros(graph.num_vertices, dtype=np.int64)
    for c in range(10):
        mine = there[graph.targets[there] == c]
        alike[mine] = np.arange(len(mine)) % 2
    assert label_skew(graph, alike, 2) < 0.05
    assert label_skew(make_case(batch=3).graph, make_case(batch=3).owner, 5) == 0.0  # no classes


@pytest.mark.parametrize(
    ("options", "warned"),
    [
        ({"update": "adam", "track": False}, True),
        ({"update": "adam"}, False),
        ({"update": "momentum"}, False),
        ({"update": "adam", "track": False, "assignment": "uniform"}, False),
        ({"update": "adam", "track": False, "agents": 1}, False),
    ],
    ids=str,
)
def test_local_adam_on_skewed_labels_is_warned_of(options: dict[str, Any], warned: bool) -> None:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", GossamerWarning)
        api.train("digits", **{"step_size": 0.01, "agents": 10, "topology": "complete", **SHORT, **options})
    messages = [str(one.message) for one in caught if "labels differ strongly" in str(one.message)]
    assert len(messages) == warned
    assert all("leave out --no-track" in text for text in messages)


@pytest.mark.parametrize(
    ("options", "warned"),
    [
        ({"update": "adam", "compress": "power:1"}, True),
        ({"update": "adam", "compress": "power:2,bits=8", "track": False, "assignment": "uniform"}, True),
        ({"update": "adam", "compress": "power:8"}, False),
        ({"update": "adam", "compress": "choco:bits=8"}, False),
        ({"update": "adam"}, False),
        ({"update": "momentum", "compress": "power:1"}, False),
        ({"update": "adam", "compress": "power:1", "agents": 1}, False),
    ],
    ids=str,
)
def test_adam_with_a_low_rank_is_warned_of(options: dict[str, Any], warned: bool) -> None:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", GossamerWarning)
        api.train("digits", **{"agents": 10, "topology": "complete", **SHORT, **options})
    messages = [str(one.message) for one in caught if "stay far apart" in str(one.message)]
    assert len(messages) == warned
    assert all("choco:bits=4 or power:8" in text for text in messages)


def test_what_is_not_known_is_no_reason_to_warn() -> None:
    """Ranks that do not lead have no disagreement; and the advice is one that is understood."""
    host = make_case().host()
    settings = make_settings({"compress": "choco:gamma=0.5,bits=8"})
    assert not warn_of_agents_apart(host, settings, [float("nan")] * 9)
    with pytest.warns(GossamerWarning, match="--compress choco:bits=8,gamma=0.12"):
        assert warn_of_agents_apart(host, settings, [10.0**k for k in range(9)])


@pytest.mark.parametrize(("gamma", "warned"), [(",gamma=0.4", True), ("", False)])
def test_agents_that_are_driven_apart_are_warned_of_once(gamma: str, warned: bool) -> None:
    settings = make_settings(
        {"agents": 10, "topology": "complete", "steps": 90, "compress": f"choco:randk=0.1{gamma}", "baselines": False}
    )
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", GossamerWarning)
        run_training(start_run(load("digits"), settings))
    messages = [str(one.message) for one in caught if "move apart" in str(one.message)]
    assert len(messages) == warned
    assert all("--compress choco:randk=0.1,gamma=0.1" in text for text in messages)
