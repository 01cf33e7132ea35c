"""The server of the live page, asked as browsers and as attackers ask."""

import contextlib
import json
import logging
import math
import os
import re
import resource
import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from report.live.page_client import LIMIT, EventReader, a_line, a_view, an_agent, an_evaluation, ask, connect

from gossamer.errors import GossamerError
from gossamer.report.live.access import Hosts, TokenGate
from gossamer.report.live.feed import Feed
from gossamer.report.live.request_handler import HEADERS, MAX_HEAD, PIECE_BYTES, send_in_pieces
from gossamer.report.live.server import serve_page
from gossamer.report.live.streams import MAX_STREAMS

LOOPBACK = ("127.0.0.1", 0)


@pytest.fixture
def feed() -> Feed:
    feed = Feed()
    feed.publish(a_view())
    return feed


@pytest.fixture
def url(feed: Feed) -> Iterator[str]:
    with serve_page(feed, LOOPBACK, None) as url:
        yield url


@pytest.fixture
def guarded(feed: Feed) -> Iterator[str]:
    with serve_page(feed, LOOPBACK, "open sesame") as url:
        yield url


def raw(url: str, request: bytes) -> bytes:
    parts = urlsplit(url)
    with socket.create_connection((parts.hostname or "", parts.port or 0), timeout=LIMIT) as connection:
        connection.sendall(request)
        received = b""
        while part := connection.recv(65_536):
            received += part
    return received


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/", 200),
        ("HEAD", "/", 200),
        ("GET", "/view.json", 200),
        ("GET", "/assets/house.css", 200),
        ("GET", "/assets/live.js", 200),
        ("GET", "/assets/../server.py", 404),
        ("GET", "/assets/live.html", 404),
        ("GET", "/nothing", 404),
        ("POST", "/", 405),
        ("PUT", "/view.json", 405),
        ("DELETE", "/", 405),
        ("OPTIONS", "/", 405),
        ("BREW", "/", 405),
    ],
)
def test_every_answer_forbids_embedding_and_foreign_scripts(url: str, method: str, path: str, status: int) -> None:
    answer = ask(url, path, method)
    assert answer.status == status
    assert {name: answer.headers[name] for name in HEADERS} == HEADERS
    assert "Python" not in str(answer.headers)
    assert (answer.body == b"") == (method == "HEAD")


def test_the_page_names_nothing_from_elsewhere_and_all_that_it_names_is_there(url: str) -> None:
    page = ask(url, "/").body.decode()
    named = re.findall(r'(?:src|href)="([^"#]+)"', page)
    assert len(named) > 5
    for name in named:
        assert name == "data:," or ask(url, f"/{name}").status == 200, name
    assert not re.search(r"\son\w+=|<style|style=|javascript:", page)
    for name in (one for one in named if one.startswith("assets/")):
        text = ask(url, f"/{name}").body.decode()
        assert not re.search(r"https?://(?!www\.w3\.org/2000/svg)", text), name
        assert not re.search(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|eval\(", text), name


@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("localhost", 200),
        ("LOCALHOST:1", 200),
        ("127.0.0.1", 200),
        ("127.0.0.2:80", 200),
        ("[::1]:80", 200),
        ("rebound.example", 421),
        ("127.0.0.1.rebound.example", 421),
        ("192.0.2.1", 421),
        ("", 421),
    ],
)
def test_a_foreign_name_is_refused_as_host(url: str, host: str, status: int) -> None:
    assert ask(url, "/view.json", Host=host).status == status


def test_a_page_on_all_addresses_answers_to_addresses_but_to_no_foreign_name(feed: Feed) -> None:
    with serve_page(feed, ("0.0.0.0", 0), "token") as url:
        local = f"http://127.0.0.1:{urlsplit(url).port}/"
        assert ask(local, "/", Host="192.0.2.1:80").status == 401
        assert ask(local, "/", Host=socket.gethostname()).status == 401
        assert ask(local, "/", Host="agent-0:80").status == 401  # a container's name
        assert ask(local, "/", Host="agent-0.default.svc.cluster.local").status == 401
        refused = ask(local, "/", Host="rebound.example")
        assert refused.status == 421
        assert socket.gethostname().lower() in refused.body.decode()


def test_the_full_name_of_the_machine_is_one_of_its_names(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("socket.gethostname", lambda: "worker")
    monkeypatch.setattr("socket.getfqdn", lambda: "worker.example.org")
    assert Hosts("0.0.0.0").allow("worker.example.org:8080")
    assert not Hosts("0.0.0.0").allow("worker.rebound.example:8080")
    assert not Hosts("127.0.0.1").allow("worker.example.org:8080")
    assert not Hosts("127.0.0.1").allow("[::1].rebound.example")


@pytest.mark.parametrize(
    ("request_bytes", "status"),
    [
        (b"GET /view.json\r\n\r\n", b"421"),  # HTTP/0.9 has no Host
        (b"GET /view.json HTTP/1.1\r\n\r\n", b"421"),
        (b"GET /view.json HTTP/1.1\r\nHost: localhost\r\nHost: localhost\r\n\r\n", b"421"),
        (b"GET http://elsewhere/ HTTP/1.1\r\nHost: localhost\r\n\r\n", b"400"),
        (b"GET http://[ HTTP/1.1\r\nHost: localhost\r\n\r\n", b"400"),
        (b"\x16\x03\x01\x02\x00\x01\r\n\r\n", b"400"),
        (b"GET / HTTP/9.9\r\nHost: localhost\r\n\r\n", b"505"),
        (b"GET /" + MAX_HEAD * b"a" + b" HTTP/1.1\r\n", b"431"),
        (b"GET / HTTP/1.1\r\n" + 200 * b"A: b\r\n" + b"\r\n", b"431"),
        (b"GET / HTTP/1.1\r\nA: " + MAX_HEAD * b"a" + b"\r\n", b"431"),
        (b"POST /login HTTP/1.1\r\nHost: localhost\r\nContent-Length: 99999999\r\n\r\n", b"413"),
        (b"POST /login HTTP/1.1\r\nHost: localhost\r\nContent-Length: " + 5000 * b"9" + b"\r\n\r\n", b"413"),
        (b"POST /login HTTP/1.1\r\nHost: localhost\r\nContent-Length: -1\r\n\r\n", b"413"),
    ],
)
def test_a_request_that_is_malformed_or_too_large_is_refused(url: str, request_bytes: bytes, status: bytes) -> None:
    answer = raw(url, request_bytes)
    assert answer.startswith(b"HTTP/1.1 " + status), answer[:200]
    assert b"X-Frame-Options: DENY" in answer
    assert ask(url, "/").status == 200


def test_a_request_that_never_ends_is_given_up_and_keeps_nobody_waiting(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gossamer.report.live.request_handler.REQUEST_SECONDS", 0.2)
    parts = urlsplit(url)
    with socket.create_connection((parts.hostname or "", parts.port or 0), timeout=LIMIT) as slow:
        slow.sendall(b"GET / HTTP/1.1\r\nHost: local")
        assert ask(url, "/").status == 200
        assert slow.recv(100).startswith(b"HTTP/1.1 431")


def test_a_new_connection_takes_the_place_of_the_oldest_that_has_not_asked(
    feed: Feed, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gossamer.report.live.server.MAX_CONNECTIONS", 4)
    with serve_page(feed, LOOPBACK, None) as url, EventReader(url) as events:
        assert events.read()[0] == "snapshot"
        parts = urlsplit(url)
        where = parts.hostname or "", parts.port or 0
        idle = [socket.create_connection(where, timeout=LIMIT) for _ in range(6)]
        assert ask(url, "/").status == 200
        assert [one.recv(1) for one in idle[:3]] == 3 * [b""]  # all but the last three, and one more for the page
        for one in idle:
            one.close()
        feed.publish(a_view(state="finished"))
        assert events.read() == ("update", {"state": "finished"})


def test_connections_that_are_answered_are_never_dropped(feed: Feed, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gossamer.report.live.server.MAX_CONNECTIONS", 2)
    with serve_page(feed, LOOPBACK, None) as url, EventReader(url) as first, EventReader(url) as second:
        assert first.read()[0] == second.read()[0] == "snapshot"
        parts = urlsplit(url)
        with socket.create_connection((parts.hostname or "", parts.port or 0), timeout=LIMIT) as late:
            assert late.recv(1) == b""
        feed.publish(a_view(state="finished"))
        assert first.read() == second.read() == ("update", {"state": "finished"})


def test_a_thread_that_cannot_start_gives_its_place_back(feed: Feed, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gossamer.report.live.server.MAX_CONNECTIONS", 1)
    with serve_page(feed, LOOPBACK, None) as url:
        parts = urlsplit(url)
        start = threading.Thread.start

        def fail(thread: threading.Thread) -> None:
            raise RuntimeError("can't start new thread")

        monkeypatch.setattr(threading.Thread, "start", fail)
        with socket.create_connection((parts.hostname or "", parts.port or 0), timeout=LIMIT) as refused:
            assert refused.recv(1) == b""
        monkeypatch.setattr(threading.Thread, "start", start)
        with EventReader(url) as events:  # whose place would be taken by nobody's connection
            assert events.read()[0] == "snapshot"


def test_a_failure_is_logged_once_and_never_printed(
    url: str,
    feed: Feed,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    capfd: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(feed, "latest", lambda: 1 / 0)
    logger = logging.getLogger("gossamer")  # a command that ran before in this process may have configured it
    monkeypatch.setattr(logger, "handlers", [])
    monkeypatch.setattr(logger, "propagate", True)
    with caplog.at_level("DEBUG", "gossamer"):
        assert [raw(url, b"GET /view.json HTTP/1.1\r\nHost: localhost\r\n\r\n") for _ in range(3)] == 3 * [b""]
    assert [record.levelname for record in caplog.records] == ["DEBUG"]
    assert capfd.readouterr() == ("", "")


def test_more_than_a_thousand_open_files_keep_nobody_out(url: str) -> None:
    limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if limit < 1400:
        pytest.skip(f"this process may open {limit} files")
    with contextlib.ExitStack() as files:
        for _ in range(1100):
            files.enter_context(Path(os.devnull).open())
        assert ask(url, "/").status == 200
        with EventReader(url) as events:
            assert events.read()[0] == "snapshot"


def test_the_time_limit_is_that_of_a_piece() -> None:
    class Connection:
        def __init__(self) -> None:
            self.sent: list[bytes] = []

        def settimeout(self, seconds: float) -> None:
            assert seconds > 0

        def sendall(self, part: memoryview) -> None:
            self.sent.append(bytes(part))

    connection = Connection()
    content = os.urandom(3 * PIECE_BYTES + 1)
    send_in_pieces(connection, content)  # type: ignore[arg-type]
    assert [len(part) for part in connection.sent] == [PIECE_BYTES, PIECE_BYTES, PIECE_BYTES, 1]
    assert b"".join(connection.sent) == content


def test_a_stream_begins_with_the_whole_view_and_goes_on_with_what_is_new(url: str, feed: Feed) -> None:
    with EventReader(url) as events:
        assert events.read() == ("snapshot", a_view())
        old = a_view()
        changed = an_agent(1, (0, 2), state="missing")
        new = a_view(evaluations=5, agents=[old["agents"][0], changed, old["agents"][2]], log=[a_line("hello")])
        feed.publish(new)
        assert events.read() == (
            "update",
            {
                "step": 5,
                "agents": {"order": [0, 1, 2], "add": [changed]},
                "evaluations": {"keep": 2, "add": new["evaluations"][2:]},
                "log": {"keep": 0, "add": [a_line("hello")]},
            },
        )


def test_evaluations_that_grow_in_place_are_sent_once(url: str, feed: Feed) -> None:
    view = a_view()
    feed.publish(view)
    with EventReader(url) as events:
        assert len(events.read()[1]["evaluations"]) == 2
        for step in (3, 4):
            view["evaluations"].append(an_evaluation(step))
            feed.publish(view)
            assert events.read() == ("update", {"evaluations": {"keep": step - 1, "add": [an_evaluation(step)]}})


def test_a_stream_before_the_first_view_waits_for_it() -> None:
    feed = Feed()
    with serve_page(feed, LOOPBACK, None) as url, EventReader(url) as events:
        assert json.loads(ask(url, "/view.json").body) is None
        feed.publish(a_view())
        assert events.read() == ("snapshot", a_view())


def test_numbers_that_are_not_finite_become_null(url: str, feed: Feed) -> None:
    feed.publish(a_view(evaluations=0, seconds=math.inf, log=[a_line("NaN \ud800")]))
    assert json.loads(ask(url, "/view.json").body, parse_constant=pytest.fail)["seconds"] is None
    with EventReader(url) as events:
        assert events.read()[1]["seconds"] is None
        feed.publish(a_view(evaluations=0, references={"x": [an_evaluation(1, -math.inf)]}))
        assert events.read()[1]["references"]["x"]["add"][0]["loss"] is None


def test_streams_are_bounded_and_free_their_places(url: str, feed: Feed) -> None:
    streams = [EventReader(url) for _ in range(MAX_STREAMS)]
    try:
        assert [stream.read()[0] for stream in streams] == MAX_STREAMS * ["snapshot"]
        refused = ask(url, "/events")
        assert refused.status == 503
        assert str(MAX_STREAMS) in refused.body.decode()
        assert ask(url, "/").status == 200
    finally:
        for stream in streams:
            stream.__exit__()
    deadline = threading.Event()
    timer = threading.Timer(LIMIT, deadline.set)
    timer.start()
    status = 503
    while status == 503 and not deadline.is_set():  # a stream sees within a second that its browser has gone
        with EventReader(url) as stream:
            status = stream.status
    timer.cancel()
    assert status == 200


def test_streams_end_with_the_last_view_when_the_server_stops(feed: Feed) -> None:
    with serve_page(feed, LOOPBACK, None) as url:
        events = EventReader(url)
        events.read()
        feed.publish(a_view(state="finished"))
    with events:
        assert events.read() == ("update", {"state": "finished"})
        assert events.read() == ("end", {})
        assert events.read() == ("", None)
    with pytest.raises(ConnectionRefusedError):
        connect(url).connect()


def test_a_page_with_a_token_asks_for_it(guarded: str) -> None:
    for path in ("/", "/events", "/view.json", "/assets/live.js", "/nothing"):
        answer = ask(guarded, path)
        assert answer.status == 401, path
        assert b'name="token"' in answer.body
        assert {name: answer.headers[name] for name in HEADERS} == HEADERS
        assert b"open sesame" not in answer.body
    assert ask(guarded, "/", Cookie="gossamer=open sesame; x").status == 401
    assert ask(guarded, "/", Cookie=f"gossamer-{urlsplit(guarded).port}=wrong").status == 401


@pytest.mark.parametrize("way", ["form", "address"])
def test_the_right_token_is_exchanged_for_a_cookie(guarded: str, way: str) -> None:
    if way == "form":
        answer = ask(guarded, "/login", "POST", "token=open+sesame", Content_Type="application/x-www-form-urlencoded")
    else:
        answer = ask(guarded, "/?token=open%20sesame")
    assert answer.status == 303
    assert answer.headers["Location"] == "./"
    cookie = answer.headers["Set-Cookie"]
    assert "HttpOnly" in cookie
    assert "SameSite=Lax" in cookie
    assert "sesame" not in cookie
    given = cookie.partition(";")[0]
    assert ask(guarded, "/", Cookie=given).status == 200
    assert ask(guarded, "/view.json", Cookie=f"other=1; {given}").status == 200
    with EventReader(guarded, Cookie=given) as events:
        assert events.read()[0] == "snapshot"


def test_tokens_cannot_be_guessed_at_speed(guarded: str) -> None:
    found = [ask(guarded, "/?token=guess").status for _ in range(12)]
    assert found == 10 * [401] + 2 * [429]
    assert ask(guarded, "/?token=open%20sesame").status == 429


def test_wrong_tokens_keep_out_nobody_but_their_sender(guarded: str) -> None:
    cookie = ask(guarded, "/?token=open%20sesame").headers["Set-Cookie"].partition(";")[0]
    for _ in range(10):
        ask(guarded, "/?token=guess")
    assert ask(guarded, "/?token=open%20sesame").status == 429
    assert ask(guarded, "/?token=open%20sesame", Cookie=cookie).status == 303
    gate = TokenGate("open sesame", 1)
    for k in range(200):
        gate.try_token("guess", f"192.0.2.{k // 5}")
    assert not gate.is_blocked("192.0.2.99")


@pytest.mark.parametrize(
    "other", ['prefs={"a":1}', "a[0]=1", "expires=foo", "bare", "Path=/", "$Version=1", 'x="q', "a b=c", "k=\xe4", "="]
)
def test_cookies_of_other_services_do_not_hide_that_of_the_page(other: str) -> None:
    gate = TokenGate("open sesame", 8080)
    cookie = gate.write_cookie().partition(";")[0]
    assert gate.admit(f"{other}; {cookie}")
    assert gate.admit(f"{cookie}; {other}")
    assert not gate.admit(f"{other}; x{cookie}")
    assert not gate.admit(other)


def test_a_token_that_nobody_asked_for_is_dropped_from_the_address(url: str) -> None:
    assert ask(url, "/?token=guess").status == 200


@pytest.mark.parametrize("port", [-1, 70_000])
def test_a_port_that_does_not_exist_is_named(feed: Feed, port: int) -> None:
    with pytest.raises(GossamerError, match=f"cannot serve the page at 127.0.0.1:{port}.*give an address"):
        serve_page(feed, ("127.0.0.1", port), None).__enter__()


def test_a_port_that_is_taken_is_named(feed: Feed, url: str) -> None:
    port = urlsplit(url).port or 0
    with pytest.raises(GossamerError, match=f"cannot serve the page at 127.0.0.1:{port}.*in use.*port 0"):
        serve_page(feed, ("127.0.0.1", port), None).__enter__()


def test_an_address_of_another_machine_is_refused(feed: Feed) -> None:
    with pytest.raises(GossamerError, match=r"cannot serve the page at 192\.0\.2\.1:0"):
        serve_page(feed, ("192.0.2.1", 0), None).__enter__()


def test_an_ipv6_page_has_brackets_in_its_address(feed: Feed) -> None:
    if not socket.has_ipv6:
        pytest.skip("no IPv6")
    try:
        with serve_page(feed, ("::1", 0), None) as url:
            assert url.startswith("http://[::1]:")
            assert ask(url, "/").status == 200
    except GossamerError:
        pytest.skip("this machine has no IPv6 loopback address")
