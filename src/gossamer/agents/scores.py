"""Scores of predictions: sums over vertices that hosts and agents can add, and the scores that they amount to.

The sums of a mask are one vector of float64. Its parts, for C classes or labels, or o real values:

    multi-class, multi-label    loss, weight, count, right [C], predicted [C], actual [C](, histograms of ranking.py)
    regression                  loss, weight, count, sum of e^2 [o], of |e| [o], of y [o], of y^2 [o]

The first two are the weighted sum of losses and the sum of weights. Other scores count every example once.
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass

import torch
from torch import Tensor

from gossamer.agents.passes import Pass
from gossamer.agents.ranking import (
    BINNED,
    NUM_BINS,
    RANKING_SCORES,
    count_ranked,
    make_histograms,
    rank_outputs,
    score_histograms,
)
from gossamer.agents.share import MASKS
from gossamer.data.tasks import Task, find_task
from gossamer.errors import GossamerError
from gossamer.model.losses import losses

ScoreSums = dict[str, Tensor]  # for each mask
Scores = dict[str, dict[str, float]]  # for each mask, by name

LARGEST_SUM = 1e300  # of losses and errors: scores of it are finite
CONSTANT = 1e-14  # share of the squares below which a variance is rounding


@dataclass(frozen=True)
class ScoreKind:
    """A score that a run can be validated on."""

    name: str
    tasks: tuple[Task, ...]
    higher_is_better: bool = True
    needs_ranking: bool = False  # of all outputs, or histograms of them

    def key(self, binned: bool = False) -> str:
        """Name of its value among scores; `binned` where ranking scores come from histograms."""
        return self.name + BINNED if self.needs_ranking and binned else self.name

    def signed(self, value: float) -> float:
        """The value with the sign by which higher is better."""
        return value if self.higher_is_better else -value


_DECISIONS: tuple[Task, ...] = ("multiclass", "multilabel")
_VALUES: tuple[Task, ...] = ("regression",)
SCORES = {
    kind.name: kind
    for kind in (
        ScoreKind("accuracy", _DECISIONS),
        ScoreKind("macro_f1", _DECISIONS),
        ScoreKind("micro_f1", _DECISIONS),
        *(ScoreKind(name, _DECISIONS, needs_ranking=True) for name in RANKING_SCORES),
        ScoreKind("loss", _DECISIONS + _VALUES, higher_is_better=False),
        *(ScoreKind(name, _VALUES, higher_is_better=False) for name in ("mse", "mae", "rmse")),
        ScoreKind("r2", _VALUES),
    )
}
# Of rare labels, the random outputs of untrained weights have a better F1 than those of a network that begins to learn.
USUAL_SCORES: dict[Task, str] = {"multiclass": "accuracy", "multilabel": "loss", "regression": "mse"}


def list_scores(task: Task) -> list[str]:
    """Names of the scores that fit a task."""
    return [name for name, kind in SCORES.items() if task in kind.tasks]


def choose_score(name: str, task: Task) -> ScoreKind:
    """The score of a setting, which may be "auto"; refuse one that does not fit the task."""
    kind = SCORES[USUAL_SCORES[task] if name == "auto" else name]
    if task not in kind.tasks:
        raise GossamerError(
            f"the score {name!r} does not fit the targets, which are those of {task}: take --score auto, "
            f"{', '.join(list_scores(task))}"
        )
    return kind


def score_sums(on: Pass, outputs: Tensor, binned: bool = False) -> ScoreSums:
    """Sums over the hosted vertices; `binned` adds histograms for ranking scores."""
    task = find_task(on.targets)
    each, z = losses(outputs, on.targets, on.positive_weight).flatten(), outputs.flatten(0, -2)
    y = on.targets.flatten() if task == "multiclass" else on.targets.flatten(0, -2)
    weights = None if on.weights is None else on.weights.flatten()
    decided = z.argmax(1) if task == "multiclass" else z > 0 if task == "multilabel" else z
    ranked = rank_outputs(z, y) if binned and task != "regression" else None
    sums: ScoreSums = {}
    for name, mask in on.masks.items():
        rows = mask.flatten().nonzero().squeeze(1)
        actual, found = y.index_select(0, rows), decided.index_select(0, rows)
        parts = [_sum_losses(each.index_select(0, rows), None if weights is None else weights.index_select(0, rows))]
        if task == "multiclass":
            parts.append(_count_classes(found, actual, z.shape[1]))
        elif task == "multilabel":
            parts.append(torch.stack([found & actual, found, actual]).sum(1).flatten().double())
        else:
            parts.append(_sum_errors(found.double(), actual.double()))
        if ranked is not None:
            parts.append(make_histograms(*(part.index_select(0, rows) for part in ranked)))
        sums[name] = torch.cat(parts)
    return sums


def _sum_losses(each: Tensor, weights: Tensor | None) -> Tensor:
    each, count = each.double(), float(len(each))
    if weights is None:
        return torch.stack([each.sum(), each.new_tensor(count), each.new_tensor(count)])
    weights = weights.double()
    return torch.stack([weights @ each, weights.sum(), weights.new_tensor(count)])


def _count_classes(predicted: Tensor, actual: Tensor, num_classes: int) -> Tensor:
    right = actual[predicted == actual]
    return torch.cat([torch.bincount(part, minlength=num_classes) for part in (right, predicted, actual)]).double()


def _sum_errors(values: Tensor, y: Tensor) -> Tensor:
    e = values - y
    return torch.cat([e.square().sum(0), e.abs().sum(0), y.sum(0), y.square().sum(0)])


def count_sums(task: Task, width: int, binned: bool = False) -> int:
    """Length of a mask's vector, for a network with so many outputs."""
    if task == "regression":
        return 3 + 4 * width
    return 3 + 3 * width + (2 * NUM_BINS * count_ranked(width, task == "multiclass") if binned else 0)


def check_sums(sums: ScoreSums, task: Task, width: int, most: int, sender: int) -> None:
    """Refuse sums, which an agent has sent, that no data of at most so many examples have."""
    for mask, part in sums.items():
        loss, weight, count = part[:3].tolist()
        plausible = 0 <= count <= most and 0 <= weight < math.inf and 0 <= loss <= LARGEST_SUM
        rest = part[3:]
        if task == "regression":
            signed = rest.view(4, width)[[0, 1, 3]]  # the sum of targets may be negative
            plausible &= bool((signed >= 0).all()) and bool((rest.abs() <= LARGEST_SUM).all())
        else:
            right, predicted, actual = rest[: 3 * width].view(3, width)
            plausible &= bool((rest >= 0).all()) and bool((rest <= most * max(1, width)).all())
            plausible &= bool((right <= predicted).all()) and bool((right <= actual).all())
        if not plausible:
            raise GossamerError(
                f"agent {sender} has sent sums of scores on {mask} that no data have; find out what agent {sender} "
                "runs, and start again"
            )


def compute_scores(parts: Iterable[ScoreSums], task: Task, width: int, scale: Tensor | None = None) -> Scores:
    """Scores on each mask from the sums of all hosts or agents; NaN on an empty mask.

    `width` is the number of the network's outputs. Where targets were divided by `scale` [width] before training, mse,
    mae and rmse are in the units of before; the loss is the one that was trained on.
    """
    hosts = list(parts)
    result: Scores = {}
    for mask in MASKS:
        expected = {count_sums(task, width), count_sums(task, width, binned=True)}
        lengths = {len(part[mask]) for part in hosts}
        if len(lengths) != 1 or not lengths <= expected:
            raise GossamerError(
                f"expected {' or '.join(map(str, sorted(expected)))} sums on {mask} for {task} with {width} outputs, "
                f"got {', '.join(map(str, sorted(lengths)))}; were they written by another version of Gossamer?"
            )
        whole = torch.stack([part[mask].double() for part in hosts]).sum(0)
        loss, weight, count = whole[:3].tolist()
        head = {"loss": loss / weight if weight else math.nan}
        if task == "regression":
            result[mask] = head | _score_values(whole[3:].view(4, width), count, scale)
        else:
            result[mask] = head | _score_decisions(whole[3 : 3 + 3 * width].view(3, width), count, task)
            if len(whole) > 3 + 3 * width:
                result[mask] |= score_histograms(whole[3 + 3 * width :], count_ranked(width, task == "multiclass"))
    return result


def _score_decisions(sums: Tensor, count: float, task: Task) -> dict[str, float]:
    """Accuracy, and F1 = 2 right / (predicted + actual) as the mean over classes (macro) and of all decisions (micro).

    As scikit-learn's f1_score: 0 for 0 / 0, over the classes that are predicted or actual, or over all labels. Of
    labels, the accuracy is the share of single decisions that are right.
    """
    if not count:
        return dict.fromkeys(("accuracy", "macro_f1", "micro_f1"), math.nan)
    right, predicted, actual = sums
    both = predicted + actual
    each = 2 * right / both.clamp(min=1)
    hits = float(right.sum())
    if task == "multilabel":
        hits = (float(2 * right.sum() - both.sum()) + count * len(both)) / len(both)  # those rightly left out, too
    return {
        "accuracy": hits / count,
        "macro_f1": float((each if task == "multilabel" else each[both > 0]).mean()),
        "micro_f1": float(2 * right.sum() / both.sum().clamp(min=1)),
    }


def _score_values(sums: Tensor, count: float, scale: Tensor | None) -> dict[str, float]:
    """Mean squared and absolute errors, and the mean over outputs of r2 = 1 - sum e^2 / sum (y - mean y)^2.

    As scikit-learn's r2_score: NaN of fewer than two examples, and 0 for targets that are all the same, or 1 if they
    are met.
    """
    if not count:
        return dict.fromkeys(("mse", "mae", "rmse", "r2"), math.nan)
    squared, absolute, first, second = sums
    unit = torch.ones_like(first) if scale is None else scale.double()
    mse = float((unit.square() * squared).mean()) / count
    variation = second - first.square() / count
    constant = variation <= CONSTANT * second
    r2 = torch.where(constant, (squared == 0).double(), 1 - squared / torch.where(constant, 1.0, variation))
    return {
        "mse": mse,
        "mae": float((unit * absolute).mean()) / count,
        "rmse": math.sqrt(mse),
        "r2": float(r2.mean()) if count > 1 else math.nan,
    }
