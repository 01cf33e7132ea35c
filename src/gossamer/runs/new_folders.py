"""New folders for results: with a free name, empty, and locked by the process that writes to them."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from gossamer.errors import GossamerError
from gossamer.files import LOCK, lock_folder


def check_new(folder: Path) -> None:
    """Refuse a folder with files in it, before any work is done for it."""
    if folder.exists() and (not folder.is_dir() or any(path.name != LOCK for path in folder.iterdir())):
        run = (folder / "run.json").is_file()
        raise GossamerError(
            f"{folder} exists and is not an empty folder; choose another --out"
            + (f", or go on with gossamer train --resume {folder}" if run else "")
        )


def create(folder: Path) -> None:
    """Make an empty directory for a result; an existing one with files in it is never touched."""
    check_new(folder)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise GossamerError(f"cannot make the directory {folder}: {error}") from None


@contextmanager
def create_locked(folder: Path) -> Iterator[None]:
    """Make an empty directory for a result, and let no other process write to it."""
    create(folder)
    with lock_folder(folder, f"trains in {folder}"):
        check_new(folder)  # another may have been here between the two
        yield


def find_free_name(parent: Path, stem: str) -> Path:
    """First of parent/stem-1, parent/stem-2, ... that does not exist."""
    number = 1
    while (parent / f"{stem}-{number}").exists():
        number += 1
    return parent / f"{stem}-{number}"
