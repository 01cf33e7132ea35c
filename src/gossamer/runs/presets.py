"""Presets: named values of the settings that are not given, and defaults that depend on the data."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from gossamer.data.tasks import Task

# Settings of the paper (Sec. V-A) where they differ from the defaults, which are chosen to work without tuning.
PRESETS: dict[str, dict[str, Any]] = {
    "default": {},
    "paper": {
        "lost_edges": "drop",
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


# Defaults of runs that protect vertices: whatever would release numbers of training examples is off.
# Gradients hold noise: heavy-ball momentum from zero weights, by few steps. `step_size` is the noise that these may add
# to an output (hosts.py).
NODE_PRIVATE = {
    "standardise": False,
    "keep": "last",
    "dropout": 0.0,
    "weight_decay": 0.0,
    "update": "momentum",
    "track": True,
    "same_initial": True,
    "initial_deviation": 0.0,
    "step_size": 1.5,
    "steps": 50,
    "encoder_steps": 100,
    "evaluate_every": 10,
}


def fill_from_preset(values: dict[str, Any]) -> dict[str, Any]:
    """Put the preset's values, and those of runs that protect vertices or whose agents change, in place of what is not
    given; an unknown preset has none and is refused later."""
    name, privacy = values.get("preset", "default"), values.get("privacy")
    private = NODE_PRIVATE if isinstance(privacy, str) and privacy.startswith("node:") else {}
    over_links = privacy not in (None, "none") or values.get("evict_after") is not None
    links_alone = {"lost_edges": "drop"} if over_links else {}
    return {**PRESETS.get(name, {}), **private, **links_alone, **values} if isinstance(name, str) else values


def fit_defaults(task: "Task", times: int | None) -> dict[str, Any]:
    """Defaults for data of a task, with training examples at so many time steps, or without a time axis.

    Half of a sensor's last readings would be half of what is known of it; thousands of time steps in every step of
    training would make it slow.
    """
    return {
        "dropout": 0.0 if task == "regression" else 0.5,
        "batch": 64 if times is not None and times >= 256 else 0,
    }
