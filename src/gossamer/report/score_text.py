"""Names and numbers of scores as text, for tables, bars and axes."""

import math
from collections.abc import Mapping

from gossamer.runs.records import Summary

_BINNED = "_binned"  # end of the names of scores from histograms (agents/ranking.py)
_LABELS = {
    "accuracy": "accuracy",
    "macro_f1": "macro F1",
    "micro_f1": "micro F1",
    "roc_auc": "ROC AUC",
    "average_precision": "average precision",
    "loss": "loss",
    "mse": "MSE",
    "mae": "MAE",
    "rmse": "RMSE",
    "r2": "R2",
}
_SHORT_LABELS = {"accuracy": "acc", "roc_auc": "AUC", "average_precision": "AP"}


def label_score(name: str, short: bool = False) -> str:
    """The name of a score as text; `short` where there is little room."""
    known = name.removesuffix(_BINNED)
    label = _SHORT_LABELS.get(known, _LABELS[known]) if short else _LABELS[known]
    return label if name == known or short else f"{label} (binned)"


def format_score(name: str, value: float | None) -> str:
    """The value of a score as text; a dash where it is not known, as on an empty mask."""
    if value is None or math.isnan(value):
        return "-"
    if name == "accuracy":
        return f"{value:.1%}"
    return f"{value:.4g}" if name in ("mse", "mae", "rmse") else f"{value:.4f}"


def choose_main_score(summary: Summary, scores: Mapping[str, float]) -> str:
    """The validated score of a summary, of which older versions did not store the name."""
    return summary.get("score") or ("accuracy" if "accuracy" in scores else "mse")
