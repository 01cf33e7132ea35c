"""The paper's settings on the embedded data: distributed reaches centralised and beats the graph-less network."""

from typing import Any

import numpy as np
import pytest

import gossamer


@pytest.mark.slow
def test_digits_with_ten_agents_over_three_seeds() -> None:
    options: dict[str, Any] = {"preset": "paper", "steps": 250, "evaluate_every": 250}
    found = [gossamer.train("digits", seed=seed, **options).summary for seed in range(3)]
    accuracy = {
        model: np.mean([s[model]["test"]["accuracy"] for s in found])
        for model in ("distributed", "centralised", "graphless")
    }
    assert accuracy["distributed"] >= accuracy["centralised"] - 0.01
    assert accuracy["distributed"] > accuracy["graphless"] + 0.05
