"""Without the libraries of an extra, what needs them names the extra; everything else goes on without."""

import sys
from pathlib import Path

import pytest
from commands.inside import run

SHORT = ("train", "--agents", "2", "--steps", "1", "--no-baselines", "--out", "run")


@pytest.mark.parametrize(
    ("library", "extra", "options"),
    [
        ("pymetis", "metis", ("--assignment", "metis")),
        ("torch.utils.tensorboard", "tensorboard", ("--tensorboard", "logs")),
        ("dp_accounting", "privacy", ("--privacy", "node:epsilon=8,delta=1e-5")),
        ("prometheus_client", "metrics", ("--metrics", "127.0.0.1:0")),
    ],
)
def test_a_missing_extra_is_named_and_nothing_is_written(
    library: str, extra: str, options: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, library, None)
    monkeypatch.delitem(sys.modules, "gossamer.report.live.metric_families", raising=False)
    done = run(*SHORT, *options, cwd=tmp_path)
    assert done.returncode == 2, done.stdout
    assert f"gossamer[{extra}]" in done.stderr.replace("\n", "")
    assert not (tmp_path / "run").exists()


def test_nothing_of_the_extras_is_needed_without_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for library in ("pymetis", "torch.utils.tensorboard", "dp_accounting", "prometheus_client", "networkx"):
        monkeypatch.setitem(sys.modules, library, None)
    monkeypatch.setitem(sys.modules, "torch_geometric", None)
    assert run(*SHORT, cwd=tmp_path).returncode == 0
