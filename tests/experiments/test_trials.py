"""Many runs at once: in order, each once, kept when they are done; a divergence is a result; nothing is left behind."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gossamer.experiments import setup, trials
from gossamer.experiments.reproduction import Cache
from gossamer.experiments.trials import Curve, final, interval, run_plan, run_trials, stack, steps_to, train_alone

SMALL: dict[str, Any] = {"dataset": "digits", "steps": 20, "evaluate_every": 10, "agents": 3, "hidden": 4}


def curve(losses: list[float | None], **more: Any) -> Curve:
    return {"step": [10 * i for i in range(len(losses))], "loss": losses, "diverged": False, **more}


def test_runs_come_back_in_order_and_are_trained_once(tmp_path: Path) -> None:
    told: list[tuple[int, int, str]] = []
    plans = [{**SMALL, "seed": seed} for seed in (2, 0, 1)]
    first = run_trials(Cache(tmp_path), plans, lambda *state: told.append(state))
    assert [done for done, _, _ in told] == [1, 2, 3]
    assert all("digits, 3 agents, seed" in text and "loss" in text for _, _, text in told)
    for plan, found in zip(plans, first, strict=True):
        alone = train_alone(plan)  # in this process: the same numbers
        assert {k: v for k, v in alone.items() if k != "seconds"} == {k: v for k, v in found.items() if k != "seconds"}
        assert found["step"] == [0, 10, 20]
    told.clear()
    assert run_trials(Cache(tmp_path), plans, lambda *state: told.append(state)) == first
    assert told == [(3, 3, "from an earlier run")]


def test_a_run_that_diverges_is_a_result(tmp_path: Path) -> None:
    told: list[str] = []
    (found,) = run_trials(
        Cache(tmp_path), [{**SMALL, "update": "gd", "step_size": 1e30}], lambda done, total, text: told.append(text)
    )
    assert found["diverged"]
    assert "diverged" in told[0]
    assert np.isnan(stack([found], "loss")[0, -1])


def test_a_failing_run_fails_the_whole_and_keeps_the_others(tmp_path: Path) -> None:
    from gossamer.errors import GossamerError

    with pytest.raises(GossamerError, match="no data set"):
        run_trials(Cache(tmp_path), [SMALL, {**SMALL, "dataset": "nowhere"}], lambda *state: None)


def test_a_plan_becomes_curves_and_a_table(tmp_path: Path) -> None:
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
    table = stack([curve([1.0, 2.0]), curve([3.0, None])], "loss")
    assert np.isnan(table[1, 1])
    assert table[0].tolist() == [1.0, 2.0]


def test_the_interval_is_students() -> None:
    mean, low, high = interval(np.array([1.0, 2.0, 3.0, 4.0]))
    half = 3.182446 * np.std([1, 2, 3, 4], ddof=1) / 2  # the 97.5 % point of t with 3 degrees of freedom
    assert mean == 2.5
    assert (low, high) == pytest.approx((2.5 - half, 2.5 + half), rel=1e-6)
    assert interval(np.array([2.0])) == (2.0, 2.0, 2.0)


def test_the_search_takes_the_least_of_its_measure_and_never_a_divergence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ends = {0.1: 1.0, 1.0: 0.01, 10.0: 1e-9}

    def pretend(cache: Cache, tried: list[dict[str, Any]], follow: object) -> list[Curve]:
        assert {t["seed"] for t in tried}.isdisjoint(range(100))  # none of those that a figure shows
        return [
            curve([2.0, ends[t["step_size"]]], validation_loss=[2.0, 3 * t["step_size"]])
            | {"diverged": t["step_size"] == 10.0}
            for t in tried
        ]

    monkeypatch.setattr(setup, "run_trials", pretend)
    grid = {"a": (0.1, 1.0, 10.0)}
    assert setup.search(Cache(tmp_path), {"a": SMALL}, grid, "loss", lambda *state: None) == {"a": 1.0}
    assert setup.search(Cache(tmp_path), {"a": SMALL}, grid, "validation_loss", lambda *state: None) == {"a": 0.1}


def test_the_tuned_step_sizes_belong_to_their_grids() -> None:
    for dataset, methods in setup.STEP_SIZES.items():
        assert set(methods) == set(setup.METHODS)
        assert set(methods.values()) <= set(setup.GRIDS[dataset])
    for dataset, rules in setup.RULE_STEP_SIZES.items():
        assert all(size in setup.RULE_GRIDS[dataset][rule] for rule, size in rules.items())


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
    assert process.stdout is not None
    assert process.stdout.readline() == b"1\n"
    os.kill(process.pid, how)
    assert process.wait(timeout=60) != 0
    process.stdout.close()
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        try:
            os.killpg(process.pid, 0)
        except ProcessLookupError:
            break
        time.sleep(0.1)
    else:
        os.killpg(process.pid, signal.SIGKILL)
        pytest.fail("a worker outlived its parent")
    assert len(list((tmp_path / "cache").glob("*.json"))) == 1


def test_a_worker_takes_one_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    set_to: list[int] = []
    monkeypatch.setattr(trials.torch, "set_num_threads", set_to.append)
    monkeypatch.setattr(trials.signal, "signal", lambda *arguments: None)
    trials._prepare_worker()
    assert set_to == [1]
