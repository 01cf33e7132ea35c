"""Presets: named values of the settings that are not given, and defaults that depend on the data."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from gossamer.data.tasks import Task

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
        "evaluate_every": 10,
    },
}


def fill_from_preset(values: dict[str, Any]) -> dict[str, Any]:
    """Put the preset's values in place of those that are not given; an unknown preset has none and is refused later."""
    name = values.get("preset", "default")
    return {**PRESETS.get(name, {}), **values} if isinstance(name, str) else values


def fit_defaults(task: "Task", times: int | None) -> dict[str, Any]:
    """Defaults for data of a task, with training examples at so many time steps, or without a time axis.

    Half of a sensor's last readings would be half of what is known of it; thousands of time steps in every step of
    training would make it slow.
    """
    return {
        "dropout": 0.0 if task == "regression" else 0.5,
        "batch": 64 if times is not None and times >= 256 else 0,
    }
