"""Writing files whole or not at all."""

import os
from pathlib import Path


def remove_unfinished(folder: Path) -> None:
    """Remove what `write_atomically` could not finish because its process was killed; no other may be at work."""
    for path in folder.rglob(".*"):
        if path.suffix[1:].isdigit():
            path.unlink(missing_ok=True)


def write_atomically(path: Path, content: bytes) -> None:
    """Write a temporary file beside `path`, flush it to the disk and rename it."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with temporary.open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
        folder = os.open(path.parent, os.O_RDONLY)
        try:
            os.fsync(folder)  # else a power cut may undo the renaming
        finally:
            os.close(folder)
    finally:
        temporary.unlink(missing_ok=True)
