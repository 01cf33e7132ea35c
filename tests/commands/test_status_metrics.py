"""`gossamer status --metrics`: agents on several machines, of which some do not answer or answer with nonsense."""

import json
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from commands.inside import run
from report.live.views import make_view

from gossamer.errors import GossamerError
from gossamer.report.live import metrics_client
from gossamer.report.live.feed import Feed
from gossamer.report.live.metrics import serve_metrics
from gossamer.report.live.metrics_client import describe_agents, parse_metrics_address, parse_samples

LIMIT = 30.0  # seconds; none of these tests waits so long unless it fails
OK = b"HTTP/1.0 200 OK\r\n\r\n"
BUILD = b'gossamer_build_info{version="1"} 1\n'


def invoke(*arguments: str) -> Any:
    return run("status", *arguments, cwd=Path.cwd())


@contextmanager
def serve_view(own: int | None = None, change: Callable[[Any], None] = lambda view: None) -> Iterator[str]:
    """Serve metrics of a view; yield HOST:PORT."""
    feed, view = Feed(), make_view(own)
    change(view)
    feed.publish(view)
    with serve_metrics(feed, ("127.0.0.1", 0)) as url:
        yield urlsplit(url).netloc


@contextmanager
def serve_bytes(answer: bytes) -> Iterator[str]:
    """Answer one connection with some bytes, and no other."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.settimeout(LIMIT)

        def serve() -> None:
            connection, _ = listener.accept()
            with connection:
                connection.recv(1 << 16)
                try:
                    connection.sendall(answer)
                except OSError:
                    return  # the reader has had enough

        thread = threading.Thread(target=serve)
        thread.start()
        host, port = listener.getsockname()
        yield f"{host}:{port}"
        thread.join(LIMIT)


@pytest.fixture
def closed() -> Iterator[str]:
    """An address at which nobody listens."""
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        host, port = bound.getsockname()
        yield f"{host}:{port}"


def test_machines_that_answer_are_shown_and_one_that_does_not_is_named(closed: str) -> None:
    with serve_view(own=0) as first, serve_view(own=2) as third:
        done = invoke("--metrics", first, "--metrics", closed, "--metrics", third)
    assert done.returncode == 0
    rows = [line.split() for line in done.stdout.splitlines()]
    assert [row[:2] for row in rows[1:4]] == [["0", "training"], ["2", "training"], ["-", "unreachable"]]
    assert f"{closed}: connection refused" in done.stdout
    assert "40 of 100" in done.stdout


def test_addresses_follow_one_another(tmp_path: Path, closed: str) -> None:
    with serve_view(own=0) as first, serve_view(own=2) as third:
        done = invoke("--metrics", first, third, closed, "--json")
        named = invoke("--metrics", first, str(tmp_path / "folder:1"))
    assert [json.loads(line)["metrics"] for line in done.stdout.splitlines()] == [first, third, closed]
    assert "folder:1 is not a shard" in named.stderr  # a path is none


def test_json_has_the_keys_of_folders(closed: str) -> None:
    with serve_view() as address:
        done = invoke("--metrics", address, "--metrics", closed, "--json")
    assert done.returncode == 0
    agents = [json.loads(line) for line in done.stdout.splitlines()]
    age = agents[0].pop("checkpoint_age")
    assert 12 <= age < 12 + LIMIT
    assert agents[0] == {
        "folder": None,
        "metrics": address,
        "agent": 0,
        "state": "training",
        "step": 40,
        "steps": 100,
        "loss": 0.5,
        "score": 0.5,
        "waiting_for": [1],
        "waited": 1.5,
        "detours": {},
        "epoch": 2,
        "refused": 4,
        "report_age": None,
        "process": None,
        "membership": 1,
        "members": [0, 2],
    }
    assert [one.get("agent") for one in agents] == [0, 1, 2, None]
    assert agents[1]["state"] == "missing"
    assert agents[3]["state"] == "unreachable"


def test_keys_are_those_of_a_folder_but_for_the_address() -> None:
    from gossamer.peers.status import AgentStatus

    with serve_view() as address:
        one = json.loads(invoke("--metrics", address, "--json").stdout.splitlines()[0])
    assert list(AgentStatus.__annotations__) == list(one)


def test_nothing_but_addresses_that_do_not_answer_is_a_failure(closed: str) -> None:
    done = invoke("--metrics", closed)
    assert done.returncode == 2
    assert f"error: {closed}: connection refused" in done.stderr
    assert invoke("--metrics", closed, "--json").returncode == 2


def test_a_run_that_starts_is_no_failure() -> None:
    with serve_metrics(Feed(), ("127.0.0.1", 0)) as url:
        done = invoke("--metrics", url)
    assert done.returncode == 0
    assert "starting" in done.stdout


def test_refusals_of_every_recovery_are_left_out() -> None:
    def refuse(view: Any) -> None:
        view["agents"][0]["refused"] = {"old": 7, "signature": 2}

    with serve_view(change=refuse) as address:
        assert json.loads(invoke("--metrics", address, "--json").stdout.splitlines()[0])["refused"] == 2


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (b"", "no answer of a web server"),
        (b"SSH-2.0-OpenSSH_9.2\r\n", "no answer of a web server"),
        (b"HTTP/1.0 404 Not Found\r\n\r\n", "HTTP status 404"),
        (OK + b"<html>hello</html>", "no Prometheus text"),
        (OK + b"\xff\xfe", "no Prometheus text"),
        (OK + b"up 1\n", "another program"),
        (OK + BUILD + b'a{b="' + b"c" * 5000 + b'"} 1\n', "a line of more than 4096"),
        (OK + BUILD + b"gossamer_run_steps " + b"9" * 4000 + b"\n", "no Prometheus text"),
        (OK + BUILD + b'gossamer_agent_state{agent="[red]x",state="training"} 1\n', "in place of an agent's number"),
        (OK + BUILD + b'gossamer_agent_state{agent="0",state="\x1b[31mtraining"} 1\n', "which no agent has"),
    ],
    ids=["nothing", "ssh", "status", "html", "binary", "other", "line", "digits", "agent", "state"],
)
def test_an_answer_that_is_none_is_described(answer: bytes, reason: str) -> None:
    with serve_bytes(answer) as address:
        done = invoke("--metrics", address)
    assert done.returncode == 2
    text = " ".join(done.stderr.split())
    assert text.startswith(f"error: {address}: ")
    assert reason in text
    assert "\x1b" not in text
    assert len(text) < 400


def test_an_answer_without_an_end_is_cut_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metrics_client, "MAX_ANSWER", 1 << 20)
    with serve_bytes(OK + b"# more\n" * (1 << 20)) as address:
        done = invoke("--metrics", address)
    assert done.returncode == 2
    assert "more than 1 MB" in done.stderr


def test_a_machine_that_is_silent_does_not_hide_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gossamer.commands.status.METRICS_SECONDS", 1.0)
    with socket.create_server(("127.0.0.1", 0)) as silent, serve_view(own=1) as address:
        host, port = silent.getsockname()
        done = invoke("--metrics", f"{host}:{port}", "--metrics", address)
    assert done.returncode == 0
    assert "no answer within 1 s" in done.stdout
    assert "41 of 100" in done.stdout


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("10.0.0.1:9100", ("10.0.0.1", 9100)),
        ("9100", ("127.0.0.1", 9100)),
        ("[::1]:9100", ("::1", 9100)),
        (":9100", ("127.0.0.1", 9100)),
        ("http://host-1:9100/metrics", ("host-1", 9100)),
        ("http://[::1]:9100/", ("::1", 9100)),
    ],
)
def test_addresses(text: str, expected: tuple[str, int]) -> None:
    assert parse_metrics_address(text) == expected


@pytest.mark.parametrize(
    "text",
    ["", "host", "1.2.3.400:9100", "host:0", "host:70000", "host:x", "0", "99999", "https://host:1", "a:1/other"],
)
def test_what_is_no_address_is_refused(text: str) -> None:
    with pytest.raises(GossamerError, match="HOST:PORT"):
        parse_metrics_address(text)


def test_nothing_to_look_at_is_said() -> None:
    done = invoke()
    assert done.returncode == 2
    assert "--metrics HOST:PORT" in " ".join(done.stderr.split())


def test_many_agents_take_no_square_of_their_number() -> None:
    lines = "".join(f'gossamer_agent_state{{agent="{k}",state="training"}} 1\n' for k in range(20000))
    agents = describe_agents(parse_samples(BUILD + lines.encode()), "a:1")
    assert [one["agent"] for one in agents] == list(range(20000))
