"""Scores as text: in tables of 80 columns, in bars, and in the words of the field."""

import io
import math

import pytest
from rich.console import Console

from gossamer.agents.ranking import BINNED
from gossamer.agents.scores import SCORES, list_scores
from gossamer.data.tasks import Task
from gossamer.report.bars import TrainingBars
from gossamer.report.score_text import choose_main_score, format_score, label_score
from gossamer.report.terminal import show_scores

TASKS: tuple[Task, ...] = ("multiclass", "multilabel", "regression")


def draw_table(main: str, task: Task, value: float = 0.123456) -> list[str]:
    """Lines of the tables of three models."""
    scores = {mask: dict.fromkeys(list_scores(task), value) for mask in ("train", "validation", "test")}
    text = io.StringIO()
    show_scores(Console(file=text, width=80), dict.fromkeys(("distributed", "centralised", "graphless"), scores), main)
    return text.getvalue().splitlines()


@pytest.mark.parametrize(("task", "main"), [(task, name) for task in TASKS for name in list_scores(task)])
@pytest.mark.parametrize("value", [0.123456, 1.0, math.nan])
def test_tables_are_whole_in_80_columns(task: Task, main: str, value: float) -> None:
    lines = draw_table(main, task, -123.456 * value if task == "regression" else value)
    assert all(len(line) <= 80 for line in lines)
    assert sum("distributed" in line for line in lines) == 2
    heads = [line for line in lines if "┃ model" in line]
    assert len(lines) == 2 * (3 + 3 + 1 + 1)  # no heading and no cell takes two lines
    assert "…" not in "".join(lines)
    assert lines[7].split() == ["train,", "validation,", "test:", *label_score(main).split()]
    others = [name for name in list_scores(task) if name != main]
    assert [cell.strip() for cell in heads[1].strip("┃").split("┃")] == ["model", *map(label_score, others)]


def test_cells_have_the_scores_of_their_masks() -> None:
    scores = {
        "train": {"loss": 0.5, "accuracy": 1.0, "macro_f1": 0.9},
        "validation": {"loss": 0.6, "accuracy": math.nan, "macro_f1": math.nan},
        "test": {"loss": 0.7, "accuracy": 0.75, "macro_f1": 0.7},
    }
    text = io.StringIO()
    show_scores(Console(file=text, width=80), {"distributed": scores}, "accuracy")
    rows = [line.replace("│", " ").split() for line in text.getvalue().splitlines() if "distributed" in line]
    assert rows == [["distributed", "0.5000", "100.0%", "-", "75.0%"], ["distributed", "0.7000", "0.7000"]]


def test_every_score_has_a_label() -> None:
    for kind in SCORES.values():
        for short in (False, True):
            assert label_score(kind.name, short)
            assert ("binned" in label_score(kind.key(binned=True), short)) == (kind.needs_ranking and not short)
    assert label_score(f"roc_auc{BINNED}") == "ROC AUC (binned)"
    assert all(len(label_score(name, short=True)) <= 8 for name in SCORES)


@pytest.mark.parametrize(
    ("name", "value", "text"),
    [
        ("accuracy", 0.9551, "95.5%"),
        ("macro_f1", 0.95512, "0.9551"),
        ("mse", 12345.678, "1.235e+04"),
        ("r2", -0.5, "-0.5000"),
        ("loss", None, "-"),
        ("accuracy", math.nan, "-"),
    ],
)
def test_values(name: str, value: float | None, text: str) -> None:
    assert format_score(name, value) == text


def test_older_summaries_have_no_name_of_the_main_score() -> None:
    assert choose_main_score({"score": "macro_f1"}, {"loss": 1.0, "accuracy": 0.5}) == "macro_f1"
    assert choose_main_score({}, {"loss": 1.0, "accuracy": 0.5}) == "accuracy"
    assert choose_main_score({}, {"loss": 1.0, "mse": 0.5}) == "mse"


@pytest.mark.parametrize(("score", "value", "text"), [("accuracy", 0.5, "acc 50.0%"), ("roc_auc", math.nan, "AUC -")])
def test_bars_show_the_validated_score(score: str, value: float, text: str) -> None:
    shown: list[str] = []
    bars = TrainingBars(lambda *_, **__: lambda **changes: shown.append(changes.get("measures", "")))
    _, on_record = bars.model("distributed", 0, 10)
    scores = {"loss": 0.25, score: value}
    on_record({"step": 1, "score": score, "train": scores, "validation": scores, "test": scores, "disagreement": 0.125})
    assert shown == [f"loss 0.2500 {text} apart 1e-01"]
