"""Many runs at once: in order, each once, cached when done; a divergence is a result; no process survives."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from experiments.inline import train_inline

from gossamer.errors import GossamerError
from gossamer.experiments import setup, trials
from gossamer.experiments.reproduction import Cache, Claim
from gossamer.experiments.trials import (
    Curve,
    fail_diverged,
    final,
    format_points,
    format_steps,
    interval,
    run_plan,
    run_trials,
    stack,
    steps_of,
    steps_to,
    train_alone,
)
from gossamer.runs.settings import make_settings

SMALL: dict[str, Any] = {"dataset": "digits", "steps": 20, "evaluate_every": 10, "agents": 3, "hidden": 4}


def curve(losses: list[float | None], **more: Any) -> Curve:
    return {"step": [10 * i for i in range(len(losses))], "loss": losses, "diverged": False, **more}


def test_runs_come_back_in_order_and_are_trained_once(tmp_path: Path) -> None:
    calls: list[tuple[int, int, str]] = []
    plans = [{**SMALL, "seed": seed} for seed in (2, 0, 1)]
    first = run_trials(Cache(tmp_path), plans, lambda *state: calls.append(state))
    assert [done for done, _, _ in calls] == [1, 2, 3]
    assert all("digits, gcn, momentum, 3 agents, seed" in text and "loss" in text for _, _, text in calls)
    for plan, found in zip(plans, first, strict=True):
        alone = train_alone(plan)  # in this process: the same numbers
        assert {k: v for k, v in alone.items() if k != "seconds"} == {k: v for k, v in found.items() if k != "seconds"}
        assert found["step"] == [0, 10, 20]
    calls.clear()
    assert run_trials(Cache(tmp_path), plans, lambda *state: calls.append(state)) == first
    assert calls == [(3, 3, "from an earlier run")]


def test_a_run_that_diverges_is_a_result(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    train_inline(monkeypatch)
    calls: list[str] = []
    (found,) = run_trials(
        Cache(tmp_path), [{**SMALL, "update": "gd", "step_size": 1e30}], lambda done, total, text: calls.append(text)
    )
    assert found["diverged"]
    assert "diverged" in calls[0]
    assert np.isnan(stack([found], "loss")[0, -1])


def test_a_failing_run_fails_the_whole_and_keeps_the_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trials, "num_workers", lambda: 1)  # the others have ended when it fails
    failing = {**SMALL, "agents": 5000}
    with pytest.raises(GossamerError, match="expected 1 to 1797 agents"):
        run_trials(Cache(tmp_path), [SMALL, {**SMALL, "seed": 1}, failing], lambda *state: None)
    paper = {"preset": "paper", "track": False, **SMALL}
    keys = [make_settings({**paper, "seed": seed}).model_dump(mode="json") for seed in (0, 1)]
    assert all(Cache(tmp_path).find(key) is not None for key in keys)


def test_a_data_set_that_is_nowhere_is_told_before_any_worker_starts(tmp_path: Path) -> None:
    with pytest.raises(GossamerError, match="no data set"):
        run_trials(Cache(tmp_path), [SMALL, {**SMALL, "dataset": "nowhere"}], lambda *state: None)
    assert not list(tmp_path.iterdir())


def test_a_run_may_end_once_its_loss_is_low() -> None:
    whole = train_alone({**SMALL, "steps": 100})
    level = whole["loss"][4] * 1.0001
    early = train_alone({**SMALL, "steps": 100, "until": level})
    assert early["step"] == [0, 10, 20, 30, 40]
    assert not early["diverged"]
    assert early["loss"] == whole["loss"][:5]
    table = stack([whole, early], "loss")
    assert table[1, -1] == early["loss"][-1]
    assert steps_of([early, whole]) == whole["step"]


def test_no_claim_holds_if_a_run_diverged() -> None:
    claim = Claim("so", "measured", True)
    assert fail_diverged([claim], {"d": {"a": [curve([1.0])]}}) == [claim]
    (lost,) = fail_diverged([claim], {"d": {"a": [curve([1.0]), curve([1.0]) | {"diverged": True}]}})
    assert not lost.holds
    assert "1 runs diverged" in lost.measured


def test_points_are_told_with_their_interval_if_there_is_one() -> None:
    assert format_points(0.0123, 0.01, 0.02) == "+1.23 [1.00, 2.00]"
    assert format_points(-0.5, -0.5, -0.5) == "-50.00"
    assert format_steps([20.0, np.inf]) == "20 / never"


def test_a_plan_becomes_curves_and_a_table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    train_inline(monkeypatch)
    plan = {("digits", f"{m} agents", seed): {**SMALL, "agents": m, "seed": seed} for m in (1, 2) for seed in (0, 1)}
    found = run_plan(tmp_path, "some", plan, lambda *state: None)
    assert list(found) == ["digits"]
    assert {name: len(runs) for name, runs in found["digits"].items()} == {"1 agents": 2, "2 agents": 2}
    lines = (tmp_path / "some.csv").read_text().splitlines()
    assert lines[0] == "dataset,method,seed,step,loss,validation_loss,validation,test,disagreement"
    assert len(lines) == 1 + 4 * 3
    assert lines[-1].startswith("digits,2 agents,1,20,")


def test_what_is_read_off_curves() -> None:
    runs = [curve([4.0, 1.0, 0.25]), curve([4.0, 4.0, 0.25])]
    assert steps_to(runs, 3.0) == 10  # the geometric mean is 2 there
    assert steps_to(runs, 1.0) == 20
    assert steps_to(runs, 0.1) == np.inf
    long = [curve([*range(20)])]
    assert final(long, "loss") == [18.5]
    assert final(long, "loss", 0.5) == [14.5]
    table = stack([curve([1.0, 2.0]), curve([3.0]) | {"diverged": True}, curve([None]) | {"diverged": True}], "loss")
    assert np.isnan(table[1:, 1]).all()
    assert table[1, 0] == 3.0
    assert table[0].tolist() == [1.0, 2.0]


def test_the_interval_is_students() -> None:
    mean, low, high = interval(np.array([1.0, 2.0, 3.0, 4.0]))
    half = 3.182446 * np.std([1, 2, 3, 4], ddof=1) / 2  # the 97.5 % point of t with 3 degrees of freedom
    assert mean == 2.5
    assert (low, high) == pytest.approx((2.5 - half, 2.5 + half), rel=1e-6)
    assert interval(np.array([2.0])) == (2.0, 2.0, 2.0)
    assert interval(np.array([2.0, 4.0])) == (3.0, 3.0, 3.0)  # two tell no deviation worth the name


def test_the_search_takes_the_least_of_its_measure_and_never_a_divergence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ends = {0.1: 1.0, 1.0: 0.01, 10.0: 1e-9}

    def pretend(cache: Cache, tried: list[dict[str, Any]], progress: object) -> list[Curve]:
        assert {t["seed"] for t in tried}.isdisjoint(range(100))  # none of those that a figure shows
        return [
            curve(
                [2.0, ends[t["step_size"]] * (1 + t.get("momentum", 0))],
                validation_loss=[2.0, 3 * t["step_size"] + t.get("momentum", 0)],
            )
            | {"diverged": t["step_size"] == 10.0}
            for t in tried
        ]

    monkeypatch.setattr(setup, "run_trials", pretend)
    grid: dict[str, dict[str, tuple[float, ...]]] = {
        "a": {"step_size": (0.1, 1.0, 10.0)},
        "b": {"momentum": (0.8, 0.5, 0.9), "step_size": (1.0, 10.0)},
    }
    variants = {"a": SMALL, "b": SMALL}
    least = setup.search_grid(Cache(tmp_path), variants, grid, "loss", lambda *state: None)
    assert least == {"a": {"step_size": 1.0}, "b": {"momentum": 0.5, "step_size": 1.0}}
    least = setup.search_grid(Cache(tmp_path), variants, grid, "validation_loss", lambda *state: None)
    assert least == {"a": {"step_size": 0.1}, "b": {"momentum": 0.5, "step_size": 1.0}}


def test_the_tuned_constants_lie_inside_their_grids() -> None:
    """Tuned values lie inside their grids: at an edge a better one might lie beyond."""
    for dataset, methods in setup.STEP_SIZES.items():
        assert set(methods) == set(setup.METHODS)
        assert set(methods.values()) <= set(setup.GRIDS[dataset][1:-1])
    for grids, tuned in ((setup.RULE_GRIDS, setup.TUNED_RULES), (setup.ACCURATE_GRIDS, setup.ACCURATE)):
        assert set(grids) == set(tuned)
        for dataset, rules in grids.items():
            assert set(rules) == set(tuned[dataset])
            for rule, grid in rules.items():
                assert set(grid) == set(tuned[dataset][rule])
                assert all(tuned[dataset][rule][name] in values[1:-1] for name, values in grid.items()), (dataset, rule)


def group_lives(group: int) -> bool:
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return False
    return True


PROGRAM = """
from pathlib import Path
from gossamer.experiments.reproduction import Cache
from gossamer.experiments.trials import run_trials
if __name__ == "__main__":
    long = {"dataset": "digits", "agents": 3, "evaluate_every": 10}
    plans = [{**long, "steps": 10}, {**long, "steps": 1000000}, {**long, "steps": 1000001}]
    run_trials(Cache(Path("cache")), plans, lambda done, total, text: print(done, flush=True))
"""


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGKILL], ids=["interrupted", "killed"])
def test_an_interruption_keeps_what_is_done_and_leaves_no_process(tmp_path: Path, how: signal.Signals) -> None:
    (tmp_path / "program.py").write_text(PROGRAM)
    process = subprocess.Popen(
        [sys.executable, "program.py"], cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
        start_new_session=True,
    )  # fmt: skip
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == b"1\n"
        os.kill(process.pid, how)
        assert process.wait(timeout=60) != 0
        process.stdout.close()
        deadline = time.monotonic() + 60
        while group_lives(process.pid):
            assert time.monotonic() < deadline, "a worker outlived its parent"
            time.sleep(0.1)
    finally:
        if group_lives(process.pid):
            os.killpg(process.pid, signal.SIGKILL)
    assert len(list((tmp_path / "cache").glob("*.json"))) == 1


def test_a_worker_takes_one_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    set_to: list[int] = []
    monkeypatch.setattr("torch.set_num_threads", set_to.append)
    monkeypatch.setattr(signal, "signal", lambda *arguments: None)
    trials._prepare_worker()
    assert set_to == [1]
