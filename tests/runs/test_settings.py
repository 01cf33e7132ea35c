"""Settings are checked before any work starts, and a mistake names the key and the nearest right one."""

from pathlib import Path
from typing import Any

import pytest

from gossamer.errors import GossamerError
from gossamer.runs.settings import make_settings
from gossamer.runs.toml_files import read_settings


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"step_sze": 1}, "unknown setting 'step_sze'; did you mean 'step_size'"),
        ({"zzz": 1}, "known: dataset, symmetrise, agents"),
        ({"agents": 0}, "agents = 0: input should be greater than or equal to 1"),
        ({"agents": "many"}, "agents = 'many': input should be a valid integer"),
        ({"dropout": 1.0}, "dropout = 1.0: input should be less than 1"),
        (
            {"topology": "stair"},
            "topology = 'stair': input should be 'admm', 'needed', 'complete', 'ring', 'line', 'star'",
        ),
        ({"score": "auc"}, "score = 'auc': input should be 'auto', 'accuracy', 'macro_f1', .* or 'r2'"),
        ({"gap": 0}, "gap = 0: input should be greater than 0"),
        ({"gap": 1.01}, "gap = 1.01: input should be less than or equal to 1"),
        ({"hidden": "64,x"}, "hidden.1 = 'x'"),
        ({"hidden": [0]}, "hidden.0 = 0"),
        ({"step_size": -1.0}, "step_size = -1.0: input should be greater than 0"),
        ({"step_size": float("nan")}, "step_size = nan"),
    ],
)
def test_mistakes(values: dict[str, Any], message: str) -> None:
    with pytest.raises(GossamerError, match=message):
        make_settings(values)


def test_all_mistakes_are_reported_at_once() -> None:
    with pytest.raises(GossamerError) as caught:
        make_settings({"agents": 0, "steps": -1})
    assert len(str(caught.value).splitlines()) == 2


@pytest.mark.parametrize("hidden", [64, "64", [64], (64,)])
def test_hidden_widths_have_many_spellings(hidden: object) -> None:
    assert make_settings({"hidden": hidden}).hidden == (64,)


def test_a_file_gives_the_same_and_paths_are_relative_to_it(tmp_path: Path) -> None:
    (tmp_path / "graph").mkdir()
    (tmp_path / "settings.toml").write_text('dataset = "graph"\nagents = 3\nhidden = [8, 4]\n')
    settings = make_settings(read_settings(tmp_path / "settings.toml"))
    assert settings.dataset == str(tmp_path / "graph")
    assert (settings.agents, settings.hidden) == (3, (8, 4))


@pytest.mark.parametrize("text", ["agents = ", "= 3"])
def test_broken_toml_is_reported(text: str, tmp_path: Path) -> None:
    (tmp_path / "settings.toml").write_text(text)
    with pytest.raises(GossamerError, match="not valid TOML"):
        read_settings(tmp_path / "settings.toml")
    with pytest.raises(GossamerError, match="cannot read"):
        read_settings(tmp_path / "absent.toml")
