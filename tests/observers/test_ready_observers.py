"""Gossamer's own observers: CSV, TensorBoard, notebooks and plain lines."""

import csv
import math
import re
import sys
import types
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from agents.cases import make_case

import gossamer
from gossamer import GossamerError
from gossamer.observers import (
    make_csv_observer,
    make_line_display,
    make_notebook_display,
    make_tensorboard_observer,
)
from gossamer.observers.plain_lines import make_report_writer
from gossamer.peers.evaluation_log import score_agents

OPTIONS: dict[str, Any] = {
    "agents": 4, "hidden": 5, "topology": "complete", "steps": 7, "evaluate_every": 3, "baselines": False,
}  # fmt: skip


def train(**options: Any) -> gossamer.Result:
    return gossamer.train(make_case(n=40).graph, **OPTIONS, **options)


def test_the_csv_file_grows_with_each_evaluation(tmp_path: Path) -> None:
    path, lengths = tmp_path / "run.csv", list[int]()
    path.write_text("of another run")
    count = gossamer.Observer(on_record=lambda record: lengths.append(len(path.read_text().splitlines())))
    result = train(observers=[make_csv_observer(path), count])
    assert lengths == [2, 3, 4, 5]
    with path.open(newline="") as file:
        rows = list(csv.DictReader(file))
    for row, record in zip(rows, result.run.history, strict=True):
        assert int(row["step"]) == record["step"]
        assert float(row["validation/accuracy"]) == record["validation"]["accuracy"]
        assert float(row["disagreement"]) == record["disagreement"]
    assert rows[0]["best_stationarity"] == ""  # NaN at step 0
    train(observers=[make_csv_observer(path.parent / "a" / "new" / "run.csv")])
    assert (path.parent / "a" / "new" / "run.csv").read_bytes() == path.read_bytes()


def test_lines_have_a_time_a_step_a_loss_and_a_score() -> None:
    lines: list[str] = []
    result = train(display=make_line_display(lines.append))
    last = result.run.history[-1]
    assert len(lines) == 4
    stamp = r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d "
    assert all(re.match(stamp + r"distributed: step \d of 7, loss ", line) for line in lines)
    assert lines[-1].endswith(
        f"step 7 of 7, loss {last['train']['loss']:.4f}, validation accuracy {last['validation']['accuracy']:.4f}"
    )


def test_reports_of_processes_become_a_line_when_all_have_evaluated() -> None:
    lines: list[str] = []
    measure = partial(score_agents, task="multiclass", width=2)
    follow = make_report_writer(lines.append, 2, 100, "accuracy", measure)

    def report(step: int) -> dict[str, Any]:
        held_out = [1.0, 4, 4, 2, 1, 3, 1, 2, 2]  # 3 of 4 right
        return {"metrics": {"step": step, "train": [2.0, 4, 4, *[0] * 6], "validation": held_out, "test": [0] * 9}}

    follow({0: report(10)})
    follow({0: report(10), 1: {"metrics": None}})
    assert lines == []
    for _ in range(2):
        follow({0: report(20), 1: report(10)})
    assert len(lines) == 1
    assert lines[0].endswith(" 2 agents: step 10 of 100, loss 0.5000, validation accuracy 0.7500")
    follow({0: report(20), 1: report(20)})
    assert len(lines) == 2


def test_the_table_in_a_notebook_is_updated_in_place(monkeypatch: pytest.MonkeyPatch) -> None:
    shown: list[str] = []
    handle = types.SimpleNamespace(update=shown.append)
    package, inside = types.ModuleType("IPython"), types.ModuleType("IPython.display")
    package.get_ipython = object  # type: ignore[attr-defined]
    inside.HTML, inside.display = str, lambda html, display_id: handle  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "IPython", package)
    monkeypatch.setitem(sys.modules, "IPython.display", inside)
    train(display=make_notebook_display())
    assert len(shown) == 4
    assert '<progress value="7" max="7">' in shown[-1]
    assert shown[-1].count("<tr>") == 1


def test_outside_of_a_notebook_lines_are_printed(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "IPython", None)
    train(display=make_notebook_display())
    assert len(capsys.readouterr().out.splitlines()) == 4


def test_without_tensorboard_the_error_names_the_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", None)
    with pytest.raises(GossamerError, match=r"pip install 'gossamer\[tensorboard\]'"):
        make_tensorboard_observer(tmp_path)


def test_tensorboard_reads_what_was_written(tmp_path: Path) -> None:
    pytest.importorskip("tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    result = train(observers=[make_tensorboard_observer(tmp_path)])
    events = EventAccumulator(str(tmp_path))
    events.Reload()
    assert [event.step for event in events.Scalars("step/loss")] == [1, 2, 3, 4, 5, 6, 7]
    found = [event.value for event in events.Scalars("validation/accuracy")]
    assert found == pytest.approx([record["validation"]["accuracy"] for record in result.run.history])
    assert math.isfinite(events.Scalars("disagreement")[-1].value)
