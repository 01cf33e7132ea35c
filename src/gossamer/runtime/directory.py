"""The run directory: what a run leaves behind, written whole or not at all.

run.json               settings, versions, summary
metrics.jsonl          a line for each evaluation
network.safetensors    assignment, combination
topology.json          the certificate of the combination matrix
weights.safetensors    the agents' weights, stacked: `layer.0.weight` [agents, in, out] and so on
checkpoint.safetensors weights and the update rule's state at some step, from which --resume goes on
curves.png             drawn by the caller
"""

import json
import math
import platform
from collections.abc import Callable, Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import torch

from gossamer.data import DataGraph
from gossamer.errors import GossamerError
from gossamer.files import write_atomically
from gossamer.runtime.settings import Settings, stored_settings
from gossamer.runtime.tensors import FORMAT, pack_state, read_about, read_tensors, unpack_state, write_tensors
from gossamer.runtime.training import Record, Run, start, with_weights

VERSION = version("gossamer")
Begin = Callable[..., Run]  # like `start`: from graph, settings, and an assignment, a combination, a shift


def to_json(content: Any, indent: int | None = None) -> str:
    """JSON that every reader takes: a number that is not finite, such as the score on an empty mask, becomes null."""

    def finite(value: Any) -> Any:
        if isinstance(value, Mapping):
            return {name: finite(part) for name, part in value.items()}
        if isinstance(value, (list, tuple)):
            return [finite(part) for part in value]
        return None if isinstance(value, float) and not math.isfinite(value) else value

    return json.dumps(finite(content), indent=indent, allow_nan=False)


def check_new(folder: Path) -> None:
    """Refuse a folder with files in it, before any work is done for it."""
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        run = (folder / "run.json").is_file()
        raise GossamerError(
            f"{folder} exists and is not an empty folder; choose another --out"
            + (f", or go on with gossamer train --resume {folder}" if run else "")
        )


def create(folder: Path) -> None:
    """Make an empty directory for a result; an existing one with files in it is never touched."""
    check_new(folder)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise GossamerError(f"cannot make the directory {folder}: {error}") from None


def free_name(parent: Path, stem: str) -> Path:
    """The first of parent/stem-1, parent/stem-2, ... that does not exist."""
    number = 1
    while (parent / f"{stem}-{number}").exists():
        number += 1
    return parent / f"{stem}-{number}"


def save_checkpoint(folder: Path, state: Run) -> None:
    """Metrics first: they may run ahead of the checkpoint, never behind."""
    params, update_state = (state.engine.gathered(parts) for parts in (state.host.params, state.host.state))
    if not state.engine.leads:
        return
    lines = "".join(to_json(record) + "\n" for record in state.history)
    write_atomically(folder / "metrics.jsonl", lines.encode())
    tensors = pack_state(params, update_state)
    write_tensors(folder / "checkpoint.safetensors", tensors, step=str(state.host.step), seconds=str(state.seconds))


def save_start(folder: Path, state: Run) -> None:
    """What never changes during a run, and a run.json that says how to go on."""
    write_tensors(
        folder / "network.safetensors",
        {
            "assignment": torch.from_numpy(state.deployment.assignment),
            "combination": torch.from_numpy(state.deployment.combination),
        },
    )
    certificate = state.deployment.certificate.to_dict(
        state.deployment.network.num_parameters, state.settings.torch_dtype.itemsize
    )
    write_atomically(folder / "topology.json", (to_json(certificate) + "\n").encode())
    save_summary(folder, state, {})


def save_weights(folder: Path, state: Run) -> None:
    """A checkpoint, and the weights for whoever wants to use them."""
    save_checkpoint(folder, state)
    params = state.engine.gathered(state.host.params)
    if state.engine.leads:
        write_tensors(folder / "weights.safetensors", params)


def save_references(folder: Path, histories: Mapping[str, list[Record]]) -> None:
    """The references' evaluations, from which the curves can be drawn again."""
    lines = (to_json({"model": name, **record}) + "\n" for name, history in histories.items() for record in history)
    write_atomically(folder / "references.jsonl", "".join(lines).encode())


def read_references(folder: Path) -> dict[str, list[Record]]:
    """The references' evaluations so far; none before the distributed run is done."""
    histories: dict[str, list[Record]] = {}
    path = folder / "references.jsonl"
    for record in _read_records(path) if path.is_file() else ():
        histories.setdefault(record.pop("model"), []).append(record)
    return histories


def read_summary(folder: Path) -> dict[str, Any]:
    """The summary that a run directory holds."""
    return dict(_read_json(folder)["summary"])


def save_summary(folder: Path, state: Run, summary: Mapping[str, Any], complete: bool = False) -> None:
    """run.json; `complete` once the run and its references are done."""
    content = {
        "format": FORMAT,
        "settings": state.settings.model_dump(mode="json"),
        "data": {"name": state.facts["name"], "fingerprint": state.fingerprint},
        "versions": {
            "gossamer": VERSION,
            "torch": torch.__version__,
            "numpy": np.__version__,
            "python": platform.python_version(),
        },
        "step": state.host.step,
        "complete": complete,
        **({"plan": state.stored} if state.stored else {}),
        "summary": dict(summary),
    }
    write_atomically(folder / "run.json", (to_json(content, indent=2) + "\n").encode())


def read_plan(folder: Path) -> tuple[Settings, str, dict[str, Any]]:
    """Settings, fingerprint of the data, and what was known of the deployment when its shares were cut."""
    content = _read_json(folder)
    if "plan" not in content:
        raise GossamerError(f"{folder} was not cut for ranks; cut it with gossamer shard DATASET --ranks N")
    return read_settings_of(folder), content["data"]["fingerprint"], content["plan"]


def read_settings_of(folder: Path) -> Settings:
    """The settings of a run directory."""
    return stored_settings(_read_json(folder)["settings"], source=str(folder / "run.json"))


def read_run(folder: Path, graph: DataGraph, steps: int | None = None, shift: Any = None, begin: Begin = start) -> Run:
    """A run as its last checkpoint left it, ready to go on, with more steps if wished; `begin` hosts it.

    A shift operator that the user gave to the run must be given again: it is not stored.
    """
    return restored(folder, _fresh(folder, graph, steps, shift, begin))


def restored(folder: Path, state: Run) -> Run:
    """A run at step 0 as the last checkpoint of its directory left it."""
    checkpoint = folder / "checkpoint.safetensors"
    if not checkpoint.is_file():
        return state
    tensors = read_tensors(checkpoint)
    about = read_about(checkpoint)
    if "step" not in about or "seconds" not in about:
        raise GossamerError(f"{checkpoint} says no step; it is not a checkpoint of Gossamer")
    params, update_state = unpack_state(tensors)
    state = with_weights(state, params, update_state, step=int(about["step"]))
    if state.host.step > state.settings.steps:
        raise GossamerError(
            f"{folder} has done {state.host.step} steps already, asked for {state.settings.steps}; give more --steps"
        )
    state.history = [r for r in _read_records(folder / "metrics.jsonl") if r["step"] <= state.host.step]
    state.seconds = float(about["seconds"])
    return state


def read_weights(folder: Path, graph: DataGraph, shift: Any = None) -> Run:
    """A run with the weights that it left behind, for prediction."""
    state = _fresh(folder, graph, None, shift, start)
    path = folder / "weights.safetensors"
    if not path.is_file():
        raise GossamerError(f"{folder} holds no weights yet: finish it with gossamer train --resume {folder}")
    return with_weights(state, read_tensors(path), state.host.state, step=state.settings.steps)


def _fresh(folder: Path, graph: DataGraph, steps: int | None, shift: Any, begin: Begin) -> Run:
    """The run of a directory at step 0, with its own assignment and C, on the same data."""
    content = _read_json(folder)
    settings = stored_settings(content["settings"], source=str(folder / "run.json"))
    if steps is not None:
        settings = settings.model_copy(update={"steps": steps})
    network = read_tensors(folder / "network.safetensors")
    if set(network) != {"assignment", "combination"}:
        raise GossamerError(f"{folder / 'network.safetensors'} should hold assignment and combination")
    state = begin(
        graph,
        settings,
        assignment=network["assignment"].numpy(),
        combination=network["combination"].numpy(),
        shift=shift,
    )
    if content["data"]["fingerprint"] != state.fingerprint:
        raise GossamerError(
            f"the data set {graph.name!r} (or the shift operator given with it) is not the one that "
            f"{folder} was trained on"
        )
    return state


def _read_records(path: Path) -> list[Record]:
    try:
        records = [json.loads(line, object_hook=_null_is_nan) for line in path.read_text().splitlines()]
        if not all(isinstance(record.get("step"), int) for record in records):
            raise ValueError("a line without a step")
    except (OSError, ValueError, AttributeError) as error:
        raise GossamerError(f"cannot read {path}: {error}") from None
    return records


def _null_is_nan(scores: dict[str, Any]) -> dict[str, Any]:
    return {name: math.nan if value is None else value for name, value in scores.items()}


def _read_json(folder: Path) -> Any:
    path = folder / "run.json"
    try:
        content = json.loads(path.read_text())
    except OSError:
        raise GossamerError(f"{folder} is not a run directory: it has no run.json") from None
    except ValueError as error:
        raise GossamerError(f"{path} is not valid JSON: {error}") from None
    if not isinstance(content, dict) or content.get("format") != FORMAT:
        raise GossamerError(f"{path} should have the format version {FORMAT}; it was written by another Gossamer")
    missing = {"settings", "data", "summary"} - set(content)
    if missing:
        raise GossamerError(f"{path} is damaged: it has no {', '.join(sorted(missing))}")
    return content
