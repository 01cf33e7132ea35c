"""The folder of a new project, written beside where it belongs and renamed: there is a whole project or none."""

import os
import shutil
from pathlib import Path

from gossamer.errors import GossamerError
from gossamer.files import write_atomically

PROJECT_FILES = {  # by name in the project, what it is made from
    "README.md": "README.template",
    "settings.toml": "settings.template",
    "prepare.py": "prepare.template",
    ".gitignore": "gitignore.template",
}
NAME_MARK = "{{name}}"


def write_project(folder: Path) -> list[Path]:
    """Write the files of a new project into a folder that is new or empty; return their paths."""
    _check_place(folder)
    target = folder.resolve()
    made = target.with_name(f".{target.name}.{os.getpid()}")
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.rmtree(made, ignore_errors=True)  # of a killed process with this number
        made.mkdir()
        for name, source in PROJECT_FILES.items():
            text = (Path(__file__).parent / source).read_text(encoding="utf-8")
            write_atomically(made / name, text.replace(NAME_MARK, target.name).encode())
        made.rename(target)  # over an empty folder, but no other
    except OSError as error:
        raise GossamerError(f"cannot write the project {folder}: {error.strerror or error}") from None
    finally:
        shutil.rmtree(made, ignore_errors=True)
    return [folder / name for name in PROJECT_FILES]


def _check_place(folder: Path) -> None:
    """Refuse a file, a folder with anything in it, and the current one, in which a shell would be lost."""
    if folder.is_symlink() or (folder.exists() and not folder.is_dir()):
        raise GossamerError(f"{folder} exists and is not a folder; choose another name for the project")
    if not folder.exists():
        return
    if any(folder.iterdir()):
        raise GossamerError(f"{folder} exists and is not empty; choose another name for the project")
    if folder.samefile(Path.cwd()):
        raise GossamerError(f"{folder} is the folder that this runs in; name a new one, as in gossamer new my-project")
