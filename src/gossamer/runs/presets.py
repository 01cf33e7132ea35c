"""Presets: named values of the settings that are not given."""

from typing import Any

# Settings of the paper (Sec. V-A) where they differ from the defaults, which are chosen to work without tuning.
PRESETS: dict[str, dict[str, Any]] = {
    "default": {},
    "paper": {
        "standardise": False,
        "bias": False,
        "dropout": 0.5,
        "batch": 0,
        "update": "momentum",
        "step_size": 0.5,
        "weight_decay": 0.0,
        "decay_layers": "all",
        "steps": 500,
        "initial_deviation": 1e-3,
        "keep": "last",
    },
}


def fill_from_preset(values: dict[str, Any]) -> dict[str, Any]:
    """Put the preset's values in place of those that are not given; an unknown preset has none and is refused later."""
    name = values.get("preset", "default")
    return {**PRESETS.get(name, {}), **values} if isinstance(name, str) else values
