"""Broken and hostile tables: each loads or ends in one line with its file, and its line where it has one."""

import os
import random
import tracemalloc
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from data import test_tables
from mutations import loads, mutate, mutate_lines, no_longer_than

from gossamer.data.blocks import Blocks, generate_blocks
from gossamer.data.roads import read_roads
from gossamer.data.rows import SHARE, read_matrix, read_rows
from gossamer.data.site import read_site
from gossamer.data.tables import read_tables
from gossamer.errors import GossamerError
from gossamer.files import read_text
from gossamer.runs.deployment import assign_vertices
from gossamer.runs.settings import Settings
from gossamer.runs.topologies import read_shared_edges

SITE = {
    "edges": "source,target,weight\n10,20,1.5\n20,40,2\n",
    "features": "vertex,height,width\n10,1,2\n20,3,4\n",
    "labels": "vertex,label,split\n10,1.5,train\n20,0.5,test\n",
    "owners": "vertex,agent\n40,1\n",
}
GRAPH = generate_blocks(Blocks(vertices=60, edges=200, classes=2, features=2, labelled=0.2), 0)
B = "0,3,1\n3,0,2.5\n1,2.5,0\n"


@pytest.fixture(autouse=True)
def _limit() -> Iterator[None]:
    with no_longer_than(60):
        yield


def folder_of(path: Path, content: dict[str, str]) -> Path:
    for name, text in content.items():
        (path / f"{name}.csv").write_text(text)
    return path


def mutants(path: Path, read: Callable[[], Any], count: int, least: int) -> None:
    """Mutate the file, which must be good, and at the end put it back."""
    good, draw, found = path.read_bytes(), random.Random(len(path.name)), {True: 0, False: 0}
    assert loads(read, path)
    for i in range(count):
        path.write_bytes((mutate if i % 2 else mutate_lines)(good, draw))
        found[loads(read, path.parent if path.parent.name == "tables" else path)] += 1
    path.write_bytes(good)
    assert min(found.values()) >= least, found


@pytest.mark.parametrize("name", list(test_tables.TABLES))
def test_mutations_of_a_graph(tmp_path: Path, name: str) -> None:
    """A mistake that lies between two tables names their folder."""
    (tmp_path / "tables").mkdir()
    folder = folder_of(tmp_path / "tables", test_tables.TABLES)
    mutants(folder / f"{name}.csv", lambda: read_tables(folder, 0), 400, 20)


@pytest.mark.parametrize("name", list(SITE))
def test_mutations_of_a_site(tmp_path: Path, name: str) -> None:
    (tmp_path / "tables").mkdir()
    folder = folder_of(tmp_path / "tables", SITE)
    mutants(folder / f"{name}.csv", lambda: read_site(folder, 0, None), 300, 10)


def test_mutations_of_an_assignment(tmp_path: Path) -> None:
    path = tmp_path / "owner.csv"
    path.write_text("vertex,agent\n" + "".join(f"{i},{i % 3}\n" for i in range(60)))
    mutants(path, lambda: assign_vertices(GRAPH, Settings(assignment=str(path), agents=3)), 400, 10)


def test_mutations_of_roads(tmp_path: Path) -> None:
    path = tmp_path / "distance.csv"
    path.write_text("from,to,cost\n0,1,1500\n1,2,500.5\n2,1,900\n")
    mutants(path, lambda: read_roads(path, 3), 400, 10)


def test_mutations_of_shared_edges(tmp_path: Path) -> None:
    path = tmp_path / "B.csv"
    path.write_text(B)
    mutants(path, lambda: read_shared_edges(path), 400, 10)
    path = tmp_path / "B.npy"
    np.save(path, read_shared_edges(tmp_path / "B.csv"))
    mutants(path, lambda: read_shared_edges(path), 400, 10)


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("features", b"vertex,x\nann,1\nbob,\x00\n", r"features.csv, line 3: expected text, got a NUL byte"),
        ("features", b"vertex,x\nann,1\nbob,\xff\n", r"features.csv, line 3: it is not UTF-8"),
        ("features", b"vertex,x\nann,1\nbob," + b"9" * 131_073 + b"\n", r"features.csv, line 3: field larger than"),
        ("features", b'vertex,x\nann,1\nbob,"' + b"9\n" * 70_000, r"features.csv, line \d+: field larger than"),
        ("features", b"vertex,x\nann,1\nbob,1e999\n", r"features.csv, line 3: features hold NaN, infinite"),
        (
            "features",
            b"vertex,x\nann,1\nbob," + b"9" * 5000 + b"\n",
            r"features.csv, line 3: features hold NaN, infinite",
        ),
        ("features", b"vertex,x\nann,1\nbob,1e39\n", r"features.csv, line 3: .* beyond float32"),
        ("features", b"vertex,x\nann,1\nann,2\n", r"features.csv, line 3: .* before in line 2"),
        (
            "edges",
            b"source,target,weight\nann,bob,1e999\n",
            r"edges.csv, line 2: edge weights must be positive and finite",
        ),
        (
            "edges",
            b"source,target,weight\nann,bob,nan\n",
            r"edges.csv, line 2: edge weights must be positive and finite",
        ),
        ("edges", b"source,target\nann," + b"b" * 9000 + b"\n", r"edges.csv, line 2: vertex 'b+\.\.\. does not exist"),
        ("labels", b"vertex,label,split\nann,1.5,train\nbob,1e999,train\n", r"labels.csv, line 3: targets hold NaN"),
    ],
)
def test_named_attacks(tmp_path: Path, name: str, content: bytes, message: str) -> None:
    folder_of(tmp_path, test_tables.TABLES)
    (tmp_path / f"{name}.csv").write_bytes(content)
    with pytest.raises(GossamerError, match=message) as caught:
        read_tables(tmp_path, 0)
    assert len(str(caught.value)) < 1000


def test_a_table_takes_little_more_memory_than_its_numbers(tmp_path: Path) -> None:
    path = tmp_path / "features.csv"
    path.write_text("vertex" + ",x" * 100 + "\n" + "".join(f"v{i}" + ",0.125" * 100 + "\n" for i in range(5000)))
    folder_of(tmp_path, {"edges": "source,target\nv0,v1\n", "labels": "vertex,label,split\nv0,a,train\nv1,b,train\n"})
    tracemalloc.start()
    try:
        assert loads(lambda: read_tables(tmp_path, 0), path)
        assert tracemalloc.get_traced_memory()[1] < 8 * path.stat().st_size
    finally:
        tracemalloc.stop()


def test_a_table_beyond_the_memory_is_not_opened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "features.csv"
    path.write_text("vertex,x\n" + "a,1\n" * 1000)
    monkeypatch.setattr("gossamer.data.rows.available_memory", lambda: SHARE * 4000)
    with pytest.raises(GossamerError, match=r"it has 4.0 kB; a table may have 4.0 kB, 1/16 of the memory"):
        read_rows(path, 2)


def test_matrices_are_read_as_numpy_reads_them(tmp_path: Path) -> None:
    path, given = tmp_path / "C.csv", np.random.default_rng(0).standard_normal((7, 5)) * 1e-3
    for delimiter in (",", " "):
        np.savetxt(path, given, delimiter=delimiter, fmt="%.17g", header="a comment")
        np.testing.assert_array_equal(read_matrix(path), given)
    path.write_text("1,,2\n")
    with pytest.raises(GossamerError, match="not a matrix of numbers: line 1"):
        read_matrix(path)


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no pipes with names here")
def test_what_is_no_file_is_not_read(tmp_path: Path) -> None:
    """A pipe or a device has no end."""
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    for read in (read_matrix, lambda path: read_text(path, 1000), lambda path: read_rows(path, 1)):
        for path in (pipe, Path("/dev/zero"), tmp_path):
            with pytest.raises(GossamerError, match="expected a file, found a folder, a pipe or a device"):
                read(path)
