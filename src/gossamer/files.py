"""Files: written whole or not at all, read within bounds, private, and locked against a second writer."""

import errno
import os
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

from gossamer.errors import FileError, GossamerError
from gossamer.machine import as_size

PRIVATE = 0o600  # of a file with an agent's data, weights or key: its owner alone
ALL_MAY_READ = 0o666  # further reduced by the process's umask
MAX_SECRET = 1000  # bytes of a file with a key
LOCK = ".lock"
FILE_CHUNK = 1 << 16  # bytes
DESCRIPTOR_TIMEOUT = 15.0  # seconds after which a process that is flooded with connections has descriptors again
Opened = TypeVar("Opened")


def remove_unfinished(folder: Path) -> None:
    """Remove what `write_atomically` left when its process was killed; no other process may use the folder."""
    for path in folder.rglob(".*"):
        if path.suffix[1:].isdigit():
            path.unlink(missing_ok=True)


def wait_for_descriptor(make: Callable[[], Opened], seconds: float = DESCRIPTOR_TIMEOUT) -> Opened:
    """Call `make`, which opens a file; wait while all descriptors are in use, as by a flood of connections, which are
    closed in time."""
    deadline = time.monotonic() + seconds
    while True:
        try:
            return make()
        except OSError as error:
            if error.errno not in (errno.EMFILE, errno.ENFILE) or time.monotonic() > deadline:
                raise
            time.sleep(0.01)


def write_atomically(
    path: Path, content: bytes, mode: int = ALL_MAY_READ, previous: Path | None = None, durable: bool = True
) -> None:
    """Write a temporary file beside `path`, flush it to the disk and rename it.

    A file that was there becomes `previous`. `mode` is further reduced by the process's umask. What need not survive a
    power cut is not `durable`, and not flushed.
    """
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        temporary.unlink(missing_ok=True)  # of a killed process with this number, and perhaps with another mode
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL
        with os.fdopen(wait_for_descriptor(lambda: os.open(temporary, flags, mode)), "wb") as file:
            file.write(content)
            file.flush()
            if durable:
                os.fsync(file.fileno())
        if previous is not None and path.exists():
            path.replace(previous)
        temporary.replace(path)
        if durable:
            _flush_folder(path.parent)
    finally:
        temporary.unlink(missing_ok=True)


def _flush_folder(folder: Path) -> None:
    """Flush a folder to the disk: else a power cut may undo a renaming in it. Windows cannot open a folder."""
    if os.name != "posix":
        return
    descriptor = wait_for_descriptor(lambda: os.open(folder, os.O_RDONLY))
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def read_bytes(path: Path, most: int) -> bytes:
    """The content of a file of at most `most` bytes; an OSError if there is none, a FileError if it is no such file."""
    require_regular(path)
    content = bytearray()
    with path.open("rb") as file:
        while len(content) <= most and (chunk := file.read(FILE_CHUNK)):
            content += chunk
    if len(content) > most:
        raise FileError(path, f"it has more than {as_size(most)}, the most that is read")
    return bytes(content)


def read_text(path: Path, most: int) -> str:
    """The text of a user's file of at most `most` bytes in UTF-8, without a byte-order mark, with \\n as line ends."""
    try:
        content = read_bytes(path, most)
    except FileError:
        raise
    except (OSError, ValueError) as error:
        raise FileError(path, getattr(error, "strerror", None) or str(error)) from None
    try:
        return content.decode("utf-8-sig").replace("\r\n", "\n").replace("\r", "\n")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise FileError(path, f"line {line} is not UTF-8 text ({error.reason})") from None


def require_regular(path: Path) -> None:
    """Refuse what is there and no file: a pipe or a device could be read for ever."""
    if path.exists() and not path.is_file():
        raise FileError(path, "expected a file, found a folder, a pipe or a device")


def set_aside(path: Path) -> Path:
    """Rename a damaged file, so that nobody reads it again and somebody can look at it."""
    aside = path.with_name(f"{path.name}.damaged")
    path.replace(aside)
    return aside


def make_private(folder: Path) -> None:
    """Make a folder, or restrict one, so that its owner alone can enter it."""
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    folder.chmod(0o700)


def check_private(path: Path) -> None:
    """Refuse a secret that others can read. Only the modes of POSIX say so; Windows has access lists instead."""
    if os.name == "posix" and path.stat().st_mode & 0o077:
        raise GossamerError(f"{path} can be read by others; do: chmod 600 {path}")


@contextmanager
def lock_folder(folder: Path, work: str) -> Iterator[None]:
    """Hold the lock of a folder, so that no second process writes over this one's files.

    `work` is what this process does, for the error of the second. The system frees the lock when the process ends,
    however it does. The same thread may take it again.
    """
    from filelock import FileLock, Timeout  # here, because commands that lock nothing need not wait for it

    path = folder / LOCK
    lock = FileLock(path, timeout=0, mode=PRIVATE, is_singleton=True)
    try:
        with lock:
            path.write_text(f"process {os.getpid()} on {socket.gethostname()}\n")
            yield
    except Timeout:
        raise GossamerError(
            f"{_holder(path)} {work} already; end it first, or wait for it (its lock is {path})"
        ) from None


def is_in_use(folder: Path) -> bool:
    """Return whether the process that has last locked a folder still runs, as far as this machine can tell. The lock
    itself is not tried: a process that starts at this moment would find it taken."""
    words = _holder(folder / LOCK).split()
    if os.name != "posix" or len(words) != 4 or words[3] != socket.gethostname() or not words[1].isdigit():
        return False
    try:
        os.kill(int(words[1]), 0)
    except ProcessLookupError:
        return False
    except PermissionError:  # it is another user's
        return True
    return True


def _holder(path: Path) -> str:
    try:
        return read_bytes(path, 1000).decode().strip() or "another process"
    except (OSError, ValueError):
        return "another process"
