"""`gossamer report` as a user calls it."""

import json
from pathlib import Path

import pytest
from commands.inside import run as call
from report.html.made_runs import train_small


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    parent = tmp_path_factory.mktemp("here")
    train_small(parent / "runs" / "one", steps=2, baselines=False)
    return parent


def test_a_file_is_written_and_named(folder: Path) -> None:
    done = call("report", "runs/one", cwd=folder)
    assert done.returncode == 0
    assert "Report: runs/one/report.html" in done.stdout
    assert (folder / "runs/one/report.html").read_text().startswith("<!DOCTYPE html>")


def test_json_names_the_file_and_its_sections(folder: Path) -> None:
    arguments = ["--compare", "runs/one", "--compare", "runs/one", "--out", "new/page.html", "--no-predictions"]
    done = call("report", "runs/one", *arguments, "--json", cwd=folder)
    found = json.loads(done.stdout)
    assert found["report"] == "new/page.html"
    assert found["sections"][:2] == ["Comparison", "Summary"]
    assert found["bytes"] == (folder / "new/page.html").stat().st_size
    assert "--no-predictions" in (folder / "new/page.html").read_text()


@pytest.mark.parametrize("target", ["nowhere", "runs"])
def test_what_is_no_run_is_a_mistake(folder: Path, target: str) -> None:
    done = call("report", target, cwd=folder)
    assert done.returncode == 2
    assert "is not a run directory" in done.stderr
    assert "Traceback" not in done.stderr
    assert not (folder / target / "report.html").exists()
