"""The notebooks of the documentation run, and the outputs that they store are whole and name no machine."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[1]
NOTEBOOKS = sorted((ROOT / "docs" / "notebooks").glob("*.ipynb"))
NEEDED = {"cora_in_ten_minutes": "citation/cora_ml.npz"}  # below GOSSAMER_DATA: tests download nothing


@pytest.mark.slow
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_runs(path: Path) -> None:
    pytest.importorskip("nbclient", reason="notebooks need the extra docs")
    data = NEEDED.get(path.stem)
    if data is not None and not (Path(os.environ.get("GOSSAMER_DATA", "")) / data).is_file():
        pytest.skip(f"{path.stem} needs {data} in the folder GOSSAMER_DATA")
    command = [sys.executable, str(ROOT / "docs" / "run_notebooks.py"), "--check", path.stem]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr
    assert re.fullmatch(rf"{path.name}: \d+ cells\n", done.stdout)


def read_cells(path: Path) -> list[dict[str, Any]]:
    return [cell for cell in json.loads(path.read_text())["cells"] if cell["cell_type"] == "code"]


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_stored_outputs_are_those_of_one_run(path: Path) -> None:
    cells = read_cells(path)
    assert [cell["execution_count"] for cell in cells] == list(range(1, len(cells) + 1))
    assert not [output for cell in cells for output in cell["outputs"] if output["output_type"] == "error"]
    assert not [cell for cell in cells if "print(" in "".join(cell["source"]) and not cell["outputs"]]


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_stored_outputs_name_no_machine(path: Path) -> None:
    texts = [
        "".join(output.get("text", "")) + "".join(output.get("data", {}).get("text/html", ""))
        for cell in read_cells(path)
        for output in cell["outputs"]
    ]
    assert not [text for text in texts if re.search(r"/(?:home|root|tmp|usr|work|Users)/", text)]
