"""Broken and hostile npz files: each loads or ends in one line, soon and without memory that the file does not hold."""

import io
import random
import struct
import subprocess
import sys
import textwrap
import tracemalloc
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from data import test_npz, test_site, test_traffic
from mutations import loads, mutate, mutate_array, no_longer_than

from gossamer.data import load
from gossamer.data.arrays import MAX_HEADER, open_arrays, read_array
from gossamer.data.site import read_site
from gossamer.data.traffic import TRAFFIC
from gossamer.errors import GossamerError

HEADER = "{'descr': '<f8', 'fortran_order': False, 'shape': (3,), }"


@pytest.fixture(autouse=True)
def _limit() -> Iterator[None]:
    with no_longer_than(60):
        yield


def npy(array: Any) -> bytes:
    """An .npy file; of objects, one whose entries nobody has pickled."""
    array = np.asarray(array)
    if array.dtype.hasobject:
        return headed(f"{{'descr': '|O', 'fortran_order': False, 'shape': {array.shape}, }}", bytes(8 * array.size))
    file = io.BytesIO()
    np.save(file, array, allow_pickle=False)
    return file.getvalue()


def headed(header: str, entries: bytes = bytes(24), version: bytes = b"\1\0") -> bytes:
    """An .npy file with this header."""
    size = struct.pack("<H" if version == b"\1\0" else "<I", len(header))
    return b"\x93NUMPY" + version + size + header.encode("latin1") + entries


def archive(members: dict[str, bytes], method: int = zipfile.ZIP_DEFLATED) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", method) as made:
        for name, content in members.items():
            made.writestr(f"{name}.npy", content)
    return file.getvalue()


class Kind:
    """A kind of npz file: good arrays, and the reader of a file."""

    def __init__(self, arrays: dict[str, Any], path: Path, read: Callable[[Path], Any]) -> None:
        self.arrays, self.path, self.read = arrays, path, read
        path.parent.mkdir(parents=True, exist_ok=True)

    def loads(self, content: bytes) -> bool:
        self.path.write_bytes(content)
        return loads(lambda: self.read(self.path), self.path)


@pytest.fixture(params=["graph", "dense graph", "site", "traffic"])
def kind(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Kind:
    if request.param == "graph":
        return Kind(test_npz.arrays(), tmp_path / "mine.npz", load)
    if request.param == "dense graph":
        changes: dict[str, Any] = {
            "features": np.eye(4),
            "labels": np.array(["a", "b", "a", "b"]),
            "positions": np.eye(4)[:, :2],
        }
        return Kind(test_npz.arrays(**changes), tmp_path / "mine.npz", load)
    if request.param == "site":
        return Kind(test_site.arrays(), tmp_path / "site.npz", lambda path: read_site(path, 0, ["0", "1"]))
    monkeypatch.setenv("GOSSAMER_DATA", str(tmp_path))
    arrays = {"data": test_traffic.readings(), "lat": test_traffic.LAT, "lon": test_traffic.LON}
    path = tmp_path / TRAFFIC["pems-orange"].readings.path
    return Kind({**arrays, "sensor_id": np.arange(test_traffic.N)}, path, lambda _: load("pems-orange"))


def test_mutations_of_the_file(kind: Kind) -> None:
    """Bytes of the archive itself, its directory above all: entries are covered by checksums."""
    members = {name: npy(array) for name, array in kind.arrays.items()}
    draw, found = random.Random(0), {True: 0, False: 0}
    for method in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        good = archive(members, method)
        assert kind.loads(good)
        directory = good.rindex(b"PK\1\2" + good[good.index(b"PK\1\2") + 4 :][:4])
        first = good.index(b"PK\1\2")
        for _ in range(150):
            found[kind.loads(mutate(good, draw))] += 1
            found[kind.loads(good[:first] + mutate(good[first:], draw))] += 1
            flipped = bytearray(good)
            flipped[draw.randrange(first, directory)] ^= 1 << draw.randrange(8)
            found[kind.loads(bytes(flipped))] += 1
    assert found[False] > 300


def test_mutations_of_the_arrays(kind: Kind) -> None:
    """Headers and entries, with checksums that are right; and arrays of another type, shape or content."""
    draw, found = random.Random(1), {True: 0, False: 0}
    members = {name: npy(array) for name, array in kind.arrays.items()}
    for _ in range(500):
        name = draw.choice(list(members))
        if draw.random() < 0.5:
            changed = mutate(members[name], draw) if draw.random() < 0.5 else mutate(members[name][:128], draw)
        else:
            changed = npy(mutate_array(kind.arrays[name], draw))
        found[kind.loads(archive({**members, name: changed}, zipfile.ZIP_STORED))] += 1
    assert found[True] > 10
    assert found[False] > 200


def refused(tmp_path: Path, content: bytes, message: str) -> None:
    """The file is refused in one line with this message, within 8 MB of memory."""
    path = tmp_path / "bad.npz"
    path.write_bytes(content)
    tracemalloc.start()
    try:
        with pytest.raises(GossamerError, match=message) as caught, open_arrays(path) as file:
            file.read(["a"])
        assert tracemalloc.get_traced_memory()[1] < 8 << 20
    finally:
        tracemalloc.stop()
    assert str(caught.value).startswith(f"cannot read {path}: ")
    assert len(str(caught.value).splitlines()) == 1


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (headed(HEADER.replace("(3,)", "(10000000000,)")), "should have 80000000"),
        (headed(HEADER.replace("(3,)", "(" + "9" * 500 + ",)")), "names no plain numbers"),
        (headed(HEADER.replace("(3,)", "(" + "0, " * 40 + ")")), "names no plain numbers"),
        (headed(HEADER.replace("(3,)", "(0, 999999999999999999, 99999999)"), b""), "which holds nothing"),
        (headed(HEADER.replace("(3,)", "(-3,)")), "names no plain numbers"),
        (headed(HEADER.replace("(3,)", "[]")), "names no plain numbers"),
        (headed(HEADER.replace("}", "")), "names no plain numbers"),
        (headed("{'descr': '<f8', 'fortran_order': False, 'shape': (3,"), "names no plain numbers"),
        (headed("(" * 5000), "names no plain numbers"),
        (headed(HEADER + " " * MAX_HEADER), "expected at most 10000"),
        (headed(HEADER + " " * 70_000, version=b"\2\0"), "expected at most 10000"),
        (headed(HEADER)[:30], "ends too early"),
        (headed(HEADER, version=b"\7\0"), "is no array"),
        (b"", "is no array"),
        (b"\x80\x04\x95 pickled", "is no array"),
        (headed(HEADER.replace("<f8", "|O")), "pickled objects, which are never read"),
        (headed(HEADER.replace("<f8", "|O").replace("(3,)", "(1,)"), b"\x80\x04}."), "pickled objects"),
        (headed(HEADER.replace("'<f8'", "[('x', '<f8')]")), "names no plain numbers"),
        (headed(HEADER.replace("<f8", "<c16")), "a holds '<c16'"),
        (headed(HEADER.replace("<f8", "<f16")), "a holds '<f16'"),
        (headed(HEADER.replace("<f8", "<U0"), b""), "which holds nothing"),
        (headed(HEADER.replace("<f8", "<U2"), b"\xff" * 24), "characters that do not exist"),
        (headed(HEADER.replace("<f8", "|S8"), b"\xff" * 24), "characters that do not exist"),
        (headed(HEADER, bytes(23)), "should have"),
        (headed(HEADER, bytes(25)), "should have"),
    ],
)
def test_members_that_are_no_plain_arrays(tmp_path: Path, content: bytes, message: str) -> None:
    for method in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        refused(tmp_path, archive({"a": content}, method), message)


def entry(content: bytes, field: slice, value: bytes) -> bytes:
    """The archive with other bytes in the first entry of its directory, and the same in the member's own header."""
    changed = bytearray(content)
    start = changed.index(b"PK\1\2")
    changed[start + field.start : start + field.stop] = value
    if field.start < 28:
        changed[field.start - 2 : field.stop - 2] = value
    return bytes(changed)


FLAGS, METHOD, PACKED, SIZE = slice(8, 10), slice(10, 12), slice(20, 24), slice(24, 28)
GOOD = {"a": npy(np.arange(3.0))}


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (entry(archive(GOOD), FLAGS, b"\1\0"), "encrypted"),
        (entry(archive(GOOD), FLAGS, b"\x41\0"), "encrypted"),
        (entry(archive(GOOD), METHOD, b"\x63\0"), "compression method 99"),
        (archive(GOOD, zipfile.ZIP_BZIP2), "compression method 12"),
        (archive(GOOD, zipfile.ZIP_LZMA), "compression method 14"),
        (entry(archive(GOOD), SIZE, b"\xff\xff\xff\x7f"), "cannot hold"),
        (entry(archive(GOOD, zipfile.ZIP_STORED), SIZE, b"\xff\xff\xff\x7f"), "cannot hold"),
        (entry(archive(GOOD), PACKED, b"\xff\xff\xff\x7f"), "of a file of"),
        (entry(archive(GOOD, zipfile.ZIP_STORED), PACKED, b"\0\0\0\0"), "cannot hold"),
        (archive(GOOD)[:-30], "not a whole .npz file"),
        (b"PK\x03\x04", "not a whole .npz file"),
        (b"", "not a whole .npz file"),
        (archive({"b": GOOD["a"]}), "it has no array a"),
        (archive({}), "it has no array a"),
    ],
)
def test_archives_that_are_not_plain(tmp_path: Path, content: bytes, message: str) -> None:
    refused(tmp_path, content, message)


def test_a_member_that_stands_twice(tmp_path: Path) -> None:
    refused(tmp_path, archive({"a": GOOD["a"], "b": GOOD["a"]}).replace(b"b.npy", b"a.npy"), "stands in it twice")


def test_a_bomb_that_announces_less_than_it_holds(tmp_path: Path) -> None:
    """100 MB of zeros behind a header of three numbers: the directory, or the header, gives it away."""
    content = archive({"a": headed(HEADER, bytes(100_000_000))})
    assert len(content) < 200_000
    refused(tmp_path, content, "should have 91 bytes")
    small = struct.pack("<I", len(headed(HEADER)))
    refused(tmp_path, entry(content, SIZE, small), "damaged|not a whole|CRC")


def test_a_bomb_whose_members_share_their_bytes(tmp_path: Path) -> None:
    """Eight names that point at one part of the file."""
    shape = HEADER.replace("(3,)", "(2000000,)")
    one = archive({"a": headed(shape, bytes(16_000_000))})
    start, end = one.index(b"PK\1\2"), one.index(b"PK\5\6")
    entries = b"".join(one[start:end].replace(b"a.npy", b"%c.npy" % name) for name in b"abcdefgh")
    content = one[:start] + entries + struct.pack("<4sHHHHIIH", b"PK\5\6", 0, 0, 8, 8, len(entries), start, 0)
    path = tmp_path / "bad.npz"
    path.write_bytes(content)
    with pytest.raises(GossamerError, match=r"header b'a\.npy' differ"), open_arrays(path) as file:
        file.read("abcdefgh")


def test_arrays_beyond_the_available_memory(tmp_path: Path) -> None:
    """200 MB of zeros in 1 MB, which are what they announce, in a process that may have 600 MB more than it has."""
    path = tmp_path / "big.npz"
    with (
        zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as made,
        made.open("features.npy", "w") as out,
    ):
        out.write(headed(HEADER.replace("(3,)", "(250, 100000)"), b""))
        for _ in range(25):
            out.write(bytes(8_000_000))
    with zipfile.ZipFile(path, "a") as made:
        for name, array in test_npz.arrays().items():
            made.writestr(f"{name}.npy", npy(array))
    code = f"""
        import resource
        from pathlib import Path
        from gossamer.data.citation import read_npz
        have = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (have + 600_000_000,) * 2)
        try:
            read_npz(Path({str(path)!r}), 0)
        except ValueError as error:
            print(type(error).__name__, error)
    """
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(code)], capture_output=True, text=True, timeout=100)
    assert done.stdout.startswith(f"GossamerError {path} is not a graph in the npz layout"), done
    assert "takes about 800.0 MB of memory" in done.stdout


def test_what_numpy_writes_is_read_as_numpy_reads_it(tmp_path: Path) -> None:
    given: dict[str, Any] = {
        "scalar": np.float32(2.5),
        "empty": np.zeros((0, 4), dtype=np.int16),
        "fortran": np.asfortranarray(np.arange(12.0).reshape(3, 4)),
        "big": np.arange(5, dtype=">i4"),
        "flags": np.array([[True], [False]]),
        "half": np.arange(3, dtype=np.float16),
        "text": np.array(["ä", "", "longer"]),
        "bytes": np.array([b"a", b"bcd"]),
        "five": np.zeros((1, 2, 1, 2, 1)),
        "large": np.random.default_rng(0).standard_normal(200_000),
    }
    for save in (np.savez, np.savez_compressed):
        save(tmp_path / "all.npz", **given)
        with open_arrays(tmp_path / "all.npz") as file, np.load(tmp_path / "all.npz") as expected:
            assert file.keys == set(given)
            for name, array in file.read(given).items():
                assert array.dtype == expected[name].dtype, name
                assert array.flags.f_contiguous == expected[name].flags.f_contiguous
                np.testing.assert_array_equal(array, expected[name])
    (tmp_path / "old.npy").write_bytes(headed("{'descr': '<f8', 'fortran_order': False, 'shape': (3L,), }\n"))
    np.testing.assert_array_equal(read_array(tmp_path / "old.npy"), np.zeros(3))
