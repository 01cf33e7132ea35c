"""`gossamer audit` and gossamer.audit as a user calls them."""

import json
import shutil
from pathlib import Path

import pytest
from typer.testing import CliRunner

import gossamer
from gossamer.cli import app
from gossamer.peers.sessions import log_session
from gossamer.report.audit_tables import describe_audit
from gossamer.runs.options import Options

SMALL = ["--agents", "3", "--hidden", "8", "--steps", "6", "--evaluate-every", "3", "--no-baselines"]


def invoke(*arguments: str) -> tuple[int, str, str]:
    done = CliRunner().invoke(app, list(arguments))
    assert done.exception is None or isinstance(done.exception, SystemExit), done.exception
    return done.exit_code, done.stdout, " ".join(done.stderr.split())


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("runs") / "one"
    assert invoke("train", "digits", *SMALL, "--out", str(folder))[0] == 0
    return folder


def test_json_of_a_run(run: Path) -> None:
    code, printed, _ = invoke("audit", str(run), "--observer", "1", "--sample", "12", "--json")
    assert code == 0
    found = json.loads(printed)
    assert {"boundary_vertices", "identifiable_vertices", "rank", "features", "attacks", "epsilon"} <= set(found)
    assert found["observers"] == [1]
    assert found["features"] == 64
    assert found["epsilon"] is None
    assert found["attacked_steps"] == 6
    for attack in ("features", "labels"):
        assert 0 <= found["attacks"][attack]["baseline"] <= 1
        assert 0 <= found["attacks"][attack]["rate"] <= 1
    assert found["attacks"]["features"]["tried"] == 12
    assert sum(one["boundary_vertices"] for one in found["neighbours"]) == found["boundary_vertices"]
    assert (run / "reconstructions.png").read_bytes().startswith(b"\x89PNG")


def test_settings_of_the_same_run_give_the_same(run: Path, tmp_path: Path) -> None:
    asked = ["--coalition", "0,2", "--sample", "5", "--json"]
    picture = tmp_path / "here.png"
    of_run = invoke("audit", str(run), *asked, "--out", str(picture))[1]
    of_settings = invoke("audit", "digits", *SMALL, *asked, "--out", str(picture))[1]
    assert json.loads(of_run) == json.loads(of_settings)
    assert json.loads(of_run)["observers"] == [0, 2]
    in_python = gossamer.audit("digits", curious=[0, 2], sample=5, agents=3, hidden=8, steps=6, evaluate_every=3)
    assert in_python.to_dict() == json.loads(of_run)


def test_the_table_has_a_line_for_each_neighbour_and_says_what_it_means(run: Path) -> None:
    code, printed, _ = invoke("audit", str(run), "--observer", "0", "--no-attack")
    assert code == 0
    words = " ".join(printed.split())
    assert "what agent 0 learns" in words
    assert "boundary vertices follow from the rows" in words
    assert "sees ciphertext" in words
    assert "gossamer docs privacy" in words
    assert not any(len(line) > 80 for line in printed.splitlines()[1:6])


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["--observer", "3"], "expected agents from 0 to 2"),
        (["--coalition", "0,1,2"], "nobody is left"),
        (["--coalition", "0;1"], "as in --coalition 1,4"),
        (["--observer", "1", "--coalition", "0,2"], "not both"),
        (["--membership", "2", "--no-attack"], "at least 4 shadow runs"),
    ],
    ids=str,
)
def test_mistakes_are_named(arguments: list[str], told: str) -> None:
    code, _, said = invoke("audit", "digits", *SMALL, *arguments)
    assert code == 2
    assert told in said


def test_what_cannot_be_audited_is_refused(run: Path, tmp_path: Path) -> None:
    for target, options, told in (
        (str(tmp_path / "none"), [], "no data set, .npz file or folder of CSV tables"),
        (str(run), ["--hidden", "4"], "audited with its own settings; leave --hidden away"),
        ("digits", ["--agents", "1"], "nothing to audit"),
    ):
        code, _, said = invoke("audit", target, *options)
        assert code == 2
        assert told in said


@pytest.fixture(scope="module")
def launched(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("launched") / "one"
    assert invoke("launch", "digits", *SMALL, "--record", "--out", str(folder))[0] == 0
    return folder


def test_a_recorded_launch_is_audited_from_its_messages(launched: Path, tmp_path: Path) -> None:
    asked = ["--coalition", "0,2", "--sample", "6", "--out", str(tmp_path / "here.png")]
    code, printed, _ = invoke("audit", str(launched), *asked, "--json")
    assert code == 0
    found = json.loads(printed)
    assert found["recorded"] is True
    assert found["attacked_steps"] == 6
    apart = tmp_path / "apart"
    shutil.copytree(launched, apart)
    shutil.rmtree(recorded_in(apart, 0))
    code, _, told = invoke("audit", str(apart), *asked)
    assert code == 2
    assert "agent 0 has not recorded, and others of the coalition have" in told
    shutil.rmtree(recorded_in(apart, 2))
    simulated = json.loads(invoke("audit", str(apart), *asked, "--json")[1])  # with the launch's secrets
    assert simulated.pop("recorded") is False
    assert simulated == {name: value for name, value in found.items() if name != "recorded"}


def recorded_in(folder: Path, agent: int) -> Path:
    (found,) = (folder / "agents" / f"agent-{agent}").glob("run-*/")
    return found / "recorded"


def test_damaged_records_of_a_launch_end_with_one_line(launched: Path, tmp_path: Path) -> None:
    shutil.copytree(launched, tmp_path / "run")
    path = recorded_in(tmp_path / "run", 1) / "messages-0.safetensors"
    path.write_bytes(path.read_bytes()[:-1] + b"x")
    code, _, told = invoke("audit", str(tmp_path / "run"), "--observer", "1")
    assert code == 2
    assert "messages-0.safetensors is damaged" in told
    assert invoke("audit", str(tmp_path / "run"), "--observer", "1", "--no-attack")[0] == 0


def test_the_folder_of_an_agent(launched: Path) -> None:
    folder = str(launched / "agents" / "agent-1")
    code, printed, _ = invoke("audit", folder, "--sample", "4")
    assert code == 0
    words = " ".join(printed.split())
    assert "Messages: as agent 1 recorded them in the run itself, 6 steps." in words
    assert "Whether reconstructions are right only others know." in words
    found = json.loads(invoke("audit", folder, "--sample", "4", "--json")[1])
    assert found["observers"] == [1]
    assert found["attacks"]["features"]["rate"] is None
    assert found["attacks"]["features"]["tried"] == 4
    for options, told in ((["--observer", "0"], "its agent is the observer"), (["--steps", "3"], "leave --steps away")):
        code, _, said = invoke("audit", folder, *options)
        assert code == 2
        assert told in said


def test_membership_with_few_shadow_runs() -> None:
    code, printed, _ = invoke("audit", "digits", *SMALL, "--no-attack", "--membership", "4", "--json")
    assert code == 0
    found = json.loads(printed)["attacks"]["membership"]
    assert found["runs"] == 4
    assert found["baseline"] == 0.5
    assert 0.3 < found["rate"] <= 1


def test_pads_of_a_launch_that_came_twice_are_counted(tmp_path: Path) -> None:
    options: Options = {"agents": 3, "topology": "complete", "hidden": 4, "steps": 2, "consensus": "masked"}
    options["baselines"] = False
    gossamer.train("digits", out=tmp_path / "run", **options)
    assert gossamer.audit(tmp_path / "run", attack=False).repeated_pads is None
    folder = tmp_path / "run" / "agents" / "agent-0" / "run-1"
    folder.mkdir(parents=True)
    for session in (b"one", b"two", b"one"):
        log_session(folder, 0, 0, session)
    found = gossamer.audit(tmp_path / "run", attack=False)
    assert found.to_dict()["repeated_pads"] == 1
    assert any("1 pads came twice" in line for line in describe_audit(found))


def test_steps_that_a_run_did_not_take_are_not_counted(tmp_path: Path) -> None:
    train = ["train", "digits", "--agents", "3", "--hidden", "4", "--steps", "90", "--evaluate-every", "1"]
    code, *_ = invoke(*train, "--patience", "1", "--step-size", "0.5", "--no-baselines", "--out", str(tmp_path / "run"))
    assert code == 0
    taken = json.loads((tmp_path / "run" / "run.json").read_text())["step"]
    assert taken < 90
    assert json.loads(invoke("audit", str(tmp_path / "run"), "--no-attack", "--json")[1])["steps"] == taken


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        (["--membership", "2"], "at least 4 shadow runs"),
        (["--out", "picture.txt"], "expected a .png file"),
        (["--out", "nowhere/picture.png"], "in a folder that exists"),
    ],
)
def test_mistakes_are_found_before_the_attack(run: Path, asked: list[str], message: str) -> None:
    code, _, told = invoke("audit", str(run), "--attack-steps", "1", *asked)
    assert code == 2
    assert message in told


def test_a_folder_that_is_no_run(tmp_path: Path) -> None:
    code, _, told = invoke("audit", str(tmp_path))
    assert code == 2
    assert "neither a run directory" in told


def test_the_findings_stay_in_the_run_directory(run: Path) -> None:
    code, printed, _ = invoke("audit", str(run), "--no-attack", "--observer", "2", "--json")
    assert code == 0
    left = json.loads((run / "audit.json").read_text())
    assert {name: left[name] for name in json.loads(printed)} == json.loads(printed)
    assert left["findings"]
    assert left["observers"] == [2]
