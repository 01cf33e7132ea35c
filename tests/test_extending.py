"""The recipes of docs/extending.md run as they stand, from outside the package."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from gossamer.agents.consensus import CONSENSUS_METHODS
from gossamer.agents.consensus.codecs import CONSENSUS_CODECS
from gossamer.agents.row_codecs import ROW_CODECS
from gossamer.agents.rules import UPDATE_RULES
from gossamer.model.layers import LAYERS
from gossamer.topology import TOPOLOGIES

PAGE = (Path(__file__).parents[1] / "docs/extending.md").read_text()
RECIPES = [
    (heading, code)
    for heading, text in re.findall(r"^## (.+?)\n(.*?)(?=^## |\Z)", PAGE, re.DOTALL | re.MULTILINE)
    for code in re.findall(r"```python\n(.*?)```", text, re.DOTALL)
]
TABLES: list[dict[str, Any]] = [
    LAYERS, ROW_CODECS, CONSENSUS_CODECS, CONSENSUS_METHODS, UPDATE_RULES, TOPOLOGIES
]  # fmt: skip


@pytest.fixture(autouse=True)
def tables() -> Iterator[None]:
    """Take out of the tables what a recipe adds."""
    before = [dict(table) for table in TABLES]
    yield
    for table, names in zip(TABLES, before, strict=True):
        table.clear()
        table.update(names)


def test_every_seam_has_a_recipe() -> None:
    assert {heading for heading, _ in RECIPES} == {
        "A layer", "A row codec", "A consensus codec", "An update rule", "A topology", "An observer"
    }  # fmt: skip


@pytest.mark.parametrize(("heading", "recipe"), RECIPES, ids=[heading for heading, _ in RECIPES])
def test_a_recipe_runs(heading: str, recipe: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert len([line for line in recipe.splitlines() if line.strip()]) <= 40
    exec(compile(recipe, f"docs/extending.md, {heading}", "exec"), {"__name__": "recipe"})
    assert float(capsys.readouterr().out.split()[-1]) > 0.8
