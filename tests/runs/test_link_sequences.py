"""Links that change, as settings and files say them."""

from pathlib import Path

import numpy as np
import pytest

from gossamer.errors import GossamerError
from gossamer.runs.connecting import certify_given, connect, require_assumptions
from gossamer.runs.link_sequences import SequenceChoice, parse_sequence, read_switching
from gossamer.runs.settings import Settings, make_settings
from gossamer.topology import Failing, Matchings, OnePeer, Switching, needed_links, ring

SHARED = np.where(ring(6), 4, 0)


def test_written_forms() -> None:
    assert parse_sequence("one-peer") == SequenceChoice("one-peer", "needed")
    assert parse_sequence("matchings") == SequenceChoice("matchings", "needed")
    assert parse_sequence("failing:0.3") == SequenceChoice("failing", "admm", 0.3)
    assert parse_sequence("failing:0,line") == SequenceChoice("failing", "line", 0.0)
    assert parse_sequence("switching:a,b.csv") == SequenceChoice("switching", "needed", file="a,b.csv")
    assert parse_sequence("admm") is None


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("failing:1", "at least 0 and below 1"),
        ("failing:nan", "at least 0 and below 1"),
        ("failing:", "at least 0 and below 1"),
        ("failing:0.1,rings", "expected a topology among"),
        ("failing:0.1,one-peer", "expected a topology among"),
        ("failing", "failing:P"),
        ("switching:", "switching:FILE"),
        ("one-peer:2", "one-peer"),
        ("rin", "did you mean 'ring'"),
    ],
)
def test_mistakes_are_named(text: str, expected: str) -> None:
    with pytest.raises(GossamerError, match=expected):
        make_settings({"topology": text})


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("compress", "choco:bits=8"),
        ("compress", "power:2"),
        ("consensus", "masked"),
        ("encoder", 8),
        ("privacy", "edge:epsilon=4,delta=1e-5"),
        ("evict_after", 10.0),
    ],
)
def test_what_needs_links_that_stay_is_refused(name: str, value: object) -> None:
    with pytest.raises(GossamerError, match="links that stay"):
        make_settings({"topology": "failing:0.1", "lost_edges": "drop", name: value})


def test_a_share_of_links_is_for_those_that_fail() -> None:
    make_settings({"topology": "failing:0.1", "keep_links": 0.5})
    with pytest.raises(GossamerError, match="keep_links"):
        make_settings({"topology": "one-peer", "keep_links": 0.5})


def settings(topology: str, **more: object) -> Settings:
    return make_settings({"agents": 6, "topology": topology, "seed": 3, **more})


def test_each_form_makes_its_sequence() -> None:
    partners = connect(SHARED, settings("one-peer"))
    assert isinstance(partners.sequence, OnePeer)
    assert (partners.links == (ring(6) | partners.sequence.links)).all()
    assert partners.assumptions.a1
    assert isinstance(connect(SHARED, settings("matchings")).sequence, Matchings)
    fixed, failing = connect(SHARED, settings("admm")), connect(SHARED, settings("failing:0.2"))
    assert isinstance(failing.sequence, Failing)
    np.testing.assert_array_equal(failing.combination, fixed.combination)
    assert (failing.sequence.probability, failing.sequence.seed) == (0.2, 3)


def test_a_file_of_links_by_step(tmp_path: Path) -> None:
    table = tmp_path / "links.csv"
    table.write_text("neighbour,step,agent\n1,0,0\n2,0,1\n0,2,2\n")
    found = read_switching(table, 3)
    assert found.shape == (3, 3, 3)
    assert {tuple(map(int, row)) for row in np.argwhere(np.triu(found))} == {(0, 0, 1), (0, 1, 2), (2, 0, 2)}
    np.save(tmp_path / "links.npy", found)
    np.testing.assert_array_equal(read_switching(tmp_path / "links.npy", 3), found)
    chosen = make_settings({"agents": 3, "topology": f"switching:{table}", "mixing": "uniform"})
    made = connect(np.where(ring(3), 1, 0), chosen)
    assert isinstance(made.sequence, Switching)
    assert (made.links == ring(3)).all()
    require_assumptions(made, chosen)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("step,agent,neighbour\n", "holds no link"),
        ("step,agent,neighbour\n0,1,1\n", "line 2"),
        ("step,agent,neighbour\n0,1,2\n0,1,3\n", "line 3"),
        ("step,agent,neighbour\n-1,1,2\n", "line 2"),
        ("step,agent,neighbour\nx,1,2\n", "line 2"),
        ("step,agent,neighbour\n99999999999,1,2\n", "line 2"),
        ("step,agent\n0,1\n", "neighbour"),
    ],
)
def test_wrong_files_are_refused(tmp_path: Path, text: str, expected: str) -> None:
    (tmp_path / "links.csv").write_text(text)
    with pytest.raises(GossamerError, match=expected):
        read_switching(tmp_path / "links.csv", 3)


@pytest.mark.parametrize(
    ("array", "expected"),
    [
        (np.zeros((3, 3)), "expected links by step"),
        (np.zeros((0, 3, 3)), "expected links by step"),
        (np.full((1, 3, 3), 0.5), "expected 1 where"),
        (np.ones((1, 3, 3)), "to itself"),
        (np.triu(np.ones((2, 3, 3)), 1), "one way alone"),
    ],
)
def test_wrong_arrays_are_refused(tmp_path: Path, array: np.ndarray, expected: str) -> None:
    np.save(tmp_path / "links.npy", array)
    with pytest.raises(GossamerError, match=expected):
        read_switching(tmp_path / "links.npy", 3)


def test_a_given_combination_may_fail_but_chooses_no_partners() -> None:
    C = connect(SHARED, settings("ring")).combination
    found = certify_given(C, SHARED, settings("failing:0.5,ring"))
    assert isinstance(found.sequence, Failing)
    np.testing.assert_array_equal(found.sequence.base, C)
    own = connect(SHARED, settings("one-peer"))
    assert isinstance(certify_given(own.combination, SHARED, settings("one-peer")).sequence, OnePeer)
    with pytest.raises(GossamerError, match="chooses C in every step"):
        certify_given(C, SHARED, settings("one-peer"))


def test_links_that_never_join_all_agents_are_refused(tmp_path: Path) -> None:
    (tmp_path / "links.csv").write_text("step,agent,neighbour\n0,0,1\n1,2,3\n")
    chosen = make_settings({"agents": 4, "topology": f"switching:{tmp_path / 'links.csv'}"})
    with pytest.raises(GossamerError, match="do not bring the agents together"):
        require_assumptions(connect(np.where(needed_links(ring(4)), 1, 0), chosen), chosen)


def test_negative_weights_that_spread_agents_apart_are_refused() -> None:
    C = np.array([[1.9, -0.9, 0.0], [-0.9, 1.3, 0.6], [0.0, 0.6, 0.4]])
    chosen = make_settings({"agents": 3, "topology": "failing:0.5"})
    certificate = certify_given(C, np.where(ring(3), 1, 0), chosen)
    with pytest.raises(GossamerError, match="--nonnegative"):
        require_assumptions(certificate, chosen)
