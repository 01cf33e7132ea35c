"""Warnings come where they should, with their remedy, and nowhere else."""

import warnings
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from agents.cases import make_case
from oracles.graphs import path_graph
from rich.console import Console

from gossamer import api
from gossamer.data import load
from gossamer.engines.simulation import start_run
from gossamer.errors import DivergedError, GossamerWarning
from gossamer.report.terminal import show_scores
from gossamer.runs.advice import label_skew, measure_guessing, warn_of_agents_apart, warn_of_noise
from gossamer.runs.settings import make_settings
from gossamer.runs.training import run_training

SHORT: dict[str, Any] = {"steps": 2, "evaluate_every": 1, "baselines": False}


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
        ({"layers": "gcn", "heads": 4}, "heads = 4 has no effect"),
        ({"layers": "gat", "shift": "random-walk"}, "shift = 'random-walk' has no effect"),
        ({"layers": "gat", "heads": 4}, None),
        ({"layers": "gcn", "shift": "random-walk"}, None),
        ({"layers": "gat/gcn", "heads": 4, "shift": "random-walk"}, None),
        ({"layers": "gat", "privacy": "edge:epsilon=8,delta=1e-5,noise=9"}, "layers = 'gat' has no effect: private"),
        ({"layers": "gcn", "privacy": "edge:epsilon=8,delta=1e-5,noise=9"}, None),
        ({"missing": "last"}, "missing = 'last' has no effect"),
        ({"topology": "one-peer", "max_age": 3}, "max_age = 3 has no effect"),
        ({"topology": "failing:0.1", "missing": "last", "max_age": 3}, None),
    ],
    ids=str,
)
def test_options_without_effect_are_warned_of(options: dict[str, Any], warned: str | None) -> None:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", GossamerWarning)
        api.train("digits", agents=2, **{**SHORT, **options})
    messages = [str(one.message) for one in caught if "has no effect" in str(one.message)]
    assert [text[: len(warned or "")] for text in messages] == ([] if warned is None else [warned])


@pytest.mark.parametrize(("layers", "warned"), [("gcn", 0), ("gat", 1), ("sage", 1), ("gat/gcn", 0)])
def test_edge_weights_that_no_layer_uses_are_warned_of(layers: str, warned: int) -> None:
    graph = make_case().graph
    assert len(np.unique(graph.weights)) > 1
    for data, count in ((graph, warned), (replace(graph, weights=np.ones(len(graph.edges))), 0)):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always", GossamerWarning)
            api.train(data, agents=2, layers=layers, hidden=8, **SHORT)
        assert sum("edge weights are not used" in str(one.message) for one in caught) == count


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
        {"preset": "paper", "agents": 10, "topology": "complete", "steps": 90, "compress": f"choco:randk=0.1{gamma}"}
    )
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", GossamerWarning)
        run_training(start_run(load("digits"), settings))
    messages = [str(one.message) for one in caught if "move apart" in str(one.message)]
    assert len(messages) == warned
    assert all("--compress choco:randk=0.1,gamma=0.1" in text for text in messages)


def train_and_catch(dataset: Any, **options: Any) -> tuple[api.Result, list[str]]:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", GossamerWarning)
        small = {"preset": "paper", "agents": 2, "topology": "complete", "baselines": False}
        result = api.train(dataset, **{**small, **options})
    return result, [str(one.message) for one in caught]


@pytest.mark.parametrize("mask", ["validation", "test"])
def test_an_empty_mask_is_warned_of_and_its_score_is_a_dash(mask: str, capsys: pytest.CaptureFixture[str]) -> None:
    result, messages = train_and_catch(path_graph(**{mask: []}), **SHORT)
    (text,) = messages
    assert text.startswith(f"the {mask} mask is empty")
    assert f"mark some labelled vertices for {mask}" in text
    show_scores(Console(width=100), {"distributed": result.summary["distributed"]}, "accuracy")
    shown = capsys.readouterr().out
    assert "nan" not in shown
    assert " - " in shown
    assert not train_and_catch(path_graph(), **SHORT)[1]


LABELS = [[0, 1], [1, 1], [0, 1], [1, 0]]


def test_labels_that_no_training_vertex_has_are_warned_of() -> None:
    _, messages = train_and_catch(path_graph(targets=[[1, 0, 0], [0, 0, 0], [1, 1, 1], [1, 1, 0]]), **SHORT)
    (text,) = messages
    assert text.startswith("2 of 3 classes have no training label and will not be learnt (1, 2); mark some")


def test_skew_of_labels_is_that_of_their_frequencies() -> None:
    graph = path_graph(targets=LABELS, train=[0, 1, 2, 3], validation=[], test=[])  # 2 of the first, 3 of the second
    agents = np.array([0, 0, 0, 1])  # 1 and 3; 1 and 0
    assert label_skew(graph, agents, 2) == pytest.approx((4 * abs(1 / 4 - 2 / 5) + 1 * abs(1 - 2 / 5)) / 5)


@pytest.mark.parametrize(("names", "shown"), [(None, "2, 3"), (("a", "b", "c", "d"), "c, d")])
def test_classes_without_a_training_label_are_warned_of(names: tuple[str, ...] | None, shown: str) -> None:
    graph = path_graph(targets=[0, 1, 2, 3], class_names=names)
    _, messages = train_and_catch(graph, **SHORT)
    (text,) = messages
    assert text.startswith(f"2 of 4 classes have no training label and will not be learnt ({shown}); mark some")


def test_the_loss_of_guessing_is_that_of_the_best_constant() -> None:
    settings = make_settings({"agents": 2, "topology": "complete", "standardise": False})
    classes = start_run(path_graph(train=[0, 1, 2], validation=[], targets=[0, 1, 1, 0]), settings)
    assert measure_guessing(classes) == pytest.approx(-(np.log(1 / 3) + 2 * np.log(2 / 3)) / 3)
    values = start_run(path_graph(train=[0, 1, 2], validation=[], targets=[[1.0, 8], [2, 8], [6, 2], [0, 0]]), settings)
    assert measure_guessing(values) == pytest.approx((np.var([1, 2, 6]) + np.var([8, 8, 2])) / 2)
    labels = start_run(path_graph(train=[0, 1, 2], validation=[], targets=LABELS), settings)
    assert measure_guessing(labels) == pytest.approx(-(np.log(1 / 3) + 2 * np.log(2 / 3)) / 3 / 2)  # the second is 0


@pytest.mark.parametrize("targets", [[0, 1, 0, 1], [1.0, 2.0, 1.5, 0.5]])
@pytest.mark.parametrize(
    ("options", "warned"), [({"initial_deviation": 0.0}, True), ({"steps": 20}, False), ({}, False)]
)
def test_a_loss_that_stays_at_that_of_guessing_is_warned_of(
    targets: list[float], options: dict[str, Any], warned: bool
) -> None:
    """Weights that are nought stay so; a short run has had no chance to learn."""
    graph = path_graph(targets=targets, features=np.eye(4), weights=None)
    how = {"initial_deviation": 0.5, "dropout": 0.0, "update": "adam", "step_size": 0.1, "steps": 100, "hidden": 8}
    result, messages = train_and_catch(graph, **{**how, **options})
    nothing = [text for text in messages if text.startswith("nothing was learnt: after 100 steps the training loss is")]
    assert len(nothing) == len(messages) == warned, result.summary["distributed"]
    assert all("try another --step-size" in text for text in nothing)


def test_weights_that_are_kept_too_early_are_warned_of() -> None:
    """Weights near nought predict the first class, which all validation vertices have."""
    graph = path_graph(targets=[0, 1, 0, 0], train=[0, 1], validation=[2], test=[3], features=np.eye(4))
    how = {"preset": "default", "layers": "linear", "initial_deviation": 0.0, "dropout": 0.0, "steps": 100}
    (text,) = train_and_catch(graph, **how)[1]
    assert text.startswith("the weights of step 1 are kept for their validation accuracy, and their training loss, 0.6")
    assert text.endswith("choose by another score, as --score loss does, or take --keep last")
    (fitted,) = train_and_catch(graph, **how, score="loss")[1]
    assert "of step 1 are kept for their validation loss" in fitted
    assert fitted.endswith("try more training labels or --weight-decay, or take --keep last")
    assert not train_and_catch(graph, **how, keep="last")[1]


def test_plain_consensus_that_does_not_hold_the_agents_together_is_warned_of() -> None:
    """On the way, once, and at the end; without consensus agents are to differ."""
    graph = load("digits")
    how = {"agents": 5, "update": "gd", "step_size": 0.5, "steps": 100, "initial_deviation": 0.1}
    _, messages = train_and_catch(graph, **how, consensus_every=1000)
    assert sum("the agents' weights move apart" in text for text in messages) <= 1
    (end,) = [text for text in messages if text.startswith("the agents have not agreed")]
    assert "--step-size" in end
    assert not train_and_catch(graph, **how, consensus_every=0)[1]
    assert not train_and_catch(graph, **how)[1]
    host = make_case().host()
    with pytest.warns(GossamerWarning, match=r"the agents' weights move apart.*try a smaller --step-size"):
        assert warn_of_agents_apart(host, make_settings({}), [10.0**k for k in range(9)])


@pytest.mark.parametrize("update", ["gd", "momentum"])
def test_absurd_weights_are_a_divergence_although_the_loss_is_finite(update: str) -> None:
    with pytest.raises(DivergedError, match=r"weights beyond 1e\+12 at step 10: the run has diverged; try a smaller"):
        train_and_catch("digits", agents=10, topology="admm", update=update, step_size=1e9, steps=10)


def test_large_weights_are_warned_of() -> None:
    _, messages = train_and_catch("digits", update="adam", step_size=1e9, steps=50)
    assert any("try a smaller --step-size" in text and text.startswith("a weight is") for text in messages)


def test_a_validation_score_that_is_not_defined_is_warned_of() -> None:
    graph = load("blocks:vertices=60,edges=150,features=5,classes=2,blocks=2")
    alone = np.flatnonzero(graph.validation)[:1]
    one = replace(graph, validation=np.isin(np.arange(60), alone))
    options: dict[str, Any] = {"agents": 3, "topology": "complete", **SHORT}
    with pytest.warns(GossamerWarning, match="roc_auc is not defined on the 1 validation examples.*another --score"):
        api.train(one, score="roc_auc", **options)
    with warnings.catch_warnings():
        warnings.simplefilter("error", GossamerWarning)
        api.train(one, **options)


def test_few_training_vertices_for_a_budget() -> None:
    spec = "node:epsilon={},delta=1e-5,noise={}"
    few = make_settings({"privacy": spec.format(8, 0.6)})
    with pytest.warns(GossamerWarning, match="160 training vertices are few for epsilon 8"):
        warn_of_noise(160, few)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warn_of_noise(4500, few)
        warn_of_noise(160, make_settings({"privacy": "edge:epsilon=8,delta=1e-5,noise=0.6"}))
        warn_of_noise(160, make_settings({"privacy": "node:epsilon=inf,delta=1e-5,noise=0"}))
        warn_of_noise(160, make_settings({}))
