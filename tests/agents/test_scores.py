"""Scores from sums over hosts against scikit-learn's from all outputs."""

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from agents.cases import make_case
from sklearn import metrics

from gossamer.agents.passes import Pass
from gossamer.agents.ranking import (
    LARGEST_LOGIT,
    NUM_BINS,
    count_ranked,
    make_histograms,
    rank_outputs,
    score_exactly,
    score_histograms,
)
from gossamer.agents.scores import (
    SCORES,
    Scores,
    ScoreSums,
    choose_score,
    compute_scores,
    count_sums,
    list_scores,
    score_sums,
)
from gossamer.agents.share import MASKS
from gossamer.data.tasks import Task, find_task
from gossamer.errors import GossamerError

TASKS: tuple[Task, ...] = ("multiclass", "multilabel", "regression")


def draw(task: Task, n: int, width: int, seed: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Outputs and targets that have something to do with each other."""
    random = torch.Generator().manual_seed(seed)
    outputs = torch.randn(n, width, generator=random, dtype=torch.float64)
    noise = torch.randn(n, width, generator=random, dtype=torch.float64)
    if task == "multiclass":
        return outputs, (outputs + 1.5 * noise).argmax(1)
    return outputs, outputs + noise > 0.8 if task == "multilabel" else 3 + outputs + 0.3 * noise


def make_masks(n: int, seed: int) -> dict[str, torch.Tensor]:
    """Masks that overlap, and leave some vertices out."""
    random = torch.Generator().manual_seed(seed)
    return {name: torch.rand(n, generator=random) < share for name, share in zip(MASKS, (0.2, 0.5, 0.6), strict=True)}


def make_pass_of(targets: torch.Tensor, masks: dict[str, torch.Tensor], weights: torch.Tensor | None = None) -> Pass:
    return replace(make_case().host().full_pass, targets=targets, masks=masks, weights=weights)


def split(outputs: torch.Tensor, on: Pass, hosts: int, binned: bool = False, seed: int = 0) -> list[ScoreSums]:
    """Sums of hosts among which the vertices are divided at random."""
    of = torch.randint(0, hosts, (len(outputs),), generator=torch.Generator().manual_seed(seed))
    parts = []
    for host in range(hosts):
        own = of == host
        masks = {name: mask[own] for name, mask in on.masks.items()}
        weights = None if on.weights is None else on.weights[own]
        part = replace(on, targets=on.targets[own], masks=masks, weights=weights)
        parts.append(score_sums(part, outputs[own], binned))
    return parts


def expect_loss(task: Task, outputs: torch.Tensor, targets: torch.Tensor) -> float:
    """The mean loss by definition."""
    z, y = outputs.numpy(), targets.numpy()
    if task == "regression":
        return float(np.square(z - y).mean())
    if task == "multiclass":
        return float(metrics.log_loss(y, outputs.softmax(1).numpy(), labels=range(z.shape[1])))
    p = outputs.sigmoid().numpy()
    return float(-np.where(y, np.log(p), np.log1p(-p)).mean())


def expect(task: Task, outputs: torch.Tensor, targets: torch.Tensor) -> dict[str, float]:
    """Scores by scikit-learn."""
    z, y, loss = outputs.numpy(), targets.numpy(), expect_loss(task, outputs, targets)
    if task == "regression":
        mse, mae = metrics.mean_squared_error(y, z), metrics.mean_absolute_error(y, z)
        return {"loss": loss, "mse": mse, "mae": mae, "rmse": math.sqrt(mse), "r2": metrics.r2_score(y, z)}
    chosen = z.argmax(1) if task == "multiclass" else z > 0
    macro_f1, micro_f1 = (metrics.f1_score(y, chosen, average=kind, zero_division=0) for kind in ("macro", "micro"))
    return {"loss": loss, "accuracy": float((chosen == y).mean()), "macro_f1": macro_f1, "micro_f1": micro_f1}


@pytest.mark.parametrize(
    ("task", "width"), [*((task, width) for task in TASKS for width in (2, 3, 7)), ("regression", 1)]
)  # one label is not a matrix of indicators to scikit-learn
@pytest.mark.parametrize("hosts", [1, 5])
def test_sums_over_hosts_give_the_scores_of_scikit_learn(task: Task, width: int, hosts: int) -> None:
    outputs, targets = draw(task, 400, width, seed=width)
    on = make_pass_of(targets, make_masks(400, seed=1))
    found = compute_scores(split(outputs, on, hosts), task, width)
    for name, mask in on.masks.items():
        expected = expect(task, outputs[mask], targets[mask])
        assert found[name].keys() == expected.keys()
        assert found[name] == pytest.approx(expected, rel=1e-11)


@pytest.mark.parametrize("task", ["multilabel", "regression"])
def test_a_time_axis_is_summed_over(task: Task) -> None:
    outputs, targets = draw(task, 60, 3, seed=0)
    masks = make_masks(60, seed=2)
    found = score_sums(make_pass_of(targets, masks), outputs)
    timed = make_pass_of(targets.view(12, 5, 3), {name: mask.view(12, 5) for name, mask in masks.items()})
    for name, part in score_sums(timed, outputs.view(12, 5, 3)).items():
        assert torch.equal(part, found[name])


def test_classes_that_do_not_occur_are_left_out_and_labels_are_not() -> None:
    """Class 3 is neither predicted nor actual, class 2 predicted in vain; label 2 is never there."""
    outputs = torch.eye(4, dtype=torch.float64)[[0, 0, 1, 2, 1]]
    targets = torch.tensor([0, 0, 1, 1, 0])
    masks = {name: torch.ones(5, dtype=torch.bool) for name in MASKS}
    found = compute_scores([score_sums(make_pass_of(targets, masks), outputs)], "multiclass", 4)["test"]
    assert found["macro_f1"] == pytest.approx((4 / 5 + 2 / 4 + 0) / 3)
    assert found["micro_f1"] == found["accuracy"] == pytest.approx(3 / 5)
    labels = torch.tensor([[True, False, False]] * 5)
    found = compute_scores([score_sums(make_pass_of(labels, masks), -outputs[:, 1:] - 1)], "multilabel", 3)["test"]
    assert (found["macro_f1"], found["micro_f1"]) == (0.0, 0.0)
    assert found["accuracy"] == pytest.approx(10 / 15)


@pytest.mark.parametrize("task", TASKS)
def test_weights_change_the_loss_alone(task: Task) -> None:
    outputs, targets = draw(task, 90, 3, seed=4)
    weights = torch.rand(90, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    masks = make_masks(90, seed=3)
    plain, ones, weighted = (
        compute_scores(split(outputs, make_pass_of(targets, masks, given), 3), task, 3)
        for given in (None, torch.ones(90), weights)
    )
    assert ones == {name: pytest.approx(part, rel=1e-12) for name, part in plain.items()}
    for name, mask in masks.items():
        each = [expect_loss(task, outputs[i : i + 1], targets[i : i + 1]) for i in mask.nonzero().flatten().tolist()]
        expected = np.average(each, weights=weights[mask].numpy())
        assert weighted[name].pop("loss") == pytest.approx(expected, rel=1e-11)
        assert plain[name].pop("loss") != pytest.approx(expected)
    assert weighted == plain


def test_errors_are_in_the_users_units() -> None:
    """The targets were divided by `scale` after an offset was taken off, which errors and r2 do not see."""
    offset, scale = torch.tensor([5.0, -300.0, 0.0]).double(), torch.tensor([0.5, 20.0, 1.0]).double()
    outputs, targets = draw("regression", 80, 3, seed=5)
    on = make_pass_of(targets, make_masks(80, seed=5))
    found = compute_scores(split(outputs, on, 2), "regression", 3, scale)
    for name, mask in on.masks.items():
        expected = expect("regression", outputs[mask] * scale + offset, targets[mask] * scale + offset)
        expected["loss"] = expect_loss("regression", outputs[mask], targets[mask])
        assert found[name] == pytest.approx(expected, rel=1e-11)


@pytest.mark.parametrize(("value", "met"), [(0.0, True), (0.0, False), (0.1, True), (0.1, False), (1e6, False)])
def test_r2_of_targets_that_are_all_the_same(value: float, met: bool) -> None:
    targets = torch.full((30, 1), value, dtype=torch.float64)
    outputs = targets if met else targets + torch.linspace(-1, 1, 30, dtype=torch.float64)[:, None]
    on = make_pass_of(targets, {name: torch.ones(30, dtype=torch.bool) for name in MASKS})
    assert compute_scores([score_sums(on, outputs)], "regression", 1)["test"]["r2"] == float(met)


@pytest.mark.parametrize("task", TASKS)
def test_an_empty_mask_has_no_score(task: Task) -> None:
    outputs, targets = draw(task, 20, 3, seed=0)
    masks = {"train": torch.ones(20).bool(), "validation": torch.zeros(20).bool(), "test": torch.zeros(20).bool()}
    masks["test"][7] = True
    found = compute_scores(split(outputs, make_pass_of(targets, masks), 3, binned=True), task, 3)
    assert all(map(math.isnan, found["validation"].values()))
    assert all(map(math.isfinite, found["train"].values()))
    unknown = {"r2"} if task == "regression" else {"roc_auc_binned", "average_precision_binned"}
    assert {name for name, value in found["test"].items() if math.isnan(value)} == unknown  # of a single vertex
    assert all(map(math.isnan, score_exactly(outputs[:0], targets[:0, None].bool()).values()))


def macro(score: Any, outputs: torch.Tensor, targets: torch.Tensor) -> float:
    """Of class 1's probability, or the mean over classes with positives and negatives of each one's."""
    p = outputs.softmax(1).numpy() if targets.dtype == torch.int64 else outputs.sigmoid().numpy()
    there = np.eye(p.shape[1], dtype=bool)[targets] if targets.dtype == torch.int64 else targets.numpy()
    columns = [1] if p.shape[1] == 2 and targets.dtype == torch.int64 else range(p.shape[1])
    return float(np.mean([score(there[:, c], p[:, c]) for c in columns if 0 < there[:, c].sum() < len(there)]))


def score_both(outputs: torch.Tensor, targets: torch.Tensor) -> tuple[dict[str, float], dict[str, float]]:
    """Exact and binned ranking scores."""
    logits, positive = rank_outputs(outputs, targets)
    return score_exactly(logits, positive), score_histograms(make_histograms(logits, positive), logits.shape[1])


@pytest.mark.parametrize("width", [2, 3, 7])
@pytest.mark.parametrize("task", ["multiclass", "multilabel"])
def test_ranking_scores(task: Task, width: int) -> None:
    outputs, targets = draw(task, 500, width, seed=width)
    if task == "multilabel":
        targets[:, 0] = True  # without negatives
    exact, binned = score_both(outputs, targets)
    for name, score in (("roc_auc", metrics.roc_auc_score), ("average_precision", metrics.average_precision_score)):
        assert exact[name] == pytest.approx(macro(score, outputs, targets), rel=1e-11)
        assert binned[f"{name}_binned"] == pytest.approx(exact[name], abs=0.01)
        assert exact[name] < 0.95


@pytest.mark.parametrize("task", ["multiclass", "multilabel"])
def test_binned_scores_are_those_of_bins_as_ties_and_within_their_bounds(task: Task) -> None:
    """The outputs of two classes, or of one label, at few places: many share a bin."""
    random = np.random.default_rng(7)
    z = torch.from_numpy(random.normal(0, 0.6, 3000))
    there = torch.from_numpy(random.random(3000)) < torch.sigmoid(z)
    outputs = torch.stack([torch.zeros_like(z), z], 1) if task == "multiclass" else z[:, None]
    exact, binned = score_both(outputs, there.long() if task == "multiclass" else there[:, None])
    bins = ((z + LARGEST_LOGIT) / (2 * LARGEST_LOGIT) * NUM_BINS).floor().numpy()
    assert binned["roc_auc_binned"] == pytest.approx(metrics.roc_auc_score(there, bins), rel=1e-12)
    assert binned["average_precision_binned"] == pytest.approx(metrics.average_precision_score(there, bins), rel=1e-12)
    P, N = int(there.sum()), int((~there).sum())
    area = precision = above = false = 0.0
    for b in np.unique(bins)[::-1]:
        p, q = int(there.numpy()[bins == b].sum()), int((~there).numpy()[bins == b].sum())
        area += p * q / (2 * P * N)
        if p:
            precision += p / P * ((above + p) / (above + p + false) - (above + 1) / (above + 1 + false + q))
        above, false = above + p, false + q
    for name, bound in (("roc_auc", area), ("average_precision", precision)):
        assert 0 < abs(exact[name] - binned[f"{name}_binned"]) <= bound < 0.05


def test_binned_scores_are_exact_where_no_two_share_a_bin() -> None:
    random = np.random.default_rng(3)
    middles = (np.arange(NUM_BINS) + 0.5) / NUM_BINS * 2 * LARGEST_LOGIT - LARGEST_LOGIT
    middles[0], middles[-1] = -1e3, 1e3  # the first and the last bin are open
    labels = torch.from_numpy(random.random((NUM_BINS, 3)) < 0.3)
    outputs = torch.from_numpy(np.stack([random.permutation(middles) for _ in range(3)], 1))
    exact, binned = score_both(outputs, labels)
    assert list(binned.values()) == pytest.approx(list(exact.values()), rel=1e-12)


def test_sure_predictions_are_still_ranked() -> None:
    """Probabilities that are 1 in float64 have logits that differ; outputs that are not finite have no score."""
    outputs = torch.tensor([[100.0, 0.0, -1.0], [200.0, 0.0, -1.0], [0.0, 300.0, 1.0], [0.0, 1.0, 80.0]])
    logits, _ = rank_outputs(outputs, torch.tensor([0, 0, 1, 2]))
    assert logits.isfinite().all()
    assert logits[0, 0] == pytest.approx(100 - math.log(1 + math.exp(-1)), rel=1e-12)
    assert logits[0, 0] < logits[1, 0]
    assert score_exactly(*rank_outputs(outputs * math.inf, torch.tensor([0, 0, 1, 2])))["roc_auc"] != 1
    broken = torch.full((4, 3), math.nan)
    exact, binned = score_both(broken, torch.tensor([0, 1, 2, 2]))
    assert all(map(math.isnan, exact.values()))
    assert set(binned.values()) >= {0.5}


@pytest.mark.parametrize("width", [2, 4])
@pytest.mark.parametrize("task", ["multiclass", "multilabel"])
def test_histograms_add_over_hosts(task: Task, width: int) -> None:
    outputs, targets = draw(task, 300, width, seed=1)
    on = make_pass_of(targets, make_masks(300, seed=1))
    parts = split(outputs, on, 4, binned=True)
    assert {len(part[name]) for part in parts for name in MASKS} == {count_sums(task, width, binned=True)}
    assert count_ranked(width, task == "multiclass") == (1 if (task, width) == ("multiclass", 2) else width)
    found = compute_scores(parts, task, width)
    plain = compute_scores(split(outputs, on, 4), task, width)
    for name, mask in on.masks.items():
        assert found[name] == plain[name] | score_both(outputs[mask], targets[mask])[1]


def test_sums_of_another_length_are_refused() -> None:
    old = {name: torch.ones(3) for name in MASKS}
    with pytest.raises(GossamerError, match="expected 12 or 2892 sums on train for multiclass with 3 outputs, got 3; "):
        compute_scores([old], "multiclass", 3)
    mixed = [{name: torch.ones(count_sums("multiclass", 3, binned)) for name in MASKS} for binned in (False, True)]
    with pytest.raises(GossamerError, match="got 12, 2892"):
        compute_scores(mixed, "multiclass", 3)


def test_the_score_of_a_setting() -> None:
    usual = {task: choose_score("auto", task).name for task in TASKS}
    assert usual == {"multiclass": "accuracy", "multilabel": "loss", "regression": "mse"}
    for task in TASKS:
        for name in SCORES:
            if name in list_scores(task):
                assert choose_score(name, task) is SCORES[name]
            else:
                with pytest.raises(GossamerError, match=f"score '{name}' does not fit .*{task}: take .* auto, .*loss"):
                    choose_score(name, task)
    assert SCORES["roc_auc"].key() == "roc_auc"
    assert SCORES["roc_auc"].key(binned=True) == "roc_auc_binned"
    assert SCORES["accuracy"].key(binned=True) == "accuracy"
    better: Scores = {"accuracy": {"a": 0.9, "b": 0.8}, "mse": {"a": 0.1, "b": 0.2}, "r2": {"a": 0.5, "b": -1.0}}
    for name, values in better.items():
        assert SCORES[name].signed(values["a"]) > SCORES[name].signed(values["b"])


def test_every_score_is_computed_for_its_tasks() -> None:
    for task in TASKS:
        outputs, targets = draw(task, 50, 3, seed=0)
        assert find_task(targets) == task
        on = make_pass_of(targets, make_masks(50, seed=0))
        found = compute_scores([score_sums(on, outputs, binned=True)], task, 3)["test"]
        assert set(found) == {SCORES[name].key(binned=True) for name in list_scores(task)}
