"""Ranking scores: the area under the ROC curve and average precision, exact from all outputs or from histograms.

A class (or label) ranks the vertices by the logit of its probability, ln p / (1 - p), which orders them as p does and
does not saturate. Of two classes the second one alone is ranked; of more, each against the rest, and the score is the
mean over the classes that have both positives and negatives (macro average), NaN if there is none.

Histograms of the positives' and the negatives' logits can be added over hosts and agents, which need not send all
outputs then. A bin is one tie: a pair within it counts half in the area, and it is one threshold of the precision. The
scores are exact where no two logits share a bin. Else, with p positives and q negatives in a bin, P and N in all, and
TP and FP in the bins above it,

    |area - binned area|            <=  sum over bins  p q / (2 P N)
    |precision - binned precision|  <=  sum over bins  p / P ((TP + p) / (TP + p + FP) - (TP + 1) / (TP + 1 + FP + q))

since every order within a bin gives a positive a precision between these two.
"""

import math

import torch
from torch import Tensor

NUM_BINS, LARGEST_LOGIT = 480, 12.0  # of equal width; the first and the last bin are open
BINNED = "_binned"  # end of the names of scores from histograms
RANKING_SCORES = ("roc_auc", "average_precision")


def count_ranked(width: int, classes: bool) -> int:
    """Number of rankings of a network with so many outputs: one for two classes, else one for each class or label."""
    return 1 if classes and width == 2 else width


def rank_outputs(outputs: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
    """Logits of the ranked classes or labels [rows, rankings] in float64, and the positives among them (bool).

    `outputs` [rows, width] belong to classes [rows] (int64) or labels [rows, width] (bool).
    """
    z = outputs.double()
    if targets.dtype == torch.bool:
        return z, targets
    if z.shape[1] == 2:
        return z[:, 1:] - z[:, :1], targets[:, None] == 1
    return _compute_class_logits(z), targets[:, None] == torch.arange(z.shape[1])


def _compute_class_logits(z: Tensor) -> Tensor:
    """z_c - ln sum_{b != c} exp z_b, the logit of softmax(z)_c."""
    top = z.argmax(1, keepdim=True)
    log_p = z.log_softmax(1)
    # 1 - p cancels for the likeliest class alone: its others are summed without it.
    others = z.scatter(1, top, -math.inf).logsumexp(1, keepdim=True)
    return (log_p - torch.log1p(-log_p.exp())).scatter(1, top, z.gather(1, top) - others)


def make_histograms(logits: Tensor, positive: Tensor) -> Tensor:
    """Counts of the positives' and of the negatives' logits in each bin, flattened from [2, rankings, NUM_BINS]."""
    rankings = logits.shape[1]
    place = ((logits.nan_to_num() + LARGEST_LOGIT) * (NUM_BINS / (2 * LARGEST_LOGIT))).clamp(0, NUM_BINS - 1).long()
    place += NUM_BINS * (torch.arange(rankings) + rankings * (~positive).long())
    return torch.bincount(place.flatten(), minlength=2 * rankings * NUM_BINS).double()


def score_histograms(histograms: Tensor, rankings: int) -> dict[str, float]:
    """Ranking scores from (sums of) histograms."""
    pair = histograms.reshape(2, rankings, NUM_BINS).flip(2)  # from the likeliest bin on
    positive, negative = pair[:, (pair.sum(2) > 0).all(0)]
    above, false = positive.cumsum(1), negative.cumsum(1)
    P, N = above[:, -1:], false[:, -1:]
    area = (negative * (above - positive / 2)).sum(1) / (P * N).squeeze(1)
    precision = ((positive / P) * above / (above + false).clamp(min=1)).sum(1)
    return {
        f"{name}{BINNED}": float(found.mean())  # NaN of none
        for name, found in zip(RANKING_SCORES, (area, precision), strict=True)
    }


def score_exactly(logits: Tensor, positive: Tensor) -> dict[str, float]:
    """Ranking scores from all outputs, by scikit-learn; NaN if an output is not finite."""
    from sklearn.metrics import average_precision_score, roc_auc_score  # here: it takes a while to import

    both = positive.any(0) & ~positive.all(0) & logits.isfinite().all()
    pairs = [(positive[:, c].numpy(), logits[:, c].numpy()) for c in both.nonzero().flatten().tolist()]
    return {
        name: sum(float(score(*pair)) for pair in pairs) / len(pairs) if pairs else math.nan
        for name, score in zip(RANKING_SCORES, (roc_auc_score, average_precision_score), strict=True)
    }
