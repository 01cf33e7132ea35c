"""A file names the agents to which an agent sends nothing, for a rehearsal."""

from pathlib import Path

import pytest

from gossamer.errors import GossamerError
from gossamer.peers.link_cuts import read_cut, write_cut


def test_what_is_cut_is_read_back_until_it_is_whole_again(tmp_path: Path) -> None:
    assert read_cut(tmp_path) == frozenset()
    write_cut(tmp_path / "run", [5, 0])
    assert read_cut(tmp_path / "run") == {0, 5}
    for _ in range(2):
        write_cut(tmp_path / "run", [])
    assert read_cut(tmp_path / "run") == frozenset()


def test_what_is_no_list_of_agents_is_refused(tmp_path: Path) -> None:
    (tmp_path / "cut").write_text("1 two")
    with pytest.raises(GossamerError, match="expected numbers of agents, found '1 two'; remove the file"):
        read_cut(tmp_path)
