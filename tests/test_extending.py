"""The recipes of docs/extending.md run as they stand, from outside the package."""

import re
from pathlib import Path
from typing import Any

import pytest

from gossamer.model.layers import LAYERS

RECIPES = re.findall(r"```python\n(.*?)```", (Path(__file__).parents[1] / "docs/extending.md").read_text(), re.DOTALL)


def test_the_recipes_run(capsys: pytest.CaptureFixture[str]) -> None:
    assert RECIPES
    for recipe in RECIPES:
        lines = [line for line in recipe.splitlines() if line.strip()]
        assert len(lines) <= 40
        before = dict(LAYERS)
        names: dict[str, Any] = {"__name__": "recipe"}
        try:
            exec(compile(recipe, "docs/extending.md", "exec"), names)
        finally:
            for added in set(LAYERS) - set(before):
                del LAYERS[added]
        assert float(capsys.readouterr().out.split()[-1]) > 0.8
