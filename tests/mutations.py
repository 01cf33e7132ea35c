"""Seeded mutations of good files, and what a reader must do with each: load it, or say in one line what is wrong."""

import random
import signal
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from gossamer.errors import GossamerError, GossamerWarning

WORDS = (
    *(
        b"",
        b"\x00",
        b"\xff\xfe",
        b"\xed\xa0\x80",
        b'"',
        b"'",
        b'"""',
        b"\n",
        b"\r",
        b",",
        b",,",
        b".",
        b"..",
        b"=",
        b"#",
    ),
    *(b"[", b"]", b"[[", b"{", b"}", b"-1", b"0", b"1e999", b"nan", b"-inf", b"9" * 5000, b"0x" + b"f" * 5000, b"1.5"),
    *(b"true", b"[]", b"{}", b"2020-01-01", b"a.b.c", b"[" * 300, b"a." * 300, b"a" * 200_000, b"\\", b"\\u0000"),
)
EXTREMES = (0, 1, -1, 2**31, 2**62, -(2**63), 0.5, 1e300, -1e300, float("nan"), float("inf"))


@contextmanager
def no_longer_than(seconds: float) -> Iterator[None]:
    """End a test whose readers do not come back; far more than they should need on a busy machine."""

    def stop(number: int, frame: Any) -> None:
        raise TimeoutError(f"not done after {seconds} s")

    before = signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def loads(read: Callable[[], Any], source: Path, lines: int = 1) -> bool:
    """Whether it loads; if not, a GossamerError must name the file in so many lines at most."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", GossamerWarning)
            read()
    except GossamerError as error:
        message = str(error)
    else:
        return True
    assert source.name in message
    assert len(message.splitlines()) <= lines
    assert len(message) < 4000 * lines
    return False


def mutate(content: bytes, draw: random.Random) -> bytes:
    """One to three changes: bits, words, cuts, repetitions."""
    for _ in range(draw.choice((1, 1, 1, 2, 3))):
        i = draw.randrange(len(content) + 1)
        j = min(len(content), i + draw.choice((0, 1, 2, 8, 64)))
        match draw.randrange(6):
            case 0 if i < len(content):
                content = content[:i] + bytes([content[i] ^ 1 << draw.randrange(8)]) + content[i + 1 :]
            case 1:
                content = content[:i]
            case 2:
                content = content[:i] + content[j:]
            case 3:
                content = content[:j] + content[i:j] * draw.choice((1, 3)) + content[j:]
            case _:
                content = content[:i] + draw.choice(WORDS) + content[j:]
    return content


def mutate_lines(content: bytes, draw: random.Random) -> bytes:
    """A line out, twice, or elsewhere, or one of its cells and values replaced by a word."""
    lines = content.split(b"\n")
    i, j = draw.randrange(len(lines)), draw.randrange(len(lines))
    match draw.randrange(4):
        case 0:
            del lines[i]
        case 1:
            lines.insert(j, lines[i])
        case 2:
            lines[i], lines[j] = lines[j], lines[i]
        case _:
            mark = draw.choice((b",", b"="))
            cells = lines[i].split(mark)
            cells[draw.randrange(len(cells))] = draw.choice(WORDS)
            lines[i] = mark.join(cells)
    return b"\n".join(lines)


def mutate_array(array: Any, draw: random.Random) -> Any:
    """Another element type, another shape, an extreme entry or other entries."""
    array = np.array(array)
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        match draw.randrange(6):
            case 0:
                kind = draw.choice(("?", "i1", "u1", "<i2", ">i4", "u8", "f2", ">f8", "U3", "S3", "c8", "g", "O"))
                return array if array.dtype.kind == "U" and kind[-1] not in "O3" else array.astype(kind)
            case 1:
                return array.reshape(draw.choice(((-1,), (1, -1), (-1, 1), (*array.shape, 1, 1))))
            case 2:
                return (
                    array.reshape(-1)[: draw.randrange(array.size + 1)]
                    if draw.random() < 0.7
                    else array[..., None][0:0]
                )
            case 3:
                return (
                    np.asfortranarray(np.concatenate([array.reshape(-1)] * 2)) if draw.random() < 0.7 else np.array(3)
                )
            case _:
                changed = array.reshape(-1).copy()
                if changed.size and changed.dtype.kind in "iufb":
                    worst = np.array(draw.choice(EXTREMES))
                    changed[draw.randrange(changed.size)] = worst.astype(changed.dtype)
                return changed.reshape(array.shape)
