"""--page and --metrics, and `gossamer watch`: their options, mistakes, and what they leave unchanged."""

import json
import logging
import os
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
import warnings
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch
from commands.inside import run
from report.live.sources import cut_agents
from safetensors.torch import load_file

from gossamer.commands.logs import configure
from gossamer.commands.watching import TOKEN_VARIABLE, WatchOptions, watch_run
from gossamer.errors import GossamerError, GossamerWarning
from gossamer.report.live.addresses import read_address

LIMIT = 60.0  # seconds
SMALL = ("digits", "--agents", "2", "--topology", "complete", "--steps", "6", "--hidden", "4", "--no-baselines")


@pytest.fixture(autouse=True)
def _logger_as_before() -> Iterator[None]:
    logger = logging.getLogger("gossamer")
    before = logger.level, logger.propagate, list(logger.handlers)
    yield
    logger.level, logger.propagate, logger.handlers[:] = before


@pytest.fixture
def taken() -> Iterator[int]:
    """A port of this machine that somebody listens on."""
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        held.listen()
        yield held.getsockname()[1]


def announce(options: WatchOptions, free_port: bool = False) -> None:
    with watch_run(options, free_port=free_port) as watch:
        assert watch is not None
        watch.announce()


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("127.0.0.1:8080", ("127.0.0.1", 8080)),
        ("8080", ("127.0.0.1", 8080)),
        (":9100", ("127.0.0.1", 9100)),
        ("0", ("127.0.0.1", 0)),
        ("localhost:0", ("localhost", 0)),
        ("[::1]:80", ("::1", 80)),
        ("0.0.0.0:65535", ("0.0.0.0", 65535)),
    ],
)
def test_addresses(text: str, expected: tuple[str, int]) -> None:
    assert read_address(text, "--page") == expected


@pytest.mark.parametrize(
    "text", ["", "x", "127.0.0.1", "127.0.0.1:", "a b:80", "::1:80", ":65536", ":-1", "1.2.3.400:80"]
)
def test_addresses_that_are_none(text: str) -> None:
    with pytest.raises(GossamerError, match="--metrics: expected HOST:PORT"):
        read_address(text, "--metrics")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["train", "--page", "nonsense"], "--page: expected HOST:PORT, such as 127.0.0.1:8080"),
        (["train", "--metrics", "::1:9100"], "write an IPv6 address in brackets"),
        (["launch", "--page", "127.0.0.1:99999"], "found '127.0.0.1:99999'"),
        (["peer", "absent", "--metrics", "x"], "--metrics: expected HOST:PORT"),
        (["train", "--page-token-file", "token"], "give --page HOST:PORT, too"),
        (["train", "--page", "0", "--page-token-file", "absent"], "cannot read absent"),
        (["train", "--page", "0", "--page-token-file", "token"], "expected a token of 16 to 200"),
        (["train", "--page", "0", "--page-token-file", "open"], "can be read by others"),
        (["peer", "absent", "--page", "0", "--metrics", "0"], "absent is not a shard"),
        (["train", "absent", "--page", "0"], "no data set"),
        (["launch", "absent", "--page", "0"], "no data set"),
        (["train", "--resume", ".", "--page", "0"], "not a run directory"),
        (["launch", "--resume", ".", "--page", "0"], "not a run directory"),
        (["train", *SMALL, "--page", "0", "--out", "."], "not an empty folder"),
        (["launch", *SMALL, "--page", "0", "--out", "."], "not an empty folder"),
        (["train", *SMALL, "--page", "0", "--metrics", "192.0.2.1:0"], "cannot serve the metrics at 192.0.2.1:0"),
        (["watch", "absent"], "absent holds no run: expected run.json"),
        (["watch", "."], "found neither"),
        (["watch", ".", "--page", "x"], "holds no run"),
    ],
)
def test_mistakes_are_told_before_anything_is_done(arguments: list[str], message: str, tmp_path: Path) -> None:
    (tmp_path / "token").write_text("short\n")
    (tmp_path / "token").chmod(0o600)
    (tmp_path / "open").write_text("a token that all can read\n".replace(" ", "-"))
    (tmp_path / "open").chmod(0o644)
    done = run(*arguments, cwd=tmp_path)
    assert done.returncode == 2, done.stderr
    assert message in done.stderr
    assert "http://" not in done.stderr
    assert {path.name for path in tmp_path.iterdir()} == {"token", "open"}


@pytest.mark.parametrize("option", ["--page", "--metrics"])
@pytest.mark.parametrize("command", ["train", "launch"])
def test_a_port_that_is_taken_is_told_before_anything_is_trained(
    command: str, option: str, taken: int, tmp_path: Path
) -> None:
    done = run(command, *SMALL, option, str(taken), cwd=tmp_path)
    assert done.returncode == 2, done.stderr
    assert f":{taken}" in done.stderr
    assert "in use" in done.stderr
    assert not list(tmp_path.iterdir())


def test_a_run_that_is_watched_has_the_same_bits_and_says_where_it_is_seen(tmp_path: Path) -> None:
    assert run("train", *SMALL, "--out", "plain", cwd=tmp_path).returncode == 0
    done = run("train", *SMALL, "--out", "seen", "--page", "0", "--metrics", "0", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "live page: http://127.0.0.1:" in done.stderr
    assert "metrics: http://127.0.0.1:" in done.stderr
    assert "see the run again with: gossamer watch seen" in done.stderr
    first, second = (load_file(tmp_path / name / "weights.safetensors") for name in ("plain", "seen"))
    assert all(torch.equal(first[name], second[name]) for name in first)
    done = run("train", "--resume", "seen", "--steps", "8", "--page", "0", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "see the run again with: gossamer watch seen" in done.stderr
    plain, seen = ((tmp_path / name / "metrics.jsonl").read_text() for name in ("plain", "seen"))
    assert seen.startswith(plain)
    assert [json.loads(line)["step"] for line in seen.splitlines()] == [*range(9)]


def test_a_page_beyond_this_machine_has_a_token(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv(TOKEN_VARIABLE, raising=False)
    announce(WatchOptions(page="0.0.0.0:0", metrics="0.0.0.0:0"))
    said = capfd.readouterr().err
    assert "/?token=" in said
    assert "anybody who reaches this address can read the metrics" in " ".join(said.split())
    assert "--page 0.0.0.0:0: the token and the page travel unencrypted" in " ".join(said.split())
    monkeypatch.setenv(TOKEN_VARIABLE, "a-token-of-the-user")
    announce(WatchOptions(page="0.0.0.0:0"))
    assert "?token" not in capfd.readouterr().err
    announce(WatchOptions(page="0"))
    assert "unencrypted" not in capfd.readouterr().err


def test_a_token_of_the_user_is_asked_for(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "token").write_text("a-token-of-the-user\n")
    (tmp_path / "token").chmod(0o600)
    with watch_run(WatchOptions(page="0", token_file=tmp_path / "token")) as watch:
        assert watch is not None
        watch.announce()
        url = capfd.readouterr().err.strip().removeprefix("live page: ")
        with pytest.raises(urllib.error.HTTPError):
            urllib.request.urlopen(f"{url}view.json", timeout=LIMIT)
        with closing(
            urllib.request.build_opener(urllib.request.HTTPCookieProcessor()).open(
                f"{url}?token=a-token-of-the-user", timeout=LIMIT
            )
        ) as answer:
            assert answer.status == 200


def test_the_usual_port_gives_way_to_a_free_one(taken: int, capfd: pytest.CaptureFixture[str]) -> None:
    announce(WatchOptions(page=str(taken)), free_port=True)
    said = capfd.readouterr().err
    assert "live page: http://127.0.0.1:" in said
    assert f":{taken}/" not in said


def test_warnings_and_the_log_are_kept_and_shown_as_before(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(warnings, "showwarning", lambda message, *rest: print(message, file=sys.stderr))
    configure("warning")
    logger = logging.getLogger("gossamer")
    before = logger.level, warnings.showwarning, list(logger.handlers)
    with watch_run(WatchOptions(page="0")) as watch:
        assert watch is not None
        logging.getLogger("gossamer.somewhere").info("quiet")
        logging.getLogger("gossamer.somewhere").warning("loud")
        warnings.showwarning("careful", GossamerWarning, "file", 1)
        assert [line["text"] for line in watch.log.last()] == ["quiet", "loud", "careful"]
    assert (logger.level, warnings.showwarning, list(logger.handlers)) == before
    said = capfd.readouterr().err
    assert "loud" in said
    assert "careful" in said
    assert "quiet" not in said


def test_nothing_is_served_that_nobody_asks_for(tmp_path: Path) -> None:
    """In a process of its own, in which the servers and their library cannot be imported."""
    code = (
        "import sys; sys.modules.update(dict.fromkeys(('prometheus_client', 'http.server', "
        "'gossamer.report.live.server', 'gossamer.report.live.simulation')));"
        "sys.argv[0] = 'gossamer'; from gossamer.cli import main; main()"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, "train", *SMALL], cwd=tmp_path, capture_output=True, text=True, timeout=LIMIT
    )
    assert done.returncode == 0, done.stderr


@contextmanager
def started(*arguments: str, cwd: Path) -> "Iterator[tuple[subprocess.Popen[str], str]]":
    """A command in a process of its own that serves a page, and the page's URL."""
    process = subprocess.Popen(
        [sys.executable, "-m", "gossamer", *arguments],
        cwd=cwd,
        env=os.environ | {"OMP_NUM_THREADS": "1", "COLUMNS": "200"},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    limit = threading.Timer(LIMIT, process.kill)  # it may never say where its page is
    limit.start()
    try:
        assert process.stderr is not None
        said = next(line for line in process.stderr if line.startswith("live page: "))
        limit.cancel()
        yield process, said.split()[-1]
    finally:
        limit.cancel()
        process.kill()
        process.communicate(timeout=LIMIT)


def read_view(url: str) -> Any:
    with urllib.request.urlopen(f"{url}view.json", timeout=LIMIT) as answer:
        return json.load(answer)


def test_watch_shows_a_run_on_disk_until_ctrl_c(tmp_path: Path) -> None:
    assert run("train", *SMALL, "--out", "run", cwd=tmp_path).returncode == 0
    with started("watch", "run", "--page", "0", cwd=tmp_path) as (process, url):
        assert process.stderr is not None
        assert "Ctrl-C" in process.stderr.readline()
        with urllib.request.urlopen(f"{url}events", timeout=LIMIT) as events:
            assert any(b'"state":"finished"' in line for line in events)
        view = read_view(url)
        assert (view["title"], view["step"], view["steps"]) == ("digits, 2 agents", 6, 6)
        process.send_signal(signal.SIGINT)
        assert process.wait(timeout=LIMIT) == 0
        assert "Traceback" not in process.stderr.read()


def wait_for(url: str, holds: Callable[[Any], bool]) -> Any:
    """The first view for which something holds, asked for at every event of the page."""
    with urllib.request.urlopen(f"{url}events", timeout=LIMIT) as events:
        deadline = time.monotonic() + LIMIT
        for line in events:
            if line.startswith((b"data:", b":")) and holds(view := read_view(url)):
                return view
            assert time.monotonic() < deadline, f"waited {LIMIT:.0f} s in vain; the last view: {view}"
    raise AssertionError("the page has ended")


@pytest.mark.slow
def test_a_peer_shows_a_neighbour_that_dies_and_comes_back(tmp_path: Path) -> None:
    folders = cut_agents(tmp_path / "run", steps=1_000_000)

    def begin(agent: int) -> "subprocess.Popen[bytes]":
        command = [sys.executable, "-m", "gossamer", "peer", str(folders[agent]), "--log-level", "error"]
        return subprocess.Popen(command, stdout=subprocess.DEVNULL)

    def state_of(view: Any, agent: int) -> str:
        return next((one["state"] for one in view["agents"] if one["agent"] == agent), "unknown")

    running = {agent: begin(agent) for agent in (0, 2)}
    try:
        with started("peer", str(folders[1]), "--page", "0", cwd=tmp_path) as (_, url):
            view = wait_for(url, lambda view: all(state_of(view, agent) == "training" for agent in range(3)))
            view = wait_for(url, lambda view: view["evaluations"] and view["agents"][0]["step"] > 0)
            own = view["agents"][0]
            assert (view["own"], own["agent"], own["epoch"]) == (1, 1, 1)
            assert {link["neighbour"] for link in own["neighbours"] if link["sent"]["forward"]} == {0, 2}
            assert view["log"]
            running[2].kill()
            view = wait_for(url, lambda view: state_of(view, 2) == "missing")
            assert view["agents"][0]["waiting_for"] == [2]
            assert state_of(view, 0) != "missing"
            running[2].wait(LIMIT)
            running[2] = begin(2)
            view = wait_for(url, lambda view: state_of(view, 2) == "training" and view["agents"][0]["epoch"] == 2)
    finally:
        for one in running.values():
            one.kill()
            one.wait(LIMIT)


@pytest.mark.slow
def test_a_launch_that_is_shown_trains_as_others_do(tmp_path: Path) -> None:
    done = run("launch", *SMALL, "--public-randomness", "--out", "run", "--page", "0", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "live page: http://127.0.0.1:" in done.stderr
    assert run("train", *SMALL, "--out", "plain", cwd=tmp_path).returncode == 0
    first, second = (load_file(tmp_path / name / "weights.safetensors") for name in ("run", "plain"))
    for name, part in first.items():
        torch.testing.assert_close(part, second[name], rtol=1e-4, atol=1e-5)  # the hosts round their sums otherwise
