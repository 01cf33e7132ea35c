"""The claims of Sec. V on the quick settings, on the real data sets where they are."""

import csv
import json
import os
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
from experiments.inline import train_inline
from typer.testing import CliRunner

from gossamer.cli import app
from gossamer.data.fetch import SOURCES
from gossamer.experiments import changing, fig3, fig4, fig5, fig6
from gossamer.experiments.reproduction import Claim, Outcome
from gossamer.experiments.trials import Curve, FigureCurves, TrialPlan


@pytest.fixture
def inline(monkeypatch: pytest.MonkeyPatch) -> None:
    train_inline(monkeypatch)


def reproduced(
    figure: object, name: str, dataset: str, out: Path, seeds: int = 2
) -> tuple[Outcome, list[dict[str, str]]]:
    folder = os.environ.get("GOSSAMER_DATA")
    if not folder or not (Path(folder) / SOURCES[dataset].path).is_file():
        pytest.skip(f"{SOURCES[dataset].path} is not in GOSSAMER_DATA ({folder or 'not set'})")
    outcome = figure.reproduce(out, quick=True, seeds=seeds, progress=lambda *state: None)  # type: ignore[attr-defined]
    json.dumps(outcome.to_dict())  # plain numbers and truth values alone
    for file in outcome.files:
        assert (out / file).stat().st_size > 500
    assert {path.name for path in out.iterdir()} == {*outcome.files, "cache"}
    with (out / f"{name}.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert {row["seed"] for row in rows} == set(map(str, range(seeds)))
    return outcome, rows


def last(rows: list[dict[str, str]], column: str, **where: str) -> float:
    """Mean over seeds of a method's final value."""
    ends = {row["seed"]: float(row[column]) for row in rows if all(row[k] == v for k, v in where.items())}
    assert set(ends) == {row["seed"] for row in rows}
    return float(np.mean(list(ends.values())))


@pytest.mark.usefixtures("inline")
def test_the_distributed_network_is_as_good_as_the_centralised_one_and_both_beat_the_graphless(tmp_path: Path) -> None:
    outcome, rows = reproduced(fig3, "fig3", "citeseer", tmp_path)
    failed = [claim for claim in outcome.claims if not claim.holds]
    assert not failed
    assert len(outcome.claims) == 7
    gcn, nn = (last(rows, "test", method=name) for name in ("GCN", "NN"))
    assert gcn > nn + 0.05
    for m in (5, 20):
        assert abs(last(rows, "test", method=f"dGCN, {m} agents") - gcn) < 0.03


@pytest.mark.usefixtures("inline")
def test_few_links_keep_most_edges_and_most_of_the_accuracy(tmp_path: Path) -> None:
    outcome, rows = reproduced(fig4, "fig4", "cora", tmp_path, seeds=1)
    assert all(claim.holds for claim in outcome.claims), outcome.claims
    assert last(rows, "test", method="line") > last(rows, "test", method="100 %") - 0.08


@pytest.mark.usefixtures("inline")
def test_half_of_the_links_cost_little_and_agents_disagree_more(tmp_path: Path) -> None:
    outcome, rows = reproduced(changing, "changing", "cora", tmp_path, seeds=1)
    assert all(claim.ours for claim in outcome.claims)
    assert {row["method"] for row in rows} == {"all links", "relay 0.5", "last 0.5", "drop 0.5"}
    with (tmp_path / "changing_shares.csv").open() as file:
        table = list(csv.DictReader(file))
    assert [(row["missing"], row["share_up"]) for row in table] == [
        (way, share) for way in ("relay", "last", "drop") for share in ("1.0", "0.5")
    ]
    for row in table:
        assert float(row["test"]) > 0.6
        assert abs(float(row["change"])) < 0.05
    whole = last(rows, "disagreement", method="all links")
    assert all(last(rows, "disagreement", method=f"{way} 0.5") > whole for way in ("relay", "last", "drop"))


def test_the_smallest_share_is_before_the_first_that_costs_a_point() -> None:
    shares = (1.0, 0.7, 0.3, 0.1)
    changes = [np.array([0.0, 0.0]), np.array([-0.012, -0.004]), np.array([-0.02, -0.004]), np.array([0.0, 0.01])]
    assert changing.find_smallest_share(changes, shares) == 0.7
    assert changing.find_smallest_share(changes[:2] + changes[3:], (1.0, 0.7, 0.1)) == 0.1


@pytest.mark.usefixtures("inline")
def test_momentum_and_adam_are_faster_and_the_order_of_consensus_does_not_matter(tmp_path: Path) -> None:
    outcome, rows = reproduced(fig5, "fig5", "citeseer", tmp_path, seeds=1)
    for rule in ("momentum", "adam"):
        assert last(rows, "loss", method=rule) < last(rows, "loss", method="gd")
    assert outcome.claims[1].holds, outcome.claims
    after, first = (last(rows, "test", method=name) for name in fig5.ORDERS)
    assert abs(first - after) < 0.01


@pytest.mark.usefixtures("inline")
@pytest.mark.filterwarnings("ignore:the agents' weights move apart")  # as they must without consensus
def test_rare_consensus_costs_accuracy_and_none_overfits(tmp_path: Path) -> None:
    outcome, rows = reproduced(fig6, "fig6", "cora", tmp_path)
    always, rare, never = (
        last(rows, "test", method=name, dataset="cora, 10 agents") for name in ("every iteration", "every 50", "never")
    )
    assert always > rare > never
    assert all(claim.holds for claim in outcome.claims[:3]), outcome.claims


@pytest.mark.parametrize("figure", [fig3, fig4, fig5, fig6], ids=lambda module: module.__name__[-4:])
def test_a_diverged_run_is_drawn_and_no_claim_holds(
    figure: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def pretend(out: Path, name: str, plan: TrialPlan, progress: object) -> FigureCurves:
        found: FigureCurves = {}
        for dataset, method, seed in plan:
            steps = list(range(0, 401, 8))
            falling = [2.0 / (1 + step) for step in steps]
            made = {"step": steps, "edges_kept": 0.9, "diverged": False}
            made |= dict.fromkeys(("loss", "validation_loss", "validation", "test", "disagreement"), falling)
            if method == "adam":  # ends sooner than the others
                made = {key: part[:40] if isinstance(part, list) else part for key, part in made.items()}
            if seed == 0 and method not in ("GCN", "gd", "100 %", "every iteration"):
                made = {key: part[:3] if isinstance(part, list) else part for key, part in made.items()}
                made["diverged"] = True
            found.setdefault(dataset, {}).setdefault(method, []).append(made)
        return found

    monkeypatch.setattr(figure, "run_plan", pretend)
    for name in ("_table1", "_random_partition"):
        if hasattr(figure, name):
            monkeypatch.setattr(figure, name, lambda datasets: Claim("", "", True))
    outcome = figure.reproduce(tmp_path, quick=True, seeds=3, progress=lambda *state: None)
    assert not any(claim.holds for claim in outcome.claims)
    assert all("diverged" in claim.measured for claim in outcome.claims)
    assert (tmp_path / f"{outcome.name}.png").is_file()


def flat(test: float, reached: int = 5) -> Curve:
    """A run of 20 evaluations whose accuracy is the same throughout and whose loss falls below 0.1 at one of them."""
    steps = list(range(0, 200, 10))
    losses = [0.5 if i < reached else 0.05 for i in range(len(steps))]
    columns = {"loss": losses, "validation_loss": losses, "test": [test] * 20, "validation": [test] * 20}
    return {"step": steps, **columns, "disagreement": [0.0] * 20, "diverged": False}


@pytest.mark.parametrize(
    ("change", "holds"), [(0.005, True), (-0.005, True), (0.02, False), (-0.02, False)], ids=lambda value: str(value)
)
def test_to_match_is_to_be_neither_worse_nor_better(change: float, holds: bool) -> None:
    seeds = (-0.03, 0.0, 0.03)  # of which the paired difference is free
    curves = {"GCN": [flat(0.8 + s) for s in seeds], fig3.dgcn(5): [flat(0.8 + change + s) for s in seeds]}
    assert fig3._same_accuracy({"cora": curves}, (5,)).holds == holds


@pytest.mark.parametrize(
    ("changes", "reached", "holds"),
    [
        ((0.001, -0.001, 0.0, 0.001), (10, 11, 10, 10), True),
        ((0.05, -0.05, 0.04, -0.04), (10, 10, 10, 10), False),  # the mean is 0, but nothing is known
        ((0.02, 0.02, 0.021, 0.02), (10, 10, 10, 10), False),
        ((-0.02, -0.02, -0.021, -0.02), (10, 10, 10, 10), False),
        ((0.0, 0.0, 0.001, 0.0), (14, 14, 14, 15), False),
        ((0.0, 0.0, 0.001, 0.0), (7, 7, 7, 6), False),
        ((0.0, 0.0, 0.001, 0.0), (5, 15, 5, 17), False),  # neither slower nor quicker in the mean
        ((0.0, 0.0, 0.001, 0.0), (10, 10, 10, 99), False),  # one never gets there
    ],
)
def test_no_noticeable_difference_is_a_narrow_interval(
    changes: tuple[float, ...], reached: tuple[int, ...], holds: bool
) -> None:
    after, before = fig5.ORDERS
    curves = {
        after: [flat(0.8, 10) for _ in changes],
        before: [flat(0.8 + change, when) for change, when in zip(changes, reached, strict=True)],
    }
    assert fig5._orders({"cora": curves}).holds == holds


def test_a_data_set_that_is_nowhere_is_told_in_one_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("GOSSAMER_DATA", "")
    monkeypatch.setenv("GOSSAMER_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("https_proxy", "http://127.0.0.1:9")
    done = CliRunner().invoke(app, ["reproduce", "fig4", "--quick", "--seeds", "1"])
    assert done.exit_code == 2
    assert "'cora' is not in GOSSAMER_DATA (not set)" in " ".join(done.stderr.split())
    assert "Put the file there, or try again online" in " ".join(done.stderr.split())
    assert "Traceback" not in done.stderr
