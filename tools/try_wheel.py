"""Build the source distribution and the wheel, look what is inside, install the wheel into a clean environment with the
core dependencies alone, and do there what the README begins with.

    python tools/try_wheel.py [--keep FOLDER]

Versions are those of constraints.txt; the package's own ranges have to allow them. Commands run in an empty folder,
outside the checkout, without its variables.
"""

import argparse
import os
import re
import subprocess
import sys
import tarfile
import tempfile
import tomllib
import venv
import zipfile
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
MOST_BYTES = 2_000_000  # of a wheel: code, and no data
SOURCES = ("README.md", "LICENSE", "CHANGELOG.md", "constraints.txt", "docs/data.md", "deploy", "tests", "examples")
SERVICE = "lib/systemd/system/gossamer-peer@.service"
EXTRAS = {  # what asks for a library that only an extra brings
    "metis": ["train", "--assignment", "metis", "--steps", "1"],
    "tensorboard": ["train", "--tensorboard", "logs", "--steps", "1"],
    "metrics": ["train", "--metrics", "127.0.0.1:0", "--steps", "1"],
    "privacy": ["train", "--privacy", "node:epsilon=8,delta=1e-5", "--steps", "1"],
}


def run(command: Sequence[str | Path], cwd: Path, code: int = 0) -> str:
    """Run a command without the variables of a checkout; return what it prints, and stop if it ends otherwise."""
    hidden = ("PYTHON", "GOSSAMER", "VIRTUAL_ENV")
    variables = {name: value for name, value in os.environ.items() if not name.startswith(hidden)}
    print("$", *(Path(part).name if isinstance(part, Path) else part for part in command), flush=True)
    done = subprocess.run(
        command, cwd=cwd, env=variables | {"COLUMNS": "120"}, capture_output=True, text=True, timeout=1200
    )
    if done.returncode != code:
        sys.exit(f"expected exit code {code}, got {done.returncode}:\n{done.stdout}{done.stderr}")
    return done.stdout + done.stderr


def require(holds: bool, what: str) -> None:
    if not holds:
        sys.exit(f"error: {what}")


def list_package() -> set[str]:
    """The files of the package in the checkout, as a wheel names them."""
    source = ROOT / "src"
    files = (path for path in (source / "gossamer").rglob("*") if path.is_file() and "__pycache__" not in path.parts)
    return {path.relative_to(source).as_posix() for path in files}


def list_pages() -> set[str]:
    """The pages of the documentation, as a wheel names them."""
    with (ROOT / "pyproject.toml").open("rb") as file:
        return set(tomllib.load(file)["tool"]["hatch"]["build"]["targets"]["wheel"]["force-include"].values())


def check_wheel(path: Path) -> None:
    """Require the whole package, the pages, the licence, the service, and nothing else."""
    names = {name for name in zipfile.ZipFile(path).namelist() if not name.endswith("/")}
    inside = {name for name in names if ".dist-info/" not in name and ".data/" not in name}
    package = list_package() | list_pages()
    require(inside == package, f"{path.name} differs from src/gossamer by {sorted(inside ^ package)[:9]}")
    require("gossamer/py.typed" in names, "py.typed is missing: users' type checkers would not read the annotations")
    require(any(name.endswith("/licenses/LICENSE") for name in names), "the licence is missing")
    beside = {name.partition(".data/data/")[2] for name in names if ".data/" in name}
    require(beside == {SERVICE}, f"beside the package {path.name} has {sorted(beside)}")
    require(path.stat().st_size < MOST_BYTES, f"{path.name} has {path.stat().st_size} bytes: what is so large?")


def check_sources(path: Path) -> None:
    """Require what a packager needs, and nothing that a tool has left behind."""
    with tarfile.open(path) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    for wanted in SOURCES:
        require(any(name == wanted or name.startswith(f"{wanted}/") for name in names), f"{wanted} is missing")
    missing = {f"src/{name}" for name in list_package()} - names
    require(not missing, f"{path.name} lacks {sorted(missing)[:9]}")
    left = [name for name in names if re.search(r"\.pyc$|^(site|runs|dist|\.venv)/|\.npz$|\.safetensors$", name)]
    require(not left, f"{path.name} has {left[:9]}")


def install(wheel: Path, folder: Path) -> Path:
    """Make an environment with the wheel and its core dependencies; return the folder of its commands."""
    venv.create(folder, with_pip=True)
    commands = folder / "bin"
    constraints: list[str | Path] = ["--constraint", ROOT / "constraints.txt"]
    run([commands / "python", "-m", "pip", "install", "--quiet", *constraints, wheel], folder)
    run([commands / "python", "-m", "pip", "check"], folder)
    return commands


def try_quickstart(commands: Path, folder: Path) -> None:
    """Do what the README and the first page of the documentation begin with."""
    gossamer, python = commands / "gossamer", commands / "python"
    version = re.search(r'^version = "(.+)"', (ROOT / "pyproject.toml").read_text(), re.MULTILINE)
    require(version is not None and run([gossamer, "--version"], folder).strip() == version[1], "another version")
    where = run([python, "-c", "import gossamer; print(gossamer.__file__)"], folder).strip()
    require(where.startswith(str(commands.parent)), f"imported from {where}")
    run([gossamer, "--help"], folder)
    require((commands.parent / SERVICE).is_file(), f"{SERVICE} is not installed")
    printed = run([gossamer, "train"], folder)
    require("distributed" in printed and (folder / "runs" / "digits-1" / "curves.png").is_file(), printed)
    run([gossamer, "predict", "runs/digits-1"], folder)
    run([gossamer, "launch", "--agents", "3", "--steps", "20"], folder)
    require("# Training" in run([gossamer, "docs", "training"], folder), "no pages")
    run([gossamer, "new", "mine"], folder)
    run([python, "prepare.py"], folder / "mine")
    run([gossamer, "train", "settings.toml"], folder / "mine")
    code = re.search(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    require(code is not None, "the README shows no Python")
    printed = run([python, "-c", code[1] if code else ""], folder)
    require("test accuracy 0.9" in printed, printed)


def try_extras(commands: Path, folder: Path) -> None:
    """Ask for what extras bring: one line that says which, exit code 2."""
    for extra, arguments in EXTRAS.items():
        printed = run([commands / "gossamer", *arguments], folder, code=2)
        require(f"gossamer[{extra}]" in printed and "Traceback" not in printed, printed)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--keep", type=Path, help="put the distributions here")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        built = options.keep or folder / "dist"
        run([sys.executable, "-m", "build", "--outdir", built.absolute(), ROOT], folder)
        wheel, sources = (max(built.glob(f"gossamer-*{end}")) for end in (".whl", ".tar.gz"))
        check_wheel(wheel)
        check_sources(sources)
        commands = install(wheel.absolute(), folder / "environment")
        work = folder / "work"
        work.mkdir()
        try_quickstart(commands, work)
        try_extras(commands, work)
        print(f"{wheel.name} ({wheel.stat().st_size:,} bytes) installs and trains; {sources.name} is whole")


if __name__ == "__main__":
    main()
