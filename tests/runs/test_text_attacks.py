"""Broken and hostile settings, site, topology and hosts files: each loads or ends in lines that name it, soon."""

import json
import random
import re
import tracemalloc
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from mutations import loads, mutate, mutate_lines, no_longer_than
from typer.testing import CliRunner

from gossamer.cli import app
from gossamer.commands.shard import read_hosts
from gossamer.errors import GossamerError
from gossamer.files import read_text
from gossamer.peers.network.keys import make_agent_keys, write_secret
from gossamer.peers.shards.site_files import MAX_CLASSES, MAX_OTHER_BYTES
from gossamer.peers.shards.sites import make_site_shard
from gossamer.runs.setting_checks import MOST_COMPLAINTS
from gossamer.runs.settings import Settings, make_settings
from gossamer.runs.toml_files import MAX_BRACKETS, MAX_DOTS, MAX_TOML_BYTES, read_settings, read_toml

VALUES: tuple[Any, ...] = (
    *(0, -1, 2**63, 0.5, -1e300, "inf", "nan", "'text'", "''", "true", "[]", "{}", "[1, [2]]", "1979-05-27", "{a = 1}"),
    *("0x" + "f" * 5000, "9" * 5000, "'" + "a" * 9000 + "'", '"\\u0000"', '"\\n"', "[" * 20 + "]" * 20, "'64,x'"),
)


@pytest.fixture(autouse=True)
def _limit() -> Iterator[None]:
    with no_longer_than(60):
        yield


def settings_text() -> str:
    """Every setting with its default."""
    values = Settings().model_dump(mode="json", exclude_none=True)
    return "".join(f"{name} = {json.dumps(value)}\n" for name, value in values.items())


def mutants(path: Path, read: Callable[[], Any], count: int, lines: int = 1) -> None:
    good, draw, found = path.read_bytes(), random.Random(len(path.name)), {True: 0, False: 0}
    assert loads(read, path)
    for i in range(count):
        path.write_bytes((mutate if i % 2 else mutate_lines)(good, draw))
        found[loads(read, path, lines)] += 1
    path.write_bytes(good)
    assert min(found.values()) >= count // 50, found


def swapped(path: Path, read: Callable[[], Any], lines: int = 1) -> None:
    """Each value of each key by each of VALUES; each line twice; each key in a table of its own."""
    good = path.read_text()
    rows = good.splitlines()
    for i, row in enumerate(rows):
        key = row.partition(" = ")[0]
        for other in (*(f"{key} = {value}" for value in VALUES), f"{row}\n{row}", f"{key}.x = 1", f"[{key}]\n{row}"):
            path.write_text("\n".join([*rows[:i], other, *rows[i + 1 :]]))
            loads(read, path, lines)
    path.write_text(good)
    assert loads(read, path)


def test_mutations_of_settings(tmp_path: Path) -> None:
    path = tmp_path / "settings.toml"
    path.write_text(settings_text())
    assert make_settings(read_settings(path)) == Settings()
    mutants(path, lambda: make_settings(read_settings(path), str(path)), 1000, MOST_COMPLAINTS)
    swapped(path, lambda: make_settings(read_settings(path), str(path)), MOST_COMPLAINTS)


def write_site(folder: Path) -> Path:
    """A site file with everything in it."""
    (public, _), (other, _), (_, secret) = make_agent_keys(), make_agent_keys(), make_agent_keys()
    write_secret(folder / "key.secret", secret)
    split = np.array([True, False])
    np.savez(
        folder / "data.npz",
        vertices=np.arange(2),
        features=np.eye(2, dtype=np.float32),
        targets=np.arange(2),
        train=split,
        validation=~split,
        test=~split,
        edges=np.array([[0, 1], [1, 2]]),
        owners=np.array([[2, 1]]),
    )
    rows = [[0.5, 0.5, 0.0], [0.5, 0.0, 0.5], [0.0, 0.5, 0.5]]
    (folder / "topology.json").write_text(json.dumps({"name": "mine", "combination": rows, "holds": {"A1": True}}))
    lines = ['run = "mine"', "agent = 0", 'address = "127.0.0.1:5000"', 'secret = "key.secret"', 'data = "data.npz"']
    lines += ["classes = ['a', 'b']", 'combination = "topology.json"', "[settings]", "agents = 3", "hidden = 16"]
    lines += ["[neighbours]", f"1 = {{ address = '10.0.0.1:5555', key = '''{public}''' }}"]
    lines += ["[members]", f"2 = '''{other}'''"]
    (folder / "site.toml").write_text("\n".join(lines) + "\n")
    return folder / "site.toml"


def test_mutations_of_a_site(tmp_path: Path) -> None:
    path = write_site(tmp_path)

    def read() -> None:
        try:
            make_site_shard(path)
        except GossamerError as error:  # a path may lead to another file, which is then named
            if str(tmp_path) not in str(error):
                raise
            raise GossamerError(f"{path.name} or what it names: {error}") from None

    mutants(path, read, 1000, MOST_COMPLAINTS)
    swapped(path, read, MOST_COMPLAINTS)


@pytest.mark.parametrize("name", ["topology.json", "key.secret"])
def test_mutations_of_what_a_site_names(tmp_path: Path, name: str) -> None:
    path = write_site(tmp_path)
    good, draw = (tmp_path / name).read_bytes(), random.Random(5)
    for _ in range(400):
        (tmp_path / name).write_bytes(mutate(good, draw))
        loads(lambda: make_site_shard(path), tmp_path / name)


def test_a_character_that_no_key_has_names_the_file(tmp_path: Path) -> None:
    path = write_site(tmp_path)
    good = (tmp_path / "key.secret").read_bytes()
    for place in range(len(good) - 1):
        (tmp_path / "key.secret").write_bytes(good[:place] + b"\x00" + good[place + 1 :])
        assert not loads(lambda: make_site_shard(path), tmp_path / "key.secret")


def test_mutations_of_hosts(tmp_path: Path) -> None:
    path = tmp_path / "hosts.txt"
    keys = [make_agent_keys()[0] for _ in range(2)]
    path.write_text(f"# agents\n10.0.0.1:5555 {keys[0]}\n10.0.0.2:5555\nhost.example:99 {keys[1]}\n")
    mutants(path, lambda: read_hosts(path, 3), 400)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a" + ".a" * 5000 + " = 1", f"line 1: expected at most {MAX_DOTS} dots in a key"),
        ("\n['a'" + ".'a'" * 5000 + "]", f"line 2: expected at most {MAX_DOTS} dots in a key"),
        ("a" + " . a" * 5000 + " = 1", f"expected at most {MAX_DOTS} dots in a key"),
        ("x = { a" + ".a" * 5000 + " = 1 }", f"expected at most {MAX_DOTS} dots in a key"),
        ("a = " + "[" * 100_000, f"expected at most {MAX_BRACKETS} brackets inside each other"),
        ("a = " + "[\n" * 100 + "]" * 100, f"expected at most {MAX_BRACKETS} brackets inside each other"),
        ("a = " + "{b = " * 100_000, f"expected at most {MAX_BRACKETS} brackets inside each other"),
        ('a = """' + ' \\"""' * 100_000, "not valid TOML"),
        ("agents = " + "9" * 5000, "not valid TOML: Exceeds the limit"),
        ("agents = 1\nagents = 2", "not valid TOML: Cannot overwrite"),
        ("x" * (MAX_TOML_BYTES + 1), "has more than 1.0 MB, the most that is read"),
    ],
)
def test_toml_that_would_take_long_or_deep(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "settings.toml"
    path.write_text(text)
    with no_longer_than(20), pytest.raises(GossamerError, match=message) as caught:
        read_toml(path)
    assert str(path) in str(caught.value)
    assert len(str(caught.value).splitlines()) == 1


def test_dots_and_brackets_in_texts_comments_and_numbers_count_for_nothing(tmp_path: Path) -> None:
    path = tmp_path / "settings.toml"
    many = "a.b.[[[{{{" * 100
    path.write_text(
        f'one = "{many}\\"" # {many}\ntwo = \'{many}\'\nthree = """{many}"\n{many}""\\""""\n'
        f"four = '''{many}'\n''{many}'''\nfive = [{'1.5, ' * 1000}]\nsix = [{'[1.5], {a.b = 2.5}, ' * 1000}]\n"
        + "".join(f"[t.{i}.x]\n" for i in range(200))
    )
    found = read_toml(path)
    assert found["three"] == f'{many}"\n{many}"""'
    assert (len(found["five"]), len(found["six"]), len(found["t"])) == (1000, 2000, 200)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("hidden = 1048577", "hidden.0 = 1048577: input should be less than or equal to 1048576"),
        (f"hidden = {[8] * 65}", "hidden = .*: .* at most 64 items"),
        ("hidden = 0x" + "f" * 5000, "hidden.0 = a number of thousands of digits: input should be less"),
        ("agents = 65537", "agents = 65537: input should be less than or equal to 65536"),
        ("weight_decay = 1e300", "weight_decay = 1e.300: input should be less"),
        ("step_decay = 1e300", "step_decay = 1e.300: input should be less"),
        ("initial_deviation = 1e300", "initial_deviation = 1e.300: input should be less"),
        ("threads = 1025", "threads = 1025: input should be less than or equal to 1024"),
        ("steps = 10000000000000", "steps = 10000000000000: input should be less"),
        ("evaluate_every = 10000000000000", "evaluate_every = 10000000000000: input should be less"),
        ("batch = 10000000000000", "batch = 10000000000000: input should be less"),
        ("compress = 'power:" + "9" * 4000 + "'", "at most 100 characters"),
        ('dataset = "a\\nb"', "without control characters"),
    ],
)
def test_settings_beyond_their_bounds(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "settings.toml"
    path.write_text(text)
    with pytest.raises(GossamerError, match=message) as caught:
        make_settings(read_settings(path), str(path))
    assert str(caught.value).startswith(f"{path}: ")
    assert len(str(caught.value)) < 500


def test_thousands_of_mistakes_are_not_all_reported(tmp_path: Path) -> None:
    path = tmp_path / "settings.toml"
    path.write_text("".join(f"key{i} = 1\n" for i in range(50_000)))
    with no_longer_than(30), pytest.raises(GossamerError) as caught:
        make_settings(read_settings(path), str(path))
    assert len(str(caught.value).splitlines()) == MOST_COMPLAINTS


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"hidden": [1 << 20], "agents": 1000}, r"1000 agents with \d+ parameters each take at least .* TB of memory"),
        ({"agents": 1000, "dataset": "blocks:features=500000"}, "the data set blocks with .* takes at least"),
    ],
)
def test_more_than_the_memory_is_refused_by_the_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, changes: dict[str, Any], message: str
) -> None:
    """The machine is pretended to have 1 GB available."""
    monkeypatch.setattr("gossamer.machine._free_memory", lambda: 10**9)
    monkeypatch.chdir(tmp_path)
    values = {"dataset": "digits", "topology": "ring", "assignment": "uniform", **changes}
    Path("mine.toml").write_text("".join(f"{name} = {value!r}\n" for name, value in values.items()))
    done = CliRunner().invoke(app, ["train", "mine.toml", "--out", "run"])
    assert done.exit_code == 2, done.output
    assert "Traceback" not in done.stderr
    errors = [line for line in done.stderr.splitlines() if line.startswith("error:")]
    assert len(errors) == 1
    assert re.search(message, errors[0])
    assert not Path("run").exists()


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("classes = ['a', 'b']", f"classes = {MAX_CLASSES + 1}", "classes must be 2 to 65536"),
        ("classes = ['a', 'b']", "classes = ['a', ['b']]", r"classes must be short names, got \['b'\]"),
        ("classes = ['a', 'b']", "classes = 1.5", "classes must be a whole number or a list, got 1.5"),
        ("agent = 0", "agent = 0x" + "f" * 5000, "agent must be 0 to 2, .* got a number of thousands of digits"),
        ("agent = 0", "agent = -1", "agent must be 0 to 2"),
        ('run = "mine"', "run = 3", "run must be up to 64 letters, digits, dots or dashes, got 3"),
        ('data = "data.npz"', 'data = "a\\u0000b"', "data must be text, the path of"),
        ('data = "data.npz"', f'data = "{"a" * 3000}"', "expected a folder of CSV tables or an .npz file"),
        ("address = '10", "port = 1, address = '10", "neighbour 1 must be"),
        ("[neighbours]", "[neighbours]\n01 = 3", "neighbours are numbered 0 to 2"),
        ("[neighbours]\n", f"[neighbours]\n{'9' * 5000} = 3\n", "neighbours are numbered 0 to 2"),
    ],
)
def test_named_attacks_on_a_site(tmp_path: Path, old: str, new: str, message: str) -> None:
    path = write_site(tmp_path)
    assert old in path.read_text()
    path.write_text(path.read_text().replace(old, new, 1))
    with pytest.raises(GossamerError, match=message) as caught:
        make_site_shard(path)
    assert len(str(caught.value).splitlines()) == 1
    assert len(str(caught.value)) < 4000


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[" * 100_000, "recursion limit"),
        ('{"combination": ' + "[" * 100_000, "recursion limit"),
        ("{}", "combination: Field required"),
        ('{"combination": [[1, 2], [3]]}', "expected rows of equal length"),
        ('{"combination": [["x"]]}', "combination.0.0: Input should be a valid number"),
        ('{"combination": [[' + "9" * 5000 + "]]}", "number out of range"),
        ('{"combination": [[0, NaN, 1]]}', "must hold finite numbers"),
        (" " * (2 * MAX_OTHER_BYTES), "has more than"),
    ],
)
def test_named_attacks_on_a_topology(tmp_path: Path, text: str, message: str) -> None:
    path = write_site(tmp_path)
    (tmp_path / "topology.json").write_text(text)
    with pytest.raises(GossamerError, match=message) as caught:
        make_site_shard(path)
    assert str(tmp_path / "topology.json") in str(caught.value)


def test_a_device_without_an_end_is_not_read_to_it() -> None:
    tracemalloc.start()
    try:
        with pytest.raises(GossamerError, match="cannot read /dev/zero: expected a file"):
            read_text(Path("/dev/zero"), MAX_TOML_BYTES)
        assert tracemalloc.get_traced_memory()[1] < 4 * MAX_TOML_BYTES
    finally:
        tracemalloc.stop()
