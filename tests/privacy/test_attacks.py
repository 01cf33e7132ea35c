"""Attacks find what algebra says is there, and nothing else."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from privacy.small import deploy, small_graph
from scipy import sparse

from gossamer.data import DataGraph, make_graph
from gossamer.engines.simulation import run_together
from gossamer.errors import GossamerError
from gossamer.privacy.audit import Audit, attack_run, audit_deployment, choose_curious
from gossamer.privacy.features import has_succeeded
from gossamer.privacy.knowledge import Knowledge, check_curious
from gossamer.privacy.membership import attack_membership, score_vertices
from gossamer.privacy.recovery import solve_least_squares, solve_sparse


def audited(
    graph: DataGraph | None = None, curious: Any = (0,), knowledge: Knowledge | None = None, **changes: Any
) -> Audit:
    deployment, settings = deploy(graph, **changes)
    found, seen = audit_deployment(deployment, settings, curious, knowledge)
    return attack_run(found, seen, deployment, run_together, None, 1000)


@pytest.mark.parametrize("seed", [1, 2])
@pytest.mark.parametrize(
    "changes",
    [
        {"dropout": 0.5, "steps": 40, "hidden": 6},
        {"dropout": 0.0, "steps": 8, "hidden": 6},
        {"input_dropout": 0.0, "steps": 4, "hidden": 3, "curious": (1, 2)},
        {"standardise": False, "preset": "paper", "initial_deviation": 0.3, "steps": 40, "keep": "last"},
        {"layers": "polynomial", "order": 2, "dropout": 0.0, "steps": 8, "hidden": 6},
    ],
    ids=str,
)
def test_least_squares_recovers_exactly_the_identifiable_vertices(seed: int, changes: dict[str, Any]) -> None:
    found = audited(small_graph(seed=seed), **changes)
    identifiable = {int(j) for one in found.neighbours for j in one.ranks.vertices[one.ranks.identifiable]}
    attack = found.feature_attack
    assert attack is not None
    assert attack.method == "least squares"
    assert len(attack.reconstructions) == found.boundary_vertices
    recovered = {one.vertex for one in attack.reconstructions if one.succeeded}
    assert recovered == identifiable
    assert len(recovered) > 0
    assert len(recovered) < found.boundary_vertices or changes.get("dropout") != 0.0


def test_secret_masks_leave_evaluations_alone() -> None:
    known, secret = (audited(public_randomness=public, dropout=0.5, steps=40, hidden=6) for public in (True, False))
    assert secret.identifiable_vertices < known.identifiable_vertices
    assert secret.identifiable_vertices == sum(
        int(one.ranks.alone.sum()) for one in audited(dropout=0.0, steps=0, hidden=6).neighbours
    )
    assert secret.feature_attack is not None
    assert secret.feature_attack.count()[0] == secret.identifiable_vertices


def test_masked_weights_leave_the_first_step_unless_agents_mix_alike() -> None:
    how: dict[str, Any] = {"consensus": "masked", "dropout": 0.0, "steps": 8, "hidden": 3}
    ring = audited(topology="ring", **how)
    assert ring.identifiable_vertices == 0  # 3 numbers of the first weights, for 5 features
    assert ring.to_dict()["rank"] == 3
    assert {one.weights for one in ring.neighbours} == {"hidden"}
    assert ring.label_attack is not None
    assert not ring.label_attack.counts  # no single gradient is shown
    plain = audited(topology="ring", **how | {"consensus": "plain"})
    assert {one.weights for one in plain.neighbours} == {"approximate"}
    alike = audited(topology="complete", **how)  # all rows of C are the same: w_z is the observer's own
    assert {one.weights for one in alike.neighbours} == {"exact"}
    assert alike.feature_attack is not None
    assert 0 < alike.identifiable_vertices == alike.feature_attack.count()[0]


def test_coalitions_that_take_masked_sums_apart() -> None:
    how: dict[str, Any] = {"consensus": "masked", "agents": 5, "topology": "ring", "steps": 2}
    alone, together = (audited(curious=who, **how) for who in ((0,), (0, 2)))
    assert alone.separable == ()
    assert together.separable == ()  # agent 1 mixes 0 and 2; 0 and 2 mix it with 4 and with 3
    surrounding = audited(curious=(0, 1, 3), **how)
    assert surrounding.separable == (2, 4)
    assert surrounding.to_dict()["separable_sums"] == [2, 4]
    assert audited(curious=(0, 1, 3), **how | {"consensus": "plain"}).separable == ()


@pytest.mark.parametrize("changes", [{}, {"boundary_bits": 16}, {"preset": "paper", "keep": "last"}], ids=str)
def test_labels_that_stand_alone_are_found(changes: dict[str, Any]) -> None:
    found = audited(**changes)
    attack = found.label_attack
    assert attack is not None
    right, tried = attack.count()
    assert tried == sum(one.num_labels for one in found.neighbours) > 0
    assert right >= sum(one.labels_alone for one in found.neighbours) > 0
    assert attack.baseline is not None
    assert attack.baseline < right / tried


def test_several_labels_a_vertex_are_found() -> None:
    graph = small_graph()
    targets = np.random.default_rng(0).random((36, 4)) < 0.5
    found = audited(replace(graph, targets=targets, num_classes=4))
    assert found.label_attack is not None
    assert found.label_attack.count()[0] >= sum(one.labels_alone for one in found.neighbours) > 0


@pytest.mark.parametrize("update", ["momentum", "adam"])
def test_the_first_gradient_gives_the_counts_of_classes(update: str) -> None:
    found = audited(update=update, initial_deviation=1e-3)
    assert found.label_attack is not None
    assert min(found.label_attack.counts.values()) > 0.97
    assert found.label_attack.counts_baseline is not None
    assert found.label_attack.counts_baseline < 0.97


def test_real_values_have_no_label_attack() -> None:
    graph = small_graph()
    values = np.random.default_rng(0).normal(size=(36, 2))
    found = audited(replace(graph, targets=values, num_classes=None))
    assert found.label_attack is None
    assert found.to_dict()["attacks"]["labels"] is None


@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_sparse_features_are_found_from_fewer_equations_than_features(sign: float) -> None:
    random = np.random.default_rng(0)
    features = (random.random((36, 80)) < 0.04).astype(float)
    features[np.arange(36), random.integers(0, 80, 36)] = sign
    graph = small_graph()
    words = make_graph("words", graph.edges, sparse.csr_array(features), graph.targets,
                       train=graph.train, validation=graph.validation, test=graph.test)  # fmt: skip
    found = audited(words, hidden=30, dropout=0.0, steps=1, evaluate_every=1)
    attack = found.feature_attack
    assert attack is not None
    assert attack.method == ("a non-negative lasso" if sign > 0 else "orthogonal matching pursuit")
    assert found.to_dict()["rank"] == 60
    right, _ = attack.count()
    assert right > 0.3 * sum(int(one.ranks.alone.sum()) for one in found.neighbours)


def check_close(found: Any, expected: Any, atol: float) -> None:
    np.testing.assert_allclose(found, expected, atol=atol)


def test_solvers() -> None:
    random = np.random.default_rng(0)
    A, x = random.normal(size=(12, 6)), random.normal(size=6)
    check_close(solve_least_squares(A, A @ x), x, atol=1e-10)
    assert solve_least_squares(A[:, [0, 1, 1]], A[:, 0]) is None
    assert solve_least_squares(A[:5], A[:5] @ x) is None
    wide, few = random.normal(size=(40, 100)), np.zeros(100)
    few[[3, 50, 77]] = 1.0, 2.0, -1.0
    check_close(solve_sparse(wide, wide @ few, np.array([3, 4, 5]), 1), few, atol=1e-8)
    few[77] = 0.5
    check_close(solve_sparse(wide, wide @ few, np.array([3, 4]), 1, nonnegative=True), few, atol=1e-8)
    assert solve_sparse(wide[:6], wide[:6] @ few, np.array([3, 4]), 1) is None


def test_success_is_every_feature_within_a_thousandth_of_the_largest() -> None:
    x = np.array([0.0, 2.0, -4.0])
    assert has_succeeded(x + 0.003, x)
    assert not has_succeeded(x + np.array([0.0, 0.0, 0.005]), x)
    assert not has_succeeded(None, x)


def test_who_may_be_curious() -> None:
    assert check_curious([3, 1], 4) == (1, 3)
    for wrong, told in (([4], "from 0 to 3"), ([-1], "got -1"), ([1, 1], "once"), ([0, 1, 2, 3], "nobody is left")):
        with pytest.raises(GossamerError, match=told):
            check_curious(wrong, 4)
    deployment, _ = deploy()
    a, dense = deployment.assignment, deployment.shift.toarray()
    counts = [int(dense[a == k][:, a != k].any(0).sum()) for k in range(4)]
    assert choose_curious(deployment) == int(np.argmax(counts))


def test_links_that_change_are_refused() -> None:
    deployment, settings = deploy()
    twice = replace(deployment, topologies=deployment.topologies * 2)
    with pytest.raises(GossamerError, match="change from step to step"):
        audit_deployment(twice, settings, (0,))


@pytest.mark.parametrize(
    ("options", "found"),
    [
        ({"before": 4}, "the first one here is a layer without the graph"),
        ({"layers": "appnp"}, "the first one here is a layer without the graph"),
        ({"after": 4}, "the last one here is a layer without the graph"),
        ({"residual": True}, "the first one here is a Convolution with a residual connection"),
        ({"layers": "gcn:width=3/gat"}, "the last one here is a Gat;"),
        ({"layers": "sage"}, "the first one here is a Sage;"),
    ],
    ids=str,
)
def test_networks_that_the_algebra_does_not_know_are_refused(options: dict[str, Any], found: str) -> None:
    """Rather than told to reveal nothing."""
    deployment, settings = deploy(**options)
    with pytest.raises(GossamerError, match=found):
        audit_deployment(deployment, settings, (0,))


def test_a_network_without_the_graph_sends_no_rows() -> None:
    deployment, settings = deploy(layers="mlp")
    found, seen = audit_deployment(deployment, settings, (0,))
    assert not seen.evaluation
    assert not seen.training
    assert not seen.backward
    assert all(one.num_labels == 0 for one in found.neighbours)


def test_membership_is_found_where_a_model_remembers_and_not_where_it_does_not() -> None:
    graph = small_graph(n=200, share=1.0)
    random = np.random.default_rng(0)

    def remember(strength: float) -> Any:
        def predict(shadow: DataGraph) -> Any:
            logits = random.normal(size=(200, 3))
            logits[np.arange(200), shadow.targets] += strength * shadow.train
            return logits

        return predict

    strong, weak = (attack_membership(graph, 8, remember(s), 0) for s in (6.0, 0.0))
    assert strong.auc > 0.95 > 0.6 > weak.auc > 0.4
    assert strong.true_rate > 0.5 > 0.1 > weak.true_rate
    with pytest.raises(GossamerError, match="at least 4 shadow runs"):
        attack_membership(graph, 2, remember(0.0), 0)


def test_scores_of_membership_are_logits_of_the_true_class() -> None:
    logits = np.random.default_rng(0).normal(size=(5, 3))
    targets = np.array([0, 2, 1, 1, 0])
    p = (np.exp(logits) / np.exp(logits).sum(1, keepdims=True))[np.arange(5), targets]
    np.testing.assert_allclose(score_vertices(logits, targets), np.log(p / (1 - p)), atol=1e-12)


def test_a_network_without_rows_and_one_without_consensus() -> None:
    nothing = audited(layers="mlp", steps=2)
    assert nothing.boundary_vertices == 0
    apart = audited(consensus_every=0, steps=2)
    assert {one.weights for one in apart.neighbours} == {"none"}
    mixed_first = audited(mix_first=True, consensus="masked", update="momentum", steps=2)
    assert {one.weights for one in mixed_first.neighbours} == {"hidden"}
