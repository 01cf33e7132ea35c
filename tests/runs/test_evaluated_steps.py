"""The steps at which runs are evaluated: densely at first, unless an interval is given."""

import json
from pathlib import Path
from typing import Any

import pytest

import gossamer
from gossamer.runs.evaluated_steps import evaluation_gap, find_evaluation, is_evaluated
from gossamer.runs.settings import make_settings

SMALL: dict[str, Any] = {"agents": 3, "hidden": 4, "topology": "complete", "baselines": False, "checkpoint_every": 7}


def _list_steps(**options: object) -> list[int]:
    settings = make_settings(options)
    return [step for step in range(settings.steps + 1) if is_evaluated(settings, step)]


def test_first_steps_are_evaluated_one_by_one() -> None:
    assert _list_steps(steps=45) == [*range(21), 30, 40, 45]
    assert _list_steps(steps=3) == [0, 1, 2, 3]


def test_a_given_interval_holds_from_the_start() -> None:
    assert _list_steps(steps=45, evaluate_every=20) == [0, 20, 40, 45]
    assert _list_steps(steps=25, preset="paper") == [0, 10, 20, 25]
    assert evaluation_gap(make_settings({"evaluate_every": 7})) == 7
    assert evaluation_gap(make_settings({})) == 10


@pytest.mark.parametrize("options", [{}, {"evaluate_every": 4}])
def test_the_last_evaluation_is_the_latest_of_the_schedule(options: dict[str, object]) -> None:
    settings = make_settings({"steps": 60, **options})
    for step in range(60):
        assert find_evaluation(settings, step) == max(s for s in range(step + 1) if is_evaluated(settings, s))


def test_a_run_follows_the_schedule_and_goes_on_from_an_early_checkpoint(tmp_path: Path) -> None:
    graph = gossamer.load("blocks:vertices=60,edges=150,features=5,classes=2,blocks=2")
    whole = gossamer.train(graph, steps=32, out=tmp_path / "whole", **SMALL)
    steps = []
    stopped = gossamer.Observer(on_step=lambda step, loss: steps.append(step))
    gossamer.train(
        graph, steps=32, out=tmp_path / "cut", observers=[stopped], should_stop=lambda: len(steps) > 8, **SMALL
    )
    resumed = gossamer.resume(tmp_path / "cut", graph=graph)
    for run in ("whole", "cut"):
        lines = (tmp_path / run / "metrics.jsonl").read_text().splitlines()
        assert [json.loads(line)["step"] for line in lines] == [*range(21), 30, 32]
    assert resumed.summary["best_step"] == whole.summary["best_step"]
    for name, part in whole.run.host.params.items():
        assert part.equal(resumed.run.host.params[name])
