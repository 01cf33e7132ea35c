"""docs/models.md: every command and every piece of Python in it runs as shown, from top to bottom."""

import re
import shlex
from pathlib import Path
from typing import Any

import pytest
from commands.inside import run

GUIDE = Path(__file__).parents[1] / "docs" / "models.md"


@pytest.mark.slow
def test_the_guide_runs_as_shown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("torch_geometric")
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {}
    parts = re.findall(r"^```python\n(.*?)^```|^    (gossamer [^\n]*)$", GUIDE.read_text(), re.DOTALL | re.MULTILINE)
    assert len(parts) == 16
    for code, command in parts:
        if code:
            exec(code, names)
            continue
        done = run(*shlex.split(command)[1:], cwd=tmp_path)
        assert done.returncode == 0, f"{command}: {done.stderr}"
    assert (tmp_path / "new.csv").is_file()
    assert (tmp_path / "runs" / "mine" / "predictions-new.csv").is_file()
