"""Files of known data sets: in GOSSAMER_DATA, then in the cache, then by a verified download."""

import hashlib
import http.client
import os
import urllib.error
import urllib.request
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from gossamer.errors import GossamerError

DownloadProgress = Callable[[int, int], None]  # bytes so far, bytes in all (0: unknown)
DOWNLOAD_CHUNK = 1 << 16


@dataclass(frozen=True)
class Source:
    """A data set's file: its path below GOSSAMER_DATA, its published address, and the expected content."""

    path: str
    url: str
    blob: str | None  # git blob id of the published file; None: the sizes alone are checked
    sizes: tuple[int, int, int, int]  # vertices, edges, features, classes

    def check_sizes(self, name: str, found: tuple[int | None, ...]) -> None:
        """Require the vertices, edges, features and classes of the published data set."""
        if found != self.sizes:
            raise GossamerError(
                f"{name} should have {self.sizes} vertices, edges, features and classes, "
                f"the file has {found}; delete it and load it again"
            )


_PPNP = "https://raw.githubusercontent.com/gasteigerjo/ppnp/master/ppnp/data/"
SOURCES = {
    "cora": Source(
        "citation/cora_ml.npz", _PPNP + "cora_ml.npz", "f70cf83ac06ed70900e94c042ff32bbc8ceca086", (2810, 7981, 2879, 7)
    ),
    "citeseer": Source(
        "citation/citeseer.npz",
        _PPNP + "citeseer.npz",
        "184dd894a26157601bd1d17b99d6ec4561c9de10",
        (2110, 3668, 3703, 6),
    ),
    "pubmed": Source(
        "citation/pubmed.npz", _PPNP + "pubmed.npz", "e7dbba82dd4aaeff5a0e59b23d58158ced3ec42c", (19717, 44324, 500, 3)
    ),
    "coauthor-physics": Source(
        "citation/coauthor_physics.npz",
        "https://raw.githubusercontent.com/shchur/gnn-benchmark/master/data/npz/ms_academic_phy.npz",
        None,
        (34493, 247962, 8415, 5),
    ),
}


def locate(name: str, progress: DownloadProgress | None = None) -> Path:
    """Return the path of a citation data set's file, downloaded into the cache if necessary."""
    source = SOURCES[name]
    return find_or_download(name, source.path, source.url, source.blob, progress)


def find_or_download(
    name: str, path: str, url: str | None, blob: str | None, progress: DownloadProgress | None = None
) -> Path:
    """Return the file at `path` below GOSSAMER_DATA or the cache, else download it from `url`, if it is published."""
    there = find_stored(path)
    if there is not None:
        return there
    given, cached = os.environ.get("GOSSAMER_DATA"), _cache() / path
    looked = f"the data set {name!r} is not in GOSSAMER_DATA ({given or 'not set'}) nor in {cached}"
    if url is None:
        raise GossamerError(
            f"{looked}, and it has no published download; put the file there or at {path} below GOSSAMER_DATA"
        )
    try:
        download(url, cached, blob, progress)
    except OSError as error:
        raise GossamerError(
            f"{looked}, and the download of {url} failed: {error}. Put the file there, or try again online"
        ) from None
    return cached


def find_stored(path: str) -> Path | None:
    """Return the file at `path` below GOSSAMER_DATA or the cache, or None."""
    given = os.environ.get("GOSSAMER_DATA")
    places = [Path(given)] if given else []
    return next((place / path for place in (*places, _cache()) if (place / path).is_file()), None)


def download(url: str, target: Path, blob: str | None, progress: DownloadProgress | None = None) -> None:
    """Download `url` to `target`, whole and verified or not at all.

    The bytes go to a `.part` file first, which an interrupted download resumes; it is renamed once its git blob id,
    sha1("blob <size>\\0" + bytes), is right.
    """
    target.parent.mkdir(parents=True, exist_ok=True)
    part = target.with_name(target.name + ".part")
    if blob is None:
        part.unlink(missing_ok=True)  # a part of another version could not be detected
    have = part.stat().st_size if part.is_file() else 0
    request = urllib.request.Request(url, headers={"Range": f"bytes={have}-"} if have else {})
    try:
        response = urllib.request.urlopen(request, timeout=60)
    except urllib.error.HTTPError as error:
        error.close()
        if have and error.code == 416:  # nothing follows: the part is whole, or of another file
            part.unlink()
            return download(url, target, blob, progress)
        raise OSError(f"HTTP status {error.code}") from None
    with response:
        goes_on = response.status == 206
        have = have if goes_on else 0
        length = int(response.headers.get("Content-Length") or 0)
        total = have + length if length else 0
        with part.open("ab" if goes_on else "wb") as file:
            try:
                while chunk := response.read(DOWNLOAD_CHUNK):
                    file.write(chunk)
                    have += len(chunk)
                    if progress:
                        progress(have, total)
            except http.client.HTTPException:
                raise OSError(f"the connection ended after {have} bytes; run the command again to go on") from None
    if total and have != total:
        raise OSError(f"the connection ended after {have} of {total} bytes; run the command again to go on")
    found = git_blob_id(part)
    if blob is not None and found != blob:
        part.unlink()
        raise OSError(f"the file that arrived has the git blob id {found}, expected {blob}")
    part.replace(target)


def git_blob_id(path: Path) -> str:
    """Git blob id of a file: sha1 of "blob <size>\\0" and the bytes."""
    content = path.read_bytes()
    return hashlib.sha1(b"blob %d\0" % len(content) + content, usedforsecurity=False).hexdigest()


def _cache() -> Path:
    given = os.environ.get("GOSSAMER_CACHE")
    if given:
        return Path(given)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "gossamer"
