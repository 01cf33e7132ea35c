"""Files are found in GOSSAMER_DATA, then in the cache, then downloaded whole and verified, or not at all."""

import hashlib
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from gossamer.data import fetch
from gossamer.data.fetch import Source, download, git_blob_id, locate
from gossamer.errors import GossamerError

CONTENT = bytes(range(256)) * 1000
BLOB = hashlib.sha1(b"blob 256000\0" + CONTENT).hexdigest()


class Server(ThreadingHTTPServer):
    """A server of CONTENT at every path, with the fault that a test switches on; records the Range headers."""

    daemon_threads = True
    ranges: list[str | None]
    content = CONTENT
    honours_range = True
    states_length = True
    status = 0  # answer with this error
    stop_after: int | None = None  # close the connection after so many bytes of the file

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.ranges = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}/file"


class Handler(BaseHTTPRequestHandler):
    server: Server
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        server, asked = self.server, self.headers.get("Range")
        server.ranges.append(asked)
        self.close_connection = True
        start = int(asked.removeprefix("bytes=").rstrip("-")) if asked and server.honours_range else 0
        if server.status or start >= len(server.content):
            self.send_response(server.status or 416)
            self.send_header("Content-Length", "0")
            self.end_headers()
            return
        self.send_response(206 if start else 200)
        if start:
            self.send_header("Content-Range", f"bytes {start}-{len(server.content) - 1}/{len(server.content)}")
        body = server.content[start : server.stop_after]
        if server.states_length:
            self.send_header("Content-Length", str(len(server.content) - start))
            self.end_headers()
            self.wfile.write(body)
            return
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        self.wfile.write(b"%x\r\n%s\r\n" % (len(body), body) + (b"0\r\n\r\n" if server.stop_after is None else b""))

    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture
def server() -> Iterator[Server]:
    with Server() as running:
        thread = threading.Thread(target=running.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield running
        running.shutdown()
        thread.join()


@pytest.fixture
def target(tmp_path: Path) -> Path:
    return tmp_path / "cache" / "citation" / "file.npz"


def files(target: Path) -> list[str]:
    return sorted(path.name for path in target.parent.iterdir())


def test_git_blob_id(tmp_path: Path) -> None:
    (tmp_path / "hello").write_bytes(b"hello\n")
    assert git_blob_id(tmp_path / "hello") == "ce013625030ba8dba906f756967f9e9ca394464a"


def test_download_makes_the_folder_and_the_file(server: Server, target: Path) -> None:
    download(server.url, target, BLOB)
    assert target.read_bytes() == CONTENT
    assert files(target) == ["file.npz"]
    assert server.ranges == [None]


def test_download_without_a_known_blob_id(server: Server, target: Path) -> None:
    download(server.url, target, None)
    assert target.read_bytes() == CONTENT


def test_a_wrong_blob_id_is_refused_and_leaves_nothing(server: Server, target: Path) -> None:
    with pytest.raises(OSError, match=f"git blob id {BLOB}, expected {'0' * 40}"):
        download(server.url, target, "0" * 40)
    assert files(target) == []


def test_an_error_status_is_named(server: Server, target: Path) -> None:
    server.status = 404
    with pytest.raises(OSError, match="HTTP status 404"):
        download(server.url, target, BLOB)
    assert files(target) == []


def test_an_interrupted_download_leaves_no_target_and_goes_on(server: Server, target: Path) -> None:
    server.stop_after = 100_000
    with pytest.raises(OSError, match="ended after 100000 of 256000 bytes"):
        download(server.url, target, BLOB)
    assert files(target) == ["file.npz.part"]
    server.stop_after = None
    download(server.url, target, BLOB)
    assert server.ranges == [None, "bytes=100000-"]
    assert target.read_bytes() == CONTENT
    assert files(target) == ["file.npz"]


def test_an_interrupted_chunked_download_goes_on(server: Server, target: Path) -> None:
    server.states_length = False
    server.stop_after = 100_000
    with pytest.raises(OSError, match="ended"):
        download(server.url, target, BLOB)
    assert not target.exists()
    server.stop_after = None
    download(server.url, target, BLOB)
    assert target.read_bytes() == CONTENT


def test_a_download_without_a_stated_length(server: Server, target: Path) -> None:
    server.states_length = False
    seen: list[tuple[int, int]] = []
    download(server.url, target, BLOB, lambda have, total: seen.append((have, total)))
    assert target.read_bytes() == CONTENT
    assert seen[-1] == (256000, 0)


def test_a_resumed_download_without_a_stated_length(server: Server, target: Path) -> None:
    target.parent.mkdir(parents=True)
    target.with_name("file.npz.part").write_bytes(CONTENT[:1000])
    server.states_length = False
    download(server.url, target, BLOB)
    assert server.ranges == ["bytes=1000-"]
    assert target.read_bytes() == CONTENT


def test_a_server_that_ignores_range_starts_the_file_afresh(server: Server, target: Path) -> None:
    target.parent.mkdir(parents=True)
    target.with_name("file.npz.part").write_bytes(b"x" * 1000)
    server.honours_range = False
    download(server.url, target, BLOB)
    assert server.ranges == ["bytes=1000-"]
    assert target.read_bytes() == CONTENT


@pytest.mark.parametrize("stale", [CONTENT, b"x" * 300_000])
def test_a_part_that_is_not_shorter_than_the_file_starts_afresh(server: Server, target: Path, stale: bytes) -> None:
    target.parent.mkdir(parents=True)
    target.with_name("file.npz.part").write_bytes(stale)
    download(server.url, target, BLOB)
    assert server.ranges == [f"bytes={len(stale)}-", None]
    assert target.read_bytes() == CONTENT
    assert files(target) == ["file.npz"]


def test_a_part_of_another_file_is_refused_once(server: Server, target: Path) -> None:
    target.parent.mkdir(parents=True)
    target.with_name("file.npz.part").write_bytes(b"x" * 1000)
    with pytest.raises(OSError, match="git blob id"):
        download(server.url, target, BLOB)
    assert files(target) == []
    download(server.url, target, BLOB)
    assert target.read_bytes() == CONTENT


@pytest.mark.parametrize("have", [0, 1000])
def test_progress_counts_all_bytes(server: Server, target: Path, have: int) -> None:
    target.parent.mkdir(parents=True)
    if have:
        target.with_name("file.npz.part").write_bytes(CONTENT[:have])
    seen: list[tuple[int, int]] = []
    download(server.url, target, BLOB, lambda done, total: seen.append((done, total)))
    done = [d for d, _ in seen]
    assert done[0] > have
    assert done == sorted(set(done))
    assert done[-1] == len(CONTENT)
    assert {total for _, total in seen} == {len(CONTENT)}


@pytest.fixture
def places(server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Path, Path]:
    """GOSSAMER_DATA's file and the cache's, neither there yet; the only source is the local server."""
    monkeypatch.setattr(fetch, "SOURCES", {"small": Source("citation/small.npz", server.url, BLOB, (1, 1, 1, 1))})
    monkeypatch.setenv("GOSSAMER_DATA", str(tmp_path / "data"))
    monkeypatch.setenv("GOSSAMER_CACHE", str(tmp_path / "cache"))
    return tmp_path / "data/citation/small.npz", tmp_path / "cache/citation/small.npz"


def put(path: Path) -> None:
    path.parent.mkdir(parents=True)
    path.write_bytes(b"here")


def test_locate_prefers_gossamer_data_to_the_cache(server: Server, places: tuple[Path, Path]) -> None:
    data, cached = places
    put(data)
    put(cached)
    assert locate("small") == data
    assert server.ranges == []


def test_locate_prefers_the_cache_to_a_download(server: Server, places: tuple[Path, Path]) -> None:
    put(places[1])
    assert locate("small") == places[1]
    assert server.ranges == []


def test_locate_downloads_once_into_the_cache(server: Server, places: tuple[Path, Path]) -> None:
    seen: list[int] = []
    assert locate("small", lambda have, _: seen.append(have)) == places[1]
    assert locate("small") == places[1]
    assert places[1].read_bytes() == CONTENT
    assert not places[0].exists()
    assert server.ranges == [None]
    assert seen[-1] == len(CONTENT)


@pytest.mark.usefixtures("places")
def test_locate_without_variables_uses_the_users_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("GOSSAMER_DATA")
    monkeypatch.delenv("GOSSAMER_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    assert locate("small") == tmp_path / "xdg/gossamer/citation/small.npz"
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    assert locate("small") == tmp_path / "home/.cache/gossamer/citation/small.npz"


def test_locate_says_where_it_looked_when_the_download_fails(server: Server, places: tuple[Path, Path]) -> None:
    server.status = 503
    with pytest.raises(GossamerError, match=r"'small' is not in GOSSAMER_DATA .*HTTP status 503") as failure:
        locate("small")
    assert str(places[1]) in str(failure.value)
    assert server.url in str(failure.value)
