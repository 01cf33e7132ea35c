"""The paper's claims on quick settings, and a reproduction that continues where it stopped."""

import csv
import json
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from gossamer import topology
from gossamer.cli import app
from gossamer.errors import GossamerError
from gossamer.experiments import fig2
from gossamer.experiments.reproduction import Cache


def quietly(done: int, total: int, reached: str) -> None:
    pass


def test_sparsity_rises_to_the_minimally_connected_network(tmp_path: Path) -> None:
    outcome = fig2.reproduce(tmp_path, quick=True, seeds=2, progress=quietly)
    assert all(claim.holds for claim in outcome.claims), outcome.claims
    with (tmp_path / "fig2.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert {row["seed"] for row in rows} == {"0", "1"}
    assert [float(row["radius"]) for row in rows[:10]] == [round(0.1 * i, 1) for i in range(10)]
    assert (tmp_path / "fig2.png").read_bytes().startswith(b"\x89PNG")
    assert (tmp_path / "fig2.pdf").read_bytes().startswith(b"%PDF")


def test_a_stored_result_is_not_computed_again(tmp_path: Path) -> None:
    cache, calls = Cache(tmp_path / "cache"), []

    def compute() -> dict[str, float]:
        calls.append(1)
        return {"value": 0.1}

    assert cache.get_or_compute({"seed": 1, "radii": (0.1, 0.2)}, compute) == {"value": 0.1}
    assert cache.get_or_compute({"seed": 1, "radii": (0.1, 0.2)}, compute) == {"value": 0.1}
    assert len(calls) == 1
    cache.get_or_compute({"seed": 2, "radii": (0.1, 0.2)}, compute)
    assert len(calls) == 2
    for path in (tmp_path / "cache").iterdir():
        path.write_text("{")
    with pytest.raises(GossamerError, match=r"is damaged.*remove it"):
        cache.get_or_compute({"seed": 1, "radii": (0.1, 0.2)}, compute)


def test_an_interrupted_reproduction_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    sweep, calls = topology.sweep_gaps, []

    def once(*arguments: object, **more: object) -> object:
        calls.append(1)
        if len(calls) == 2:
            raise KeyboardInterrupt
        return sweep(*arguments, **more)  # type: ignore[arg-type]

    monkeypatch.setattr(topology, "sweep_gaps", once)
    stopped = CliRunner().invoke(app, ["reproduce", "fig2", "--quick", "--seeds", "2"])
    assert stopped.exit_code == 130
    done = CliRunner().invoke(app, ["reproduce", "fig2", "--quick", "--seeds", "2", "--json"])
    assert done.exit_code == 0, done.stderr
    assert len(calls) == 3  # seed 0 once, seed 1 twice
    claims = json.loads(done.stdout)["fig2"]["claims"]
    assert np.all([claim["holds"] for claim in claims])


def test_an_unknown_part_is_refused() -> None:
    done = CliRunner().invoke(app, ["reproduce", "fig9"])
    assert done.exit_code == 2
    assert "fig9" in done.stderr
