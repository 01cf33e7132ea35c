"""The source of runs on disk: run directories, and folders of agents."""

import json
import os
import shutil
import socket
import time
from pathlib import Path
from typing import Any

import pytest
from report.live.sources import OPTIONS, SeenFeed, cut_agents, find_free_process, leave_report, make_small_graph

import gossamer
from gossamer.api import Display
from gossamer.engines.cluster.rank_shards import cut_for_ranks
from gossamer.errors import GossamerError
from gossamer.report.live.folders import FolderSource
from gossamer.report.live.log_lines import LogLines
from gossamer.report.live.view import RunView
from gossamer.runs.directory import lock_run
from gossamer.runs.message_counts import count_messages
from gossamer.runs.settings import make_settings


def look(source: FolderSource) -> RunView:
    """The source's view at this moment."""
    return source._build()


def make_source(folder: Path) -> FolderSource:
    return FolderSource(SeenFeed(), LogLines(), folder)


def states(view: RunView) -> dict[int, str]:
    return {one["agent"]: one["state"] for one in view["agents"]}


def test_a_finished_run_directory(tmp_path: Path) -> None:
    result = gossamer.train(make_small_graph(), out=tmp_path / "run", **OPTIONS)
    view = look(make_source(tmp_path / "run"))
    assert (view["title"], view["state"], view["step"], view["steps"]) == ("small, 3 agents", "finished", 6, 6)
    assert [one["step"] for one in view["evaluations"]] == [0, 2, 4, 6]
    assert view["evaluations"][-1]["validation"] == result.run.history[-1]["validation"]["accuracy"]
    assert set(view["references"]) == {"centralised", "graphless"}
    assert [one["vertices"] for one in view["agents"]] == [4, 4, 4]
    assert set(states(view).values()) == {"finished"}
    assert view["seconds"] == pytest.approx(result.run.seconds)
    assert view["certificate"] is not None
    assert view["certificate"]["holds"] == {"A1": True, "A2": True, "A3": True}
    sent = sum(link["sent"]["forward"] for one in view["agents"] for link in one["neighbours"])
    assert sent == 6 * count_messages(result.run.deployment, result.run.settings)["forward"]["bytes"]
    assert set(view["positions"]) == {"0", "1", "2"}


def test_a_run_directory_grows_while_the_run_goes_on(tmp_path: Path) -> None:
    seen: list[RunView] = []
    folder = tmp_path / "run"

    def watch(record: Any) -> None:
        seen.append(look(make_source(folder)))

    gossamer.train(
        make_small_graph(), out=folder, observers=[gossamer.Observer(on_record=watch)], baselines=False, **OPTIONS
    )
    assert [len(view["evaluations"]) for view in seen] == [1, 2, 3, 4]
    assert {view["state"] for view in seen} == {"training"}
    assert [view["step"] for view in seen] == [0, 2, 4, 6]
    forward = [view["agents"][0]["neighbours"][0]["sent"]["forward"] for view in seen]
    assert forward[1] > 0
    assert forward == [0, forward[1], 2 * forward[1], 3 * forward[1]]
    assert seen[0]["certificate"] is not None


def test_one_source_reads_what_is_new_only(tmp_path: Path) -> None:
    gossamer.train(make_small_graph(), out=tmp_path / "run", baselines=False, **OPTIONS)
    path = tmp_path / "run" / "metrics.jsonl"
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join(lines[:2]) + lines[2][:20])
    source = make_source(tmp_path / "run")
    first = look(source)["evaluations"]
    assert [one["step"] for one in first] == [0, 2]
    with path.open("ab") as file:
        file.write(lines[2][20:])
    second = look(source)["evaluations"]
    assert second is first
    assert [one["step"] for one in second] == [0, 2, 4]
    with path.open("ab") as file:  # the run has gone back to an earlier step
        file.write(lines[1])
    assert [one["step"] for one in look(source)["evaluations"]] == [0, 2]
    assert [one["step"] for one in second] == [0, 2, 4]


@pytest.mark.parametrize(
    "damaged",
    [
        b"\xff\xfe",
        b'{"step": 5',
        b"[]",
        b'{"step": 5, "train": {}, "validation": {}, "test": {}}',
        b'{"step": Infinity, "train": {"accuracy": 1}, "validation": {}, "test": {}}',
        b'{"step": 5, "train": {"accuracy": 1' + 400 * b"0" + b'}, "validation": {}, "test": {}}',
        100_000 * b"[",
    ],
    ids=["bytes", "torn", "list", "no score", "endless", "huge", "deep"],
)
def test_a_damaged_line_is_left_out(tmp_path: Path, damaged: bytes) -> None:
    gossamer.train(make_small_graph(), out=tmp_path / "run", baselines=False, **OPTIONS)
    path = tmp_path / "run" / "metrics.jsonl"
    lines = path.read_bytes().splitlines()
    path.write_bytes(b"\n".join([*lines[:2], damaged, *lines[2:], b""]))
    assert [one["step"] for one in look(make_source(tmp_path / "run"))["evaluations"]] == [0, 2, 4, 6]


def test_a_run_that_was_stopped(tmp_path: Path) -> None:
    stop = iter([False, False, False, True]).__next__
    gossamer.train(make_small_graph(), out=tmp_path / "run", should_stop=stop, **OPTIONS)
    (tmp_path / "run" / ".lock").unlink()
    view = look(make_source(tmp_path / "run"))
    assert (view["state"], view["step"]) == ("stopped", 3)
    assert view["references"] == {}


def test_a_run_that_ended_before_its_first_evaluation(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    gossamer.train(make_small_graph(), out=folder, should_stop=lambda: True, **OPTIONS)
    (folder / "metrics.jsonl").unlink()
    with lock_run(folder):
        assert look(make_source(folder))["state"] == "starting"
    (folder / ".lock").write_text(f"process {find_free_process()} on {socket.gethostname()}\n")
    view = look(make_source(folder))
    assert (view["state"], set(states(view).values())) == ("stopped", {"stopped"})
    (line,) = view["log"]  # of the run, and not one for each agent
    assert line["text"].startswith("the run has stopped")


def test_a_run_directory_that_is_removed_is_shown_as_it_was(tmp_path: Path) -> None:
    gossamer.train(make_small_graph(), out=tmp_path / "run", baselines=False, **OPTIONS)
    feed = SeenFeed()
    source = FolderSource(feed, LogLines(), tmp_path / "run")
    with source.publisher:
        feed.wait(0, 30.0)
        shutil.rmtree(tmp_path / "run")
    assert (feed.last["state"], len(feed.last["evaluations"])) == ("finished", 4)
    with pytest.raises(GossamerError, match="is no longer there"):
        look(source)


def test_time_of_a_run_that_was_resumed_goes_on(tmp_path: Path) -> None:
    folder, stop = tmp_path / "run", iter([False, False, False, False, False, True]).__next__
    stopped = gossamer.train(make_small_graph(), out=folder, should_stop=stop, **OPTIONS)
    (folder / ".lock").unlink()
    assert look(make_source(folder))["seconds"] == stopped.run.seconds
    resumed_at, seconds = time.time() + 100, []
    with lock_run(folder):  # a process that loads the data
        assert look(make_source(folder))["seconds"] == stopped.run.seconds
    os.utime(folder / "checkpoint.safetensors", (resumed_at - 50, resumed_at - 50))

    def watch(step: int, loss: float) -> None:
        os.utime(folder / "run.json", (resumed_at, resumed_at))
        source = make_source(folder)
        assert source._directory is not None
        source._directory.read()
        seconds.append(source._directory.count_seconds(resumed_at + 7.5))
        assert look(source)["activity"] == ""

    result = gossamer.resume(
        folder,
        graph=make_small_graph(),
        observers=[gossamer.Observer(on_step=watch)],
        display=display_references(folder),
    )
    assert seconds == [pytest.approx(stopped.run.seconds + 7.5)]
    stored = json.loads((folder / "run.json").read_text())["summary"]["seconds"]
    assert look(make_source(folder))["seconds"] == stored == result.run.seconds


def display_references(folder: Path) -> Display:
    """A display that looks at a run directory whenever a reference is evaluated: the time stands still."""

    def display(name: str, first: int, last: int) -> gossamer.Observer:
        def watch(record: Any) -> None:
            view = look(make_source(folder))
            stored = json.loads((folder / "run.json").read_text())["summary"]["seconds"]
            assert view["seconds"] == stored
            assert (view["activity"], set(states(view).values())) == ("training the references", {"finished"})

        return gossamer.Observer() if name == "distributed" else gossamer.Observer(on_record=watch)

    return display


def test_time_of_agents_goes_from_their_first_start_to_their_last_report(tmp_path: Path) -> None:
    folders = cut_agents(tmp_path / "run")
    assert look(make_source(folders[0]))["seconds"] == 0.0
    for agent, started in ((0, 5000.0), (1, 4000.0)):
        state = leave_report(folders[agent], agent, time=5020.0 + agent)
        (state / "started").write_text(f"{started}\n")
    assert look(make_source(folders[0]))["seconds"] == 20.0
    (tmp_path / "run" / "run.json").unlink(missing_ok=True)
    assert look(make_source(tmp_path / "run" / "agents"))["seconds"] == 1021.0
    state = leave_report(folders[0], 0, time=5100.0, finished=True, serving=True)
    (state / "done").touch()
    os.utime(state / "done", (5030.0, 5030.0))
    assert look(make_source(folders[0]))["seconds"] == 30.0  # it serves


def test_neighbours_of_an_agent_that_has_finished(tmp_path: Path) -> None:
    folders = cut_agents(tmp_path / "run")
    links = {str(z): {"sent": {}, "received": 12, "waited": 1.5} for z in (0, 2)}
    state = leave_report(folders[1], 1, runs=False, links=links, finished=True, all_done=True)
    (state / "done").touch()
    assert states(look(make_source(folders[1]))) == {0: "finished", 1: "finished", 2: "finished"}


def test_references_of_a_launch_are_said_to_be_trained(tmp_path: Path) -> None:
    cut_agents(tmp_path / "run")
    source = make_source(tmp_path / "run")
    source.clock = lambda: 12.5
    source.follow("distributed", 0, 6)
    assert look(source)["activity"] == ""
    source.follow("graphless", 0, 6)
    view = look(source)
    assert (view["activity"], view["seconds"]) == ("training the graph-less reference", 12.5)
    assert "graphless: training from step 0 of 6" in [line["text"] for line in view["log"]]
    source.end(complete=True)
    assert look(source)["activity"] == ""


def test_agents_that_have_not_started(tmp_path: Path) -> None:
    cut_agents(tmp_path / "run")
    view = look(make_source(tmp_path / "run" / "agents"))
    assert view["state"] == "starting"
    assert states(view) == {0: "not started", 1: "not started", 2: "not started"}
    assert [(one["vertices"], one["step"]) for one in view["agents"]] == [(4, None)] * 3
    assert sum(one["labels"] or 0 for one in view["agents"]) == 4


def test_agents_that_train_and_one_that_has_died(tmp_path: Path) -> None:
    folders = cut_agents(tmp_path / "run")
    link = {"sent": {"forward": 7, "protocol": 3}, "received": 12, "waited": 1.5}
    for agent in range(3):
        leave_report(folders[agent], agent, links={"1": link} if agent == 0 else {}, refused={"old": 3, "mac": 2})
    log = LogLines()
    source = FolderSource(SeenFeed(), log, tmp_path / "run")
    view = look(source)
    assert states(view) == {0: "training", 1: "training", 2: "training"}
    assert (view["state"], view["step"], view["steps"], view["own"]) == ("training", 4, 6, None)
    first = view["agents"][0]
    assert first["neighbours"] == [
        {"neighbour": 1, "sent": {"forward": 7, "protocol": 3}, "received": 12, "waited": 1.5}
    ]
    assert (first["loss"], first["epoch"], first["refused"]) == (1.5, 2, {"mac": 2})

    leave_report(folders[2], 2, runs=False)
    leave_report(folders[1], 1, waiting_for=[2], waited=16.0)
    view = look(source)
    assert states(view) == {0: "training", 1: "training", 2: "missing"}
    assert (view["agents"][1]["waiting_for"], view["agents"][1]["waited"]) == ([2], 16.0)
    leave_report(folders[2], 2, step=5)
    view = look(source)
    assert states(view)[2] == "training"
    assert view["step"] == 5
    texts = [line["text"] for line in view["log"]]
    assert "agent 0 has refused a message: mac (2 so far)" in texts
    assert "agent 1 has waited 16 s for agent 2" in texts
    assert [text.partition(":")[0] for text in texts if text.startswith("agent 2")][-2:] == [
        "agent 2 is missing",
        "agent 2 is back",
    ]

    leave_report(folders[0], 0, time=time.time() - 60)
    assert states(look(source))[0] == "missing"  # its process runs and is silent


def test_agents_that_have_all_stopped_are_not_missing(tmp_path: Path) -> None:
    folders = cut_agents(tmp_path / "run")
    for agent in range(3):
        leave_report(folders[agent], agent, runs=False)
    view = look(make_source(tmp_path / "run" / "agents"))
    assert (view["state"], set(states(view).values())) == ("stopped", {"stopped"})
    for folder in folders:
        (state,) = folder.glob("run-*")
        (state / "done").touch()
    view = look(make_source(tmp_path / "run" / "agents"))
    assert (view["state"], set(states(view).values())) == ("finished", {"finished"})


def test_evaluations_of_agents_are_those_of_one_that_is_there(tmp_path: Path) -> None:
    folders = cut_agents(tmp_path / "run")
    for agent in range(3):
        state = leave_report(folders[agent], agent)
        scores = {"loss": 0.5 + agent, "accuracy": 0.25}
        network = dict.fromkeys(("train", "validation", "test"), scores)
        lines = [{"step": step, "network": network, "disagreement": 0.125} for step in range(0, 4 + agent, 2)]
        (state / "evaluations.jsonl").write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    source = make_source(tmp_path / "run" / "agents")
    view = look(source)
    assert [(one["step"], one["loss"], one["validation"]) for one in view["evaluations"]] == [
        (0, 0.5, 0.25),
        (2, 0.5, 0.25),
    ]
    assert view["evaluations"][0]["disagreement"] == 0.125
    leave_report(folders[0], 0, runs=False)
    assert [one["loss"] for one in look(source)["evaluations"]] == [1.5, 1.5, 1.5]


def test_a_private_runs_scores_are_summed_where_all_agents_are_at_hand(tmp_path: Path) -> None:
    options = {"privacy": "edge:epsilon=8,delta=1e-3", "topology": "ring", "consensus_every": 1}
    folders = cut_agents(tmp_path / "run", **options)
    states = [leave_report(folders[agent], agent) for agent in range(3)]

    def log(agent: int, steps: int) -> None:
        right = [agent, 0]  # loss, weight, count; right, predicted and actual by class
        sums = [2.0 + agent, 2, 2, *right, 2, 0, 2, 0]
        lines = [{"step": step, "train": sums, "validation": sums, "test": sums} for step in range(0, 2 * steps, 2)]
        (states[agent] / "evaluations.jsonl").write_text("".join(f"{json.dumps(line)}\n" for line in lines))

    source = make_source(tmp_path / "run")
    assert look(source)["evaluations"] == []
    for agent in range(3):
        log(agent, 2 + agent)
    found = look(source)["evaluations"]
    assert [(one["step"], one["loss"], one["validation"]) for one in found] == [(0, 1.5, 0.5), (2, 1.5, 0.5)]
    log(0, 4)
    assert [one["step"] for one in look(source)["evaluations"]] == [0, 2, 4]


def test_one_agents_folder_shows_it_and_what_it_sees_of_its_neighbours(tmp_path: Path) -> None:
    folders = cut_agents(tmp_path / "run")
    link = {"sent": {}, "received": 12, "waited": 1.5}
    leave_report(folders[1], 1, links={"0": link}, waiting_for=[2], waited=20.0)
    view = look(make_source(folders[1]))
    assert view["own"] == 1
    assert states(view) == {1: "training", 0: "training", 2: "missing"}
    assert set(view["positions"]) == {"0", "1", "2"}


def test_neighbours_of_an_agent_that_has_stopped_are_unknown(tmp_path: Path) -> None:
    folder = cut_agents(tmp_path / "run")[1]
    source, links = make_source(folder), {"0": {"sent": {}, "received": 12, "waited": 1.5}}
    leave_report(folder, 1, links=links, waiting_for=[2], waited=20.0)
    assert states(look(source)) == {1: "training", 0: "training", 2: "missing"}
    leave_report(folder, 1, runs=False, links=links)
    view = look(source)
    assert states(view) == {1: "stopped", 0: "unknown", 2: "unknown"}
    (line,) = [one["text"] for one in view["log"] if one["text"].startswith("agent 2")]
    assert "is missing" in line  # and not said to be back
    leave_report(folder, 1, runs=False, links=links, all_done=True)
    assert states(look(source)) == {1: "stopped", 0: "finished", 2: "finished"}


def test_memberships_come_from_the_agents_folders(tmp_path: Path) -> None:
    folders = cut_agents(tmp_path / "run", evict_after=3, topology="complete")
    for agent in range(3):
        leave_report(folders[agent], agent, membership=0, members=[0, 1, 2], standing="member")
    source = make_source(tmp_path / "run")
    assert [one["members"] for one in look(source)["memberships"]] == [[0, 1, 2]]
    following = [{"agent": agent, "profile": ""} for agent in (0, 2)]
    line = json.dumps({"membership": 0, "certificate": [], "following": following})
    for agent in (0, 2):
        state = leave_report(folders[agent], agent, membership=1, members=[0, 2], standing="member")
        (state / "memberships.jsonl").write_text(f"{line}\n")
        (state / "membership-1").mkdir()
        (state / "membership-1" / "begins").write_text('{"membership": 0, "step": 3, "adopters": []}')
    leave_report(folders[1], 1, runs=False, membership=0, members=[0, 1, 2], standing="member")
    view = look(source)
    assert [(one["number"], one["members"], one["from_step"]) for one in view["memberships"]] == [
        (0, [0, 1, 2], None),
        (1, [0, 2], 3),
    ]
    assert states(view) == {0: "training", 1: "missing", 2: "training"}
    assert "membership 1 begins, with the agents 0, 2" in [one["text"] for one in view["log"]]


def test_hostile_words_in_a_report_stay_words(tmp_path: Path) -> None:
    folders = cut_agents(tmp_path / "run")
    evil = "<script>alert(1)</script>\n\x1b[31m"
    leave_report(folders[0], 0, refused={evil: 1}, links={"1": {"sent": {evil: 3}, "received": 1, "waited": 0}})
    view = look(make_source(tmp_path / "run" / "agents"))
    assert view["agents"][0]["refused"] == {evil: 1}
    (line,) = [one["text"] for one in view["log"] if "refused" in one["text"]]
    assert line == "agent 0 has refused a message: <script>alert(1)</script> \ufffd[31m (1 so far)"


def test_folders_with_nothing_to_watch_are_refused(tmp_path: Path) -> None:
    with pytest.raises(GossamerError, match=r"holds no run: expected run\.json.*found neither"):
        make_source(tmp_path)
    with pytest.raises(GossamerError, match="no such folder"):
        make_source(tmp_path / "absent")
    one, other = cut_agents(tmp_path / "one"), cut_agents(tmp_path / "other")
    (tmp_path / "mixed").mkdir()
    shutil.move(one[0], tmp_path / "mixed" / "a")
    shutil.move(other[1], tmp_path / "mixed" / "b")
    with pytest.raises(GossamerError, match="agents of 2 runs"):
        make_source(tmp_path / "mixed")


def test_ranks_are_no_agents(tmp_path: Path) -> None:
    cut_for_ranks(tmp_path / "cut", make_small_graph(), make_settings({"dataset": "small", **OPTIONS}), 2)
    view = look(make_source(tmp_path / "cut"))
    assert (view["state"], view["step"], len(view["agents"])) == ("starting", 0, 3)
    assert [link["neighbour"] for link in view["agents"][1]["neighbours"]] == [0, 2]
    assert view["certificate"] is not None
    found = view["certificate"]
    assert (found["needed_links"], found["edges_kept"]) == (2, 1.0)
    assert found["edges_relayed"] == pytest.approx(2 / 21)
