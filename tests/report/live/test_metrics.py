"""Prometheus metrics: what a scrape says of a view, read by Prometheus' own parser."""

import contextlib
import http.client
import re
import socket
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from prometheus_client.parser import text_string_to_metric_families
from report.live.views import make_view

from gossamer.errors import GossamerError
from gossamer.report.live.feed import Feed
from gossamer.report.live.metrics import MAX_REQUESTS, serve_metrics
from gossamer.report.live.server import serve_page

LIMIT = 30.0  # seconds; none of these tests waits so long unless it fails
LOOPBACK = ("127.0.0.1", 0)
Labels = frozenset[tuple[str, str]]
Samples = dict[tuple[str, Labels], float]


@pytest.fixture
def feed() -> Feed:
    return Feed()


@pytest.fixture
def url(feed: Feed) -> Iterator[str]:
    with serve_metrics(feed, LOOPBACK) as found:
        yield found


def request(url: str, path: str = "/metrics", method: str = "GET", **headers: str) -> tuple[int, str, str]:
    """Status, content type and body of an answer."""
    connection = http.client.HTTPConnection(urlsplit(url).netloc, timeout=LIMIT)
    try:
        connection.request(method, path, headers=headers)
        answer = connection.getresponse()
        return answer.status, answer.headers["Content-Type"], answer.read().decode()
    finally:
        connection.close()


def parse(text: str) -> Samples:
    found: Samples = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            key = (sample.name, frozenset(sample.labels.items()))
            assert key not in found
            found[key] = sample.value
    return found


def scrape(url: str) -> Samples:
    return parse(request(url)[2])


def named(**labels: str) -> Labels:
    return frozenset(labels.items())


def test_a_scrape_says_what_the_view_says(feed: Feed, url: str) -> None:
    feed.publish(make_view())
    found = scrape(url)
    alone = named()
    assert found["gossamer_run_state", named(state="training")] == 1
    assert found["gossamer_run_info", named(title="digits, 3 agents", score="accuracy")] == 1
    assert found["gossamer_run_step", alone] == 41
    assert found["gossamer_run_steps", alone] == 100
    assert found["gossamer_run_elapsed_seconds", alone] == 9.5
    assert found["gossamer_run_agents", alone] == 3
    assert found["gossamer_run_agents_missing", alone] == 1
    assert found["gossamer_evaluation_step", alone] == 40
    assert found["gossamer_evaluation_loss", alone] == 1.25
    assert found["gossamer_evaluation_score", named(mask="validation")] == 0.5
    assert ("gossamer_evaluation_score", named(mask="test")) not in found
    assert ("gossamer_evaluation_disagreement", alone) not in found
    assert found["gossamer_membership_number", alone] == 1
    assert found["gossamer_membership_agents", alone] == 2
    assert [found["gossamer_agent_member", named(agent=str(k))] for k in range(3)] == [1, 0, 1]
    assert [found["gossamer_agent_missing", named(agent=str(k))] for k in range(3)] == [0, 1, 0]
    assert found["gossamer_agent_state", named(agent="1", state="missing")] == 1
    assert found["gossamer_agent_step", named(agent="2")] == 42
    assert found["gossamer_agent_epoch", named(agent="2")] == 2
    assert found["gossamer_agent_loss", named(agent="2")] == 2.5
    assert found["gossamer_agent_waiting_seconds", named(agent="0")] == 1.5
    assert found["gossamer_agent_waiting_for", named(agent="0", neighbour="1")] == 1
    assert found["gossamer_agent_sent_bytes_total", named(agent="0", neighbour="2", phase="forward")] == 1002
    assert found["gossamer_agent_sent_bytes_total", named(agent="0", neighbour="2", phase="consensus")] == 7
    assert found["gossamer_agent_received_bytes_total", named(agent="2", neighbour="1")] == 901
    assert found["gossamer_agent_waited_seconds_total", named(agent="2", neighbour="1")] == 0.25
    assert found["gossamer_agent_refused_messages_total", named(agent="0", reason="signature")] == 4
    assert not [key for key in found if key[0] == "gossamer_agent_report_age_seconds"]


def test_ages_grow_while_nothing_is_published(feed: Feed, url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    feed.publish(make_view())
    monkeypatch.setattr(feed, "age", lambda: 100.0)
    found = scrape(url)
    assert found["gossamer_view_age_seconds", named()] == 100
    assert found["gossamer_agent_checkpoint_age_seconds", named(agent="2")] == 112


def test_an_agent_speaks_for_itself(feed: Feed, url: str) -> None:
    """Sums over all agents' endpoints count nothing twice; who is missing is said by everyone who knows."""
    feed.publish(make_view(own=0))
    agents = {dict(labels)["agent"] for name, labels in scrape(url) if name.startswith("gossamer_agent_sent")}
    assert agents == {"0"}
    assert {dict(labels)["agent"] for name, labels in scrape(url) if name == "gossamer_agent_missing"} == set("012")


def test_very_many_links_are_summed(feed: Feed, url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gossamer.report.live.metric_families.MAX_LINK_SERIES", 5)
    feed.publish(make_view())
    found = scrape(url)
    assert found["gossamer_agent_sent_bytes_total", named(agent="0", neighbour="all", phase="forward")] == 1001 + 1002
    assert found["gossamer_agent_sent_bytes_total", named(agent="0", neighbour="all", phase="consensus")] == 14
    assert found["gossamer_agent_received_bytes_total", named(agent="2", neighbour="all")] == 900 + 901
    assert found["gossamer_agent_waited_seconds_total", named(agent="1", neighbour="all")] == 0.5
    assert ("gossamer_agent_received_bytes_total", named(agent="2", neighbour="1")) not in found


@pytest.mark.parametrize("series", [1000, 1])
def test_waiting_is_left_out_where_nobody_waits(
    series: int, feed: Feed, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gossamer.report.live.metric_families.MAX_LINK_SERIES", series)
    view = make_view()
    for link in (link for one in view["agents"] for link in one["neighbours"]):
        link["waited"] = None
    feed.publish(view)
    names = {name for name, _ in scrape(url)}
    assert "gossamer_agent_received_bytes_total" in names
    assert "gossamer_agent_waited_seconds_total" not in names


def test_an_empty_feed_is_a_run_that_starts(url: str) -> None:
    found = scrape(url)
    assert {name for name, _ in found} == {"gossamer_build_info", "gossamer_run_state"}
    assert found["gossamer_run_state", named(state="starting")] == 1


@pytest.mark.parametrize(
    "hostile",
    [
        '"} 1\ngossamer_run_step 666',
        "back\\slash\\",
        'quote" # HELP x',
        "line\nbreak\r",
        "<script>",
        "\u2028é",
        "\ud800",
    ],
    ids=["sample", "backslash", "quote", "line", "markup", "unicode", "surrogate"],
)
def test_labels_are_text(hostile: str, feed: Feed, url: str) -> None:
    view = make_view()
    view["title"] = hostile
    view["agents"][0]["refused"] = {hostile: 3}
    feed.publish(view)
    found = scrape(url)
    shown = hostile.encode(errors="replace").decode()
    assert found["gossamer_run_info", named(title=shown, score="accuracy")] == 1
    assert found["gossamer_agent_refused_messages_total", named(agent="0", reason=shown)] == 3
    assert found["gossamer_run_step", named()] == 41
    assert len(found) == len(parse(request(url)[2]))


def test_every_family_is_explained_and_named_as_prometheus_asks(feed: Feed, url: str) -> None:
    feed.publish(make_view())
    families = list(text_string_to_metric_families(request(url)[2]))
    assert len({family.name for family in families}) == len(families)
    for family in families:
        assert family.documentation.endswith(".")
        assert family.name.startswith("gossamer_")
        assert all(sample.name.endswith("_total") == (family.type == "counter") for sample in family.samples)


def test_the_guide_names_every_metric(feed: Feed, url: str) -> None:
    view = make_view()
    view["agents"][0]["report_age"], view["evaluations"][-1]["disagreement"] = 1.0, 0.5
    feed.publish(view)
    guide = (Path(__file__).parents[3] / "docs" / "deployment.md").read_text()
    assert set(re.findall(r"\bgossamer_[a-z_]+", guide)) == {name for name, _ in scrape(url)}


def test_a_client_may_ask_for_some_families(feed: Feed, url: str) -> None:
    feed.publish(make_view())
    text = request(url, "/metrics?name[]=gossamer_run_step&name[]=gossamer_agent_sent_bytes_total")[2]
    assert {name for name, _ in parse(text)} == {"gossamer_run_step", "gossamer_agent_sent_bytes_total"}


def test_who_asks_too_often_gets_the_same_text(feed: Feed, url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gossamer.report.live.metrics.rest_after", lambda work, share: LIMIT)
    feed.publish(make_view())
    first = request(url)
    feed.publish(make_view(own=0))
    assert request(url) == first
    monkeypatch.undo()
    assert "gossamer_agent_loss" in request(url, "/metrics?name[]=gossamer_agent_loss")[2]


def test_there_is_nothing_but_metrics_to_get(url: str) -> None:
    code, kind, _ = request(url)
    assert code == 200
    assert kind == "text/plain; version=0.0.4; charset=utf-8"
    code, kind, text = request(url, "/")
    assert (code, kind, text.count("\n")) == (200, "text/plain; charset=utf-8", 1)
    assert "/metrics" in text
    assert request(url, "/../etc/passwd")[0] == 404
    assert [request(url, method=method)[0] for method in ("POST", "PUT", "DELETE", "HEAD")] == [405] * 4


def test_a_browser_that_is_misled_here_by_a_foreign_name_is_refused(url: str) -> None:
    assert request(url, Host="foreign.example:9100")[0] == 421
    assert [request(url, Host=name)[0] for name in ("localhost:9100", "127.0.0.1:9100", "[::1]:9100")] == [200] * 3


def test_a_port_in_use_is_named(url: str) -> None:
    port = urlsplit(url).port
    assert port is not None
    with (
        pytest.raises(GossamerError, match=f"127.0.0.1:{port}: Address already in use"),
        serve_metrics(Feed(), ("127.0.0.1", port)),
    ):
        pass


@pytest.mark.parametrize("address", [("192.0.2.1", 0), ("127.0.0.1", 70000)], ids=["foreign", "port"])
def test_an_address_that_is_none_of_this_machine_is_refused(address: tuple[str, int]) -> None:
    with pytest.raises(GossamerError, match="cannot serve the metrics at"), serve_metrics(Feed(), address):
        pass


def test_the_port_is_free_again_and_no_thread_is_left() -> None:
    before = threading.active_count()
    with serve_metrics(Feed(), LOOPBACK) as url:
        assert request(url)[0] == 200
        port = urlsplit(url).port
    assert port is not None
    with serve_metrics(Feed(), ("127.0.0.1", port)):
        pass
    assert threading.active_count() == before


def test_without_the_library_the_remedy_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "prometheus_client", None)
    with pytest.raises(GossamerError, match=r"pip install 'gossamer\[metrics\]'"), serve_metrics(Feed(), LOOPBACK):
        pass


def test_connections_without_an_end_keep_no_scraper_out(feed: Feed, url: str) -> None:
    """Of connections that send no whole request at most MAX_REQUESTS are held, and the oldest gives way."""
    place = ("127.0.0.1", urlsplit(url).port or 0)
    idle = [socket.create_connection(place, LIMIT) for _ in range(2 * MAX_REQUESTS)]
    for one in idle[MAX_REQUESTS:]:
        one.sendall(b"GET /metrics HTTP/1.1\r\nX: ")
    feed.publish(make_view())
    assert scrape(url)
    assert [one.recv(1) for one in idle[: MAX_REQUESTS + 1]] == (MAX_REQUESTS + 1) * [b""]
    for one in idle:
        one.close()


def test_a_request_that_trickles_in_is_given_up(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The limit is that of the whole request, however often a byte of it comes."""
    monkeypatch.setattr("gossamer.report.live.request_handler.REQUEST_SECONDS", 0.2)
    with socket.create_connection(("127.0.0.1", urlsplit(url).port or 0), LIMIT) as slow:
        slow.settimeout(0.02)
        received = b""
        for _ in range(int(LIMIT / 0.02)):
            slow.sendall(b"a")
            with contextlib.suppress(TimeoutError):
                received = slow.recv(100)
                break
        assert received.startswith(b"HTTP/1.1 431")


@pytest.mark.parametrize(
    ("head", "status"),
    [
        (b"GET http://[ HTTP/1.1\r\nHost: localhost", b"400"),
        (b"GET /metrics HTTP/1.1", b"421"),
        (b"GET /metrics HTTP/1.1\r\nHost: localhost\r\nHost: foreign.example", b"421"),
        (b"\x16\x03\x01\x02\x00\x01", b"400"),
    ],
)
def test_a_malformed_request_has_a_short_answer(
    head: bytes, status: bytes, url: str, capfd: pytest.CaptureFixture[str]
) -> None:
    with socket.create_connection(("127.0.0.1", urlsplit(url).port or 0), LIMIT) as connection:
        connection.sendall(head + b"\r\n\r\n")
        answer = b"".join(iter(lambda: connection.recv(4096), b""))
    assert answer.startswith(b"HTTP/1.1 " + status)
    assert b"X-Content-Type-Options: nosniff" in answer
    assert answer.partition(b"\r\n\r\n")[2].count(b"\n") == 1
    assert capfd.readouterr() == ("", "")


def test_every_address_of_the_machine_is_shown_by_its_name(feed: Feed, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("socket.gethostname", lambda: "worker")
    with serve_metrics(feed, ("0.0.0.0", 0)) as found:
        assert found == f"http://worker:{urlsplit(found).port}/metrics"
        local = f"http://127.0.0.1:{urlsplit(found).port}"
        assert request(local, Host="worker:9100")[0] == 200
        assert request(local, Host="foreign.example")[0] == 421


def test_a_name_with_an_ipv6_address_alone_can_be_served(feed: Feed, monkeypatch: pytest.MonkeyPatch) -> None:
    if not socket.has_ipv6:
        pytest.skip("no IPv6")
    monkeypatch.setattr(
        "socket.getaddrinfo",
        lambda host, port, **_: [(socket.AF_INET6, socket.SOCK_STREAM, 6, "", ("::1", port, 0, 0))],
    )
    try:
        with serve_metrics(feed, ("six", 0)) as metrics, serve_page(feed, ("six", 0), None) as page:
            assert metrics.startswith("http://six:")
            assert page.startswith("http://six:")
    except GossamerError:
        pytest.skip("this machine has no IPv6 loopback address")
