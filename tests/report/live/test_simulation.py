"""The source of a run that is trained in this process."""

import json
import logging
import os
import time
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from report.live.sources import OPTIONS, SeenFeed, make_small_graph

import gossamer
from gossamer.report.live.log_lines import LogLines
from gossamer.report.live.simulation import SimulationSource
from gossamer.runs.directory import read_references
from gossamer.runs.message_counts import count_messages
from gossamer.runs.records import Record


def test_a_view_has_what_is_known_of_a_run() -> None:
    feed, log = SeenFeed(), LogLines()
    source = SimulationSource(feed, log, "small")
    with source.publisher:
        result = gossamer.train(make_small_graph(), display=source.follow, **OPTIONS)
        source.end(result.complete)
    view = feed.last
    assert (view["title"], view["state"], view["step"], view["steps"]) == ("small, 3 agents", "finished", 6, 6)
    assert view["score"] == "accuracy"
    assert [one["step"] for one in view["evaluations"]] == [0, 2, 4, 6]
    for shown, record in zip(view["evaluations"], result.run.history, strict=True):
        assert shown["loss"] == record["train"]["loss"]
        assert shown["validation"] == record["validation"]["accuracy"]
        assert shown["disagreement"] == record["disagreement"]
    assert {name: [one["step"] for one in found] for name, found in view["references"].items()} == {
        "centralised": [0, 2, 4, 6],
        "graphless": [0, 2, 4, 6],
    }
    deployment = result.run.deployment
    assert [one["vertices"] for one in view["agents"]] == [4, 4, 4]
    assert sum(one["labels"] or 0 for one in view["agents"]) == deployment.graph.train.sum() == 4
    assert {one["state"] for one in view["agents"]} == {"finished"}
    assert set(view["positions"]) == {"0", "1", "2"}
    certificate = view["certificate"]
    assert certificate is not None
    assert certificate["holds"] == deployment.certificate.assumptions.holds
    assert (certificate["needed_links"], certificate["added_links"]) == (2, 0)
    assert [line["text"] for line in view["log"]] == [
        "distributed: training from step 0 of 6",
        "centralised: training from step 0 of 6",
        "graphless: training from step 0 of 6",
        "the run has finished",
    ]


def test_bytes_are_those_of_the_steps_that_were_made() -> None:
    feed = SeenFeed()
    source = SimulationSource(feed, LogLines(), "small")
    with source.publisher:
        run = gossamer.train(make_small_graph(), display=source.follow, baselines=False, **OPTIONS).run
    counted = count_messages(run.deployment, run.settings)
    sent = dict.fromkeys(("forward", "backward", "consensus"), 0)
    for agent in feed.last["agents"]:
        for link in agent["neighbours"]:
            for phase, size in link["sent"].items():
                sent[phase] += size
            (back,) = [
                one
                for one in feed.last["agents"][link["neighbour"]]["neighbours"]
                if one["neighbour"] == agent["agent"]
            ]
            assert link["received"] == sum(back["sent"].values())
    assert sent == {
        "forward": 6 * counted["forward"]["bytes"],
        "backward": 6 * counted["backward"]["bytes"],
        "consensus": 3 * counted["consensus"]["bytes"],
    }
    assert all(sent.values())


@pytest.mark.parametrize("stops", [False, True])
def test_time_is_that_of_training_and_stands_still_when_it_ends(tmp_path: Path, stops: bool) -> None:
    seconds: list[float] = []
    activities: list[str] = []
    source = SimulationSource(SeenFeed(), LogLines(), "small")

    def display(name: str, first: int, last: int) -> gossamer.Observer:
        observer = source.follow(name, first, last)

        def look(record: Record) -> None:
            observer.on_record(record)
            view = source._build()
            seconds.append(view["seconds"])
            activities.append(view["activity"])

        return replace(observer, on_record=look)

    should_stop = iter([False, False, stops, *[False] * 99]).__next__
    result = gossamer.train(
        make_small_graph(), out=tmp_path / "run", display=display, should_stop=should_stop, **OPTIONS
    )
    source.end(result.complete)
    stored = json.loads((tmp_path / "run" / "run.json").read_text())["summary"]["seconds"]
    assert source._build()["seconds"] == stored == result.run.seconds
    assert source._build()["activity"] == ""
    if not stops:
        assert seconds[:4] == sorted(seconds[:4])
        assert seconds[4:] == [stored] * 8  # while the references are trained
        assert activities[3:5] == ["", "training the centralised reference"]
        assert activities[-1] == "training the graph-less reference"


def test_nobody_waits_in_a_simulation() -> None:
    feed = SeenFeed()
    source = SimulationSource(feed, LogLines(), "small")
    with source.publisher:
        gossamer.train(make_small_graph(), display=source.follow, baselines=False, **OPTIONS)
    assert {link["waited"] for one in feed.last["agents"] for link in one["neighbours"]} == {None}


def test_a_run_that_is_watched_has_the_same_bits() -> None:
    graph = make_small_graph()
    plain = gossamer.train(graph, **OPTIONS)
    source = SimulationSource(SeenFeed(), LogLines(), "small")
    with source.publisher:
        watched = gossamer.train(graph, display=source.follow, **OPTIONS)
    assert all(torch.equal(part, watched.run.host.params[name]) for name, part in plain.run.host.params.items())
    assert plain.run.history == watched.run.history
    assert plain.baseline_histories == watched.baseline_histories


def test_a_resumed_run_shows_what_was_before(tmp_path: Path) -> None:
    graph, stop = make_small_graph(), iter([False, False, False, False, False, True]).__next__
    stopped = gossamer.train(graph, out=tmp_path / "run", should_stop=stop, **OPTIONS)
    assert not stopped.complete
    feed, before = SeenFeed(), time.time() - 1000
    os.utime(tmp_path / "run" / "checkpoint.safetensors", (before, before))
    source = SimulationSource(feed, LogLines(), "small", read_references(tmp_path / "run"), tmp_path / "run")
    with source.publisher:
        result = gossamer.resume(tmp_path / "run", graph=graph, display=source.follow)
        source.end(result.complete)
    assert [one["step"] for one in feed.last["evaluations"]] == [0, 2, 4, 6]
    assert feed.last["seconds"] == result.run.seconds
    assert (feed.last["agents"][0]["checkpoint_age"] or 0.0) >= 1000  # none was made since
    again = SimulationSource(SeenFeed(), LogLines(), "small", read_references(tmp_path / "run"))
    with again.publisher:
        gossamer.resume(tmp_path / "run", steps=6, graph=graph, display=again.follow)
    assert set(again._build()["references"]) == {"centralised", "graphless"}


def test_a_run_that_has_not_begun_or_was_stopped_says_so() -> None:
    feed, log = SeenFeed(), LogLines()
    source = SimulationSource(feed, log, "small")
    with source.publisher:
        log.add("info", "loading")
        source.end(complete=False)
    assert (feed.last["title"], feed.last["state"], feed.last["agents"]) == ("small", "stopped", [])
    assert [one["text"] for one in feed.last["log"]] == ["loading", "the run has stopped"]


def test_stages_before_the_graph_network_are_named() -> None:
    options = {**OPTIONS, "topology": "ring", "baselines": False}
    source = SimulationSource(SeenFeed(), LogLines(), "small")
    with source.publisher:
        titles = []

        def display(name: str, first: int, last: int) -> gossamer.Observer:
            observer = source.follow(name, first, last)
            return gossamer.Observer(
                on_start=observer.on_start,
                on_step=observer.on_step,
                on_record=observer.on_record,
                on_end=lambda run: titles.append((source._build()["title"], len(source._build()["evaluations"]))),
            )

        gossamer.train(make_small_graph(), display=display, encoder=2, encoder_steps=2, **options)
    assert titles[-1] == ("small, 3 agents", 4)
    assert any(title.startswith("small, 3 agents: ") for title, _ in titles[:-1])


def test_lines_of_the_log_stay_plain_text_and_are_bounded() -> None:
    log = LogLines()
    heard: list[int] = []
    log.on_line = lambda: heard.append(1)
    logger = logging.getLogger("gossamer.tests.lines")
    logger.addHandler(log)
    try:
        logger.warning("agent %s refused <script>alert(1)</script>\x1b[31m\n\x00next", "7")
        logger.debug("too little")
        for number in range(300):
            logger.error("%d" + "x" * 2000, number)
    finally:
        logger.removeHandler(log)
    lines = log.last()
    assert len(lines) == 200
    assert lines[-1]["text"].startswith("299xxx")
    assert len(lines[-1]["text"]) < 600
    assert lines[-1]["level"] == "error"
    assert len(heard) == 301


def test_a_hostile_line_keeps_its_characters_but_not_its_controls() -> None:
    log = LogLines()
    log.add("warning", "<b>&\x1b[31m\n\x00 end\ud800")
    assert log.last()[0]["text"] == "<b>&\ufffd[31m \ufffd end\ufffd"


@pytest.mark.parametrize("count", [1, 2, 3, 12, 40])
def test_places_are_the_same_each_time_and_apart(count: int) -> None:
    from gossamer.report.live.layout import place_agents

    links = [(k, (k + 1) % count) for k in range(count)]
    places = place_agents(range(count), links)
    assert places == place_agents(range(count), links)
    assert len(set(places.values())) == count
    assert all(-1 <= value <= 1 for place in places.values() for value in place)
