"""Settings are checked before any work starts, and a mistake names the key and the nearest right one."""

from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from gossamer.cli import app
from gossamer.data.tasks import Task
from gossamer.errors import GossamerError
from gossamer.runs.presets import PRESETS
from gossamer.runs.run_json import read_run_settings
from gossamer.runs.settings import Settings, make_settings
from gossamer.runs.stored_settings import read_stored_settings
from gossamer.runs.toml_files import read_settings


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"step_sze": 1}, "unknown setting 'step_sze'; did you mean 'step_size'"),
        ({"zzz": 1}, "known: dataset, symmetrise, task"),
        ({"agents": 0}, "agents = 0: input should be greater than or equal to 1"),
        ({"agents": "many"}, "agents = 'many': input should be a valid integer"),
        ({"dropout": 1.0}, "dropout = 1.0: input should be less than 1"),
        (
            {"topology": "stair"},
            "topology = 'stair': input should be 'admm', 'needed', 'complete', 'ring', 'line', 'star'",
        ),
        ({"topology": "faling:0.3"}, r"'switching:FILE'; did you mean 'failing'\?"),
        ({"score": "auc"}, "score = 'auc': input should be 'auto', 'accuracy', 'macro_f1', .* or 'r2'"),
        ({"gap": 0}, "gap = 0: input should be greater than 0"),
        ({"gap": 1.01}, "gap = 1.01: input should be less than or equal to 1"),
        ({"hidden": "64,x"}, "hidden = '64,x': expected widths as in 64, 64,32 or 64x5, got 'x'"),
        ({"hidden": [0]}, "hidden.0 = 0"),
        ({"step_size": -1.0}, "step_size = -1.0: input should be greater than 0"),
        ({"step_size": float("nan")}, "step_size = nan"),
        ({"preset": "papr"}, "preset = 'papr': input should be 'default' or 'paper'"),
        ({"preset": ["paper"]}, "preset = .*: input should be a valid string"),
        ({"decay_layers": "last"}, "decay_layers = 'last': input should be 'first' or 'all'"),
        ({"keep": "worst"}, "keep = 'worst': input should be 'best' or 'last'"),
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


BEFORE = {"track": False, "public_randomness": True}  # of runs from before there were such settings
PAPER = {
    "lost_edges": "drop",
    "standardise": False,
    "bias": False,
    "dropout": 0.5,
    "batch": 0,
    "update": "momentum",
    "step_size": 0.5,
    "weight_decay": 0.0,
    "decay_layers": "all",
    "steps": 500,
    "initial_deviation": 1e-3,
    "keep": "last",
    "evaluate_every": 10,
}


def test_the_papers_preset_is_sec_v_a_and_the_defaults_are_others() -> None:
    defaults, paper = Settings().model_dump(), make_settings({"preset": "paper"}).model_dump()
    assert paper == defaults | PAPER | {"preset": "paper"} == Settings(preset="paper").model_dump()
    assert all(defaults[name] != value for name, value in PAPER.items())
    assert make_settings({"preset": "default"}) == make_settings({}) == Settings()
    assert not make_settings({"preset": "paper"}).tracks
    assert make_settings({}).tracks


@pytest.mark.parametrize("name", PAPER)
def test_what_is_given_wins_over_the_preset(name: str) -> None:
    """Even where it is the default: None asks for Glorot's weights."""
    default = Settings().model_dump()[name]
    found = make_settings({name: default, "preset": "paper"}).model_dump()
    assert found == Settings().model_dump() | PAPER | {"preset": "paper", name: default}


def test_a_preset_that_is_added_is_applied(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(PRESETS, "mine", {"agents": 3, "hidden": 8})
    found = make_settings({"preset": "mine", "agents": 5})
    assert (found.agents, found.hidden, found.update) == (5, (8,), "adam")


SMALL_GRAPH = {
    "features.csv": "vertex,f\na,0\nb,1\nc,0\nd,1\n",
    "edges.csv": "source,target\na,b\nb,c\nc,d\n",
    "labels.csv": "vertex,label,split\na,x,train\nb,y,train\nc,x,validation\nd,y,test\n",
}


@pytest.mark.parametrize(
    ("lines", "options", "changes"),
    [
        ([], [], {}),
        ([], ["--preset", "paper"], PAPER),
        ([], ["--step-size", "0.2", "--preset", "paper", "--bias"], PAPER | {"step_size": 0.2, "bias": True}),
        (['preset = "paper"', "bias = true"], [], PAPER | {"bias": True}),
        (["step_size = 0.2"], ["--preset", "paper"], PAPER | {"step_size": 0.2}),
        (['preset = "paper"', "step_size = 0.2"], ["--update", "gd"], PAPER | {"step_size": 0.2, "update": "gd"}),
        (['preset = "paper"', "step_size = 0.2"], ["--preset", "default"], {"step_size": 0.2}),
    ],
    ids=str,
)
def test_a_preset_in_a_file_and_on_the_command_line(
    lines: list[str], options: list[str], changes: dict[str, Any], tmp_path: Path
) -> None:
    """A preset fills what neither the file nor the command line says; the command line's preset is the one."""
    (tmp_path / "graph").mkdir()
    for name, text in SMALL_GRAPH.items():
        (tmp_path / "graph" / name).write_text(text)
    (tmp_path / "settings.toml").write_text("\n".join(['dataset = "graph"', "agents = 2", *lines]))
    command = ["train", str(tmp_path / "settings.toml"), "--steps", "0", "--no-baselines", *options]
    done = CliRunner().invoke(app, [*command, "--out", str(tmp_path / "run")])
    assert done.exit_code == 0, done.stderr
    found = read_run_settings(tmp_path / "run").model_dump()
    preset = "paper" if "steps" in changes else "default"
    given = {"dataset": str(tmp_path / "graph"), "agents": 2, "steps": 0, "baselines": False, "preset": preset}
    assert found == Settings().fit_to("multiclass", None).model_dump() | changes | given


def test_an_unknown_preset_on_the_command_line_is_refused_with_the_names() -> None:
    done = CliRunner().invoke(app, ["train", "--preset", "papr"])
    assert done.exit_code == 2
    assert "preset = 'papr': input should be 'default' or 'paper'" in " ".join(done.stderr.split())


@pytest.mark.parametrize("lacking", [*([name] for name in (*PAPER, "preset", "patience", *BEFORE)), None], ids=str)
def test_stored_settings_that_lack_some_take_the_papers(lacking: list[str] | None) -> None:
    """As of a run from before there were such settings, and not the defaults of today."""
    paper = {**Settings().model_dump(), **PAPER, **BEFORE, "preset": "paper"}
    stored = {} if lacking is None else {name: value for name, value in paper.items() if name not in lacking}
    assert read_stored_settings(stored, "run.json").model_dump() == paper


def test_stored_settings_are_those_of_the_run() -> None:
    for settings in (Settings(), make_settings({"preset": "paper", "update": "adam", "step_size": 0.02})):
        assert read_stored_settings(settings.model_dump(mode="json"), "run.json") == settings
    before = {"agents": 3, "update": "adam", "step_size": 0.02}  # of a run that tracked nothing
    found = read_stored_settings(before, "run.json")
    assert found.model_dump() == Settings().model_dump() | PAPER | before | BEFORE | {"preset": "paper"}
    assert not found.tracks


@pytest.mark.parametrize(
    ("given", "task", "times", "dropout", "batch"),
    [
        ({}, "multiclass", None, 0.5, 0),
        ({}, "multilabel", None, 0.5, 0),
        ({}, "regression", None, 0.0, 0),
        ({}, "regression", 255, 0.0, 0),
        ({}, "regression", 256, 0.0, 64),
        ({"dropout": 0.2, "batch": 0}, "regression", 5000, 0.2, 0),
        ({"dropout": 0.0, "batch": 7}, "multiclass", 5000, 0.0, 7),
        ({"preset": "paper"}, "regression", 5000, 0.5, 0),
    ],
)
def test_defaults_fit_the_data(
    given: dict[str, Any], task: Task, times: int | None, dropout: float, batch: int
) -> None:
    fitted = make_settings(given).fit_to(task, times)
    assert (fitted.dropout, fitted.batch) == (dropout, batch)
    assert fitted.fit_to("multiclass", None) == fitted  # what is set stays
