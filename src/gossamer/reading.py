"""Reading a user's text file whole, up to a stated size."""

from pathlib import Path

from gossamer.errors import FileError
from gossamer.machine import as_size

CHUNK = 1 << 16


def read_text(path: Path, most: int) -> str:
    """The text of a file of at most `most` bytes in UTF-8, a byte-order mark passed over, with \\n as line ends."""
    require_regular(path)
    content = bytearray()
    try:
        with path.open("rb") as file:
            while len(content) <= most and (chunk := file.read(CHUNK)):
                content += chunk
    except (OSError, ValueError) as error:
        raise FileError(path, getattr(error, "strerror", None) or str(error)) from None
    if len(content) > most:
        raise FileError(path, f"it has more than {as_size(most)}, the most that is read")
    try:
        return content.decode("utf-8-sig").replace("\r\n", "\n").replace("\r", "\n")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise FileError(path, f"line {line} is not UTF-8 text ({error.reason})") from None


def require_regular(path: Path) -> None:
    """Refuse what is there and no file: a pipe or a device could be read for ever."""
    if path.exists() and not path.is_file():
        raise FileError(path, "expected a file, found a folder, a pipe or a device")
