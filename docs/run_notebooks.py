"""Run the notebooks of the documentation and store what they print.

    python docs/run_notebooks.py [--check] [NAME ...]

They run in a folder of their own; what they write is gone afterwards. Stored outputs carry no times and no paths. With
--check nothing is stored.
"""

import argparse
import tempfile
from pathlib import Path
from typing import Any

import nbformat
from nbclient import NotebookClient

NOTEBOOKS = Path(__file__).parent / "notebooks"
TIMEOUT = 300  # seconds that a cell may take


def run_notebook(path: Path, folder: Path) -> Any:
    """Run all cells of a notebook in a folder and return it with its outputs; an error in a cell is one here."""
    notebook = nbformat.read(path, as_version=4)  # type: ignore[no-untyped-call]
    client = NotebookClient(
        notebook,
        timeout=TIMEOUT,
        kernel_name="python3",
        resources={"metadata": {"path": str(folder)}},
        record_timing=False,
        coalesce_streams=True,
        extra_arguments=["--IPKernelApp.log_level=40"],  # without a warning that loopback is not encrypted
    )
    client.execute()
    return notebook


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME")
    parser.add_argument("--check", action="store_true")
    given = parser.parse_args()
    for path in sorted(NOTEBOOKS.glob("*.ipynb")):
        if given.names and path.stem not in given.names:
            continue
        with tempfile.TemporaryDirectory() as folder:
            notebook = run_notebook(path, Path(folder))
        if not given.check:
            notebook.metadata["language_info"] = {"name": "python"}  # not the version that it happened to run in
            nbformat.write(notebook, path)  # type: ignore[no-untyped-call]
        print(f"{path.name}: {len(notebook.cells)} cells")


if __name__ == "__main__":
    main()
