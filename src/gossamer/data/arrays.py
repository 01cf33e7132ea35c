"""Reader of untrusted .npz and .npy files: the directory and the headers are checked before any array is read.

Only the requested members of an .npz file are opened. Each must be plain (stored or deflated, not encrypted) and hold
numbers, booleans or text (never objects), in exactly the size that its header announces. Memory is bounded by the file:
a stored member is as large as its part of the file, a deflated one at most 1032 times as large (the limit of deflate),
the parts together are no larger than the file, and four times the size of the arrays must be available.
"""

import math
import re
import struct
import zipfile
import zlib
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from gossamer.data.checks import check_csr
from gossamer.errors import FileError, GossamerError, one_line, shown
from gossamer.machine import as_size, available_memory

MAX_HEADER = 10_000  # characters, as in numpy
MAX_RATIO = 1032  # of deflate: a match of 258 bytes in 2 bits
MAX_AXES = 32
COPIES = 4  # of the arrays that must fit in memory: reading and checking make some
ARRAY_CHUNK = 1 << 18
ENCRYPTED = 0x1 | 0x40
PLAIN_TYPES = re.compile(r"[<>|=]?(?:\?|b1|[iu][1248]|f[248]|[SU][0-9]{1,7})")
FIELDS = {
    "descr": re.compile(r"""['"]descr['"]\s*:\s*['"]([^'"]*)['"]"""),
    "fortran_order": re.compile(r"""['"]fortran_order['"]\s*:\s*(True|False)"""),
    "shape": re.compile(r"""['"]shape['"]\s*:\s*\(([0-9L,\s]*)\)"""),
}
NOTHING_ELSE = re.compile(r"\s*\{[\s,]*\}\s*")
CSR = ("data", "indices", "indptr", "shape")


@dataclass(frozen=True)
class Header:
    """Header of a .npy file."""

    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    fortran_order: bool
    length: int  # bytes in front of the entries

    @property
    def count(self) -> int:
        return math.prod(self.shape)

    @property
    def size(self) -> int:
        """Bytes of the header and the entries."""
        return self.length + self.count * self.dtype.itemsize


class Arrays:
    """Arrays of an open .npz file by name."""

    def __init__(self, path: Path, file: zipfile.ZipFile, length: int) -> None:
        self._path, self._file, self._length = path, file, length
        names = [info.filename for info in file.infolist()]
        self.keys = frozenset(name.removesuffix(".npy") for name in names if name.endswith(".npy"))
        self._twice = {name for name, count in Counter(names).items() if count > 1}

    def read(self, names: Iterable[str]) -> dict[str, NDArray[Any]]:
        """Read arrays by name; all headers are checked before the first array is read."""
        headers = {name: self._check_member(name) for name in names}
        parts = sum(self._file.getinfo(f"{name}.npy").compress_size for name in headers)
        if parts > self._length:
            raise FileError(self._path, f"its arrays take {as_size(parts)} of a file of {as_size(self._length)}")
        _check_memory(self._path, headers.values())
        found = {}
        for name, header in headers.items():
            with self._file.open(f"{name}.npy") as member:
                member.read(header.length)
                found[name] = _entries(self._path, name, member, header)
        return found

    def _check_member(self, name: str) -> Header:
        member = f"{name}.npy"
        if name not in self.keys:
            raise FileError(self._path, f"it has no array {name}")
        info = self._file.getinfo(member)
        most = info.compress_size * (MAX_RATIO if info.compress_type == zipfile.ZIP_DEFLATED else 1)
        for wrong, what in (
            (member in self._twice, "stands in it twice"),
            (info.flag_bits & ENCRYPTED, "is encrypted"),
            (
                info.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED),
                f"has the compression method {info.compress_type}; write it with numpy.savez or savez_compressed",
            ),
            (info.file_size > most, f"announces {info.file_size} bytes, which {info.compress_size} cannot hold"),
        ):
            if wrong:
                raise FileError(self._path, f"the array {name} {what}")
        with self._file.open(info) as file:
            header = _header(self._path, name, file)
        _check_size(self._path, name, header, info.file_size)
        return header


@contextmanager
def open_arrays(path: Path) -> Iterator[Arrays]:
    """Open an .npz file for reading; any fault of the file raises a FileError."""
    with _file_errors(path), path.open("rb") as raw, zipfile.ZipFile(raw) as file:
        yield Arrays(path, file, raw.seek(0, 2))


def read_array(path: Path) -> NDArray[Any]:
    """Read the array of an .npy file."""
    with _file_errors(path), path.open("rb") as file:
        size = file.seek(0, 2)
        file.seek(0)
        header = _header(path, path.name, file)
        _check_size(path, path.name, header, size)
        _check_memory(path, [header])
        return _entries(path, path.name, file, header)


def make_csr(path: Path, name: str, arrays: dict[str, NDArray[Any]], dtype: Any = None) -> Any:
    """Make a CSR matrix of its parts `data`, `indices`, `indptr` and `shape`, after checking them."""
    data, indices, indptr, shape = (arrays[part] for part in CSR)
    reason = None
    if data.dtype.kind not in "biuf" or any(part.dtype.kind not in "iu" for part in (indices, indptr, shape)):
        reason = "expected numbers as data and whole numbers as indices, indptr and shape"
    elif any(part.ndim != 1 for part in (data, indices, indptr, shape)) or len(shape) != 2:
        reason = "expected lists of numbers and a shape of two"
    elif not (0 <= shape[0] == len(indptr) - 1 and 0 <= shape[1] < 2**31 and len(data) == len(indices)):
        reason = (
            f"{len(data)} entries, {len(indices)} indices and {len(indptr)} row pointers are no CSR matrix of the "
            f"shape {shape.tolist()}"
        )
    if reason is not None:
        raise FileError(path, f"the sparse {name} do not fit together: {reason}")
    try:
        sides = (int(shape[0]), int(shape[1]))
        matrix = sparse.csr_array((data if dtype is None else _cast(data, dtype), indices, indptr), sides)
        check_csr(matrix, name)
    except GossamerError as error:
        raise FileError(path, str(error)) from None
    except (ValueError, TypeError, OverflowError) as error:
        raise FileError(path, f"the sparse {name} do not fit together: {one_line(error)}") from None
    return matrix


def _cast(data: NDArray[Any], dtype: Any) -> NDArray[Any]:
    with np.errstate(over="ignore"):  # overflow becomes infinite, which checks refuse
        return data.astype(dtype)


@contextmanager
def _file_errors(path: Path) -> Iterator[None]:
    """Turn any fault of a file into a FileError."""
    try:
        yield
    except zipfile.BadZipFile as error:
        raise FileError(path, f"it is not a whole .npz file ({one_line(error)}); write it with numpy.savez") from None
    except MemoryError:
        raise FileError(path, "its arrays do not fit in memory") from None
    except GossamerError:
        raise
    except OSError as error:
        raise FileError(path, error.strerror or str(error)) from None
    except (EOFError, KeyError, NotImplementedError, RuntimeError, ValueError, struct.error, zlib.error) as e:
        raise FileError(path, f"it is damaged: {one_line(e)}") from None


def _header(path: Path, name: str, file: IO[bytes]) -> Header:
    start = file.read(12)
    wide = start[6:8] in (b"\2\0", b"\3\0")
    if start[:6] != b"\x93NUMPY" or len(start) < 12 or not (wide or start[6:8] == b"\1\0"):
        raise FileError(path, f"{name} is no array: expected the header of a .npy file, got {shown(start[:8])}")
    length = int.from_bytes(start[8:12] if wide else start[8:10], "little")
    if length > MAX_HEADER:
        raise FileError(path, f"the header of {name} has {length} bytes; expected at most {MAX_HEADER}")
    rest = file.read(length - (0 if wide else 2))
    text = (rest if wide else start[10:] + rest).decode("latin1")
    if len(text) != length:
        raise FileError(path, f"the header of {name} ends too early")
    descr, shape, fortran_order = _fields(path, name, text)
    if not PLAIN_TYPES.fullmatch(descr):
        objects = "pickled objects, which are never read (allow_pickle=False)" if descr == "|O" else shown(descr)
        raise FileError(path, f"{name} holds {objects}; expected plain numbers, booleans or text")
    return Header(np.dtype(descr), shape, fortran_order, length + (12 if wide else 10))


def _fields(path: Path, name: str, text: str) -> tuple[str, tuple[int, ...], bool]:
    """Parse the element type, the shape and the order in a header, a Python dictionary that is never evaluated."""
    found, rest = {}, text
    for key, pattern in FIELDS.items():
        if match := pattern.search(rest):
            found[key], rest = match[1], rest[: match.start()] + rest[match.end() :]
    sides = [side.strip().removesuffix("L") for side in found.get("shape", "?").split(",")]  # Python 2 wrote 3L
    sides = sides[:-1] if sides[-1] == "" else sides
    fits = len(found) == len(FIELDS) and NOTHING_ELSE.fullmatch(rest)
    if not fits or len(sides) > MAX_AXES or any(not side.isdigit() or len(side) > 18 for side in sides):
        raise FileError(path, f"the header of {name} names no plain numbers, booleans or text: {shown(text.strip())}")
    return found["descr"], tuple(map(int, sides)), found["fortran_order"] == "True"


def _check_size(path: Path, name: str, header: Header, size: int) -> None:
    """Require the size that the header announces, and a shape that an array can have."""
    if header.size != size:
        raise FileError(
            path, f"{name} should have {shown(header.size)} bytes by its shape {shown(header.shape)}, it has {size}"
        )
    empty = header.dtype.itemsize == 0 and header.count > 0
    if empty or math.prod(side or 1 for side in header.shape) * max(header.dtype.itemsize, 1) > 2**62:
        raise FileError(path, f"{name} has the shape {shown(header.shape)} of {header.dtype}, which holds nothing")


def _check_memory(path: Path, headers: Iterable[Header]) -> None:
    needed = COPIES * sum(header.count * max(header.dtype.itemsize, 4) for header in headers)
    available = available_memory()
    if needed > available:
        raise FileError(
            path,
            f"reading and checking its arrays takes about {as_size(needed)} of memory, and {as_size(available)} are "
            "available",
        )


def _entries(path: Path, name: str, file: IO[bytes], header: Header) -> NDArray[Any]:
    array = np.empty(header.count, dtype=header.dtype)
    if header.count:
        room = array.view(np.uint8).data
        have = 0
        while have < len(room):
            chunk = file.read(min(ARRAY_CHUNK, len(room) - have))
            if not chunk:
                raise FileError(path, f"{name} ends after {have} of {len(room)} bytes")
            room[have : have + len(chunk)] = chunk
            have += len(chunk)
        if array.dtype.kind in "US":
            _check_text(path, name, array)
    if file.read(1):
        raise FileError(path, f"{name} goes on after its entries")
    return array.reshape(header.shape[::-1]).T if header.fortran_order else array.reshape(header.shape)


def _check_text(path: Path, name: str, array: NDArray[Any]) -> None:
    """Require valid characters: numpy does not check them."""
    wide = array.dtype.kind == "U"
    codes: Any = array.view(np.dtype(np.uint32).newbyteorder(array.dtype.byteorder) if wide else np.uint8)
    if codes.max() > (0x10FFFF if wide else 0x7F) or (wide and ((codes >= 0xD800) & (codes < 0xE000)).any()):
        raise FileError(path, f"{name} holds text with characters that do not exist; write it as str")
