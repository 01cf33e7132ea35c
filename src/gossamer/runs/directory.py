"""The run directory: what a run leaves behind, written whole or not at all.

run.json               settings, versions, summary
metrics.jsonl          a line for each evaluation
network.safetensors    assignment, combination
topology.json          the certificate of the combination matrix
weights.safetensors    the agents' weights, stacked: `layer.0.weight` [agents, in, out] and so on
checkpoint.safetensors weights and the update rule's state at some step, from which --resume goes on; beside it the one
                       before, checkpoint.previous.safetensors, for when it is damaged
curves.png             drawn by the caller
"""

import math
import platform
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from importlib.metadata import version
from itertools import pairwise
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch

from gossamer.agents.share import MASKS
from gossamer.data import DataGraph
from gossamer.errors import GossamerError
from gossamer.files import LOCK, lock_folder, remove_unfinished, write_atomically
from gossamer.runs.arrays import Arrays
from gossamer.runs.checkpoints import newest_checkpoint, write_checkpoint
from gossamer.runs.documents import FORMAT, check_format, checked, read_json, read_lines, to_json
from gossamer.runs.manifests import Evaluation, ReferenceEvaluation, RunManifest
from gossamer.runs.records import Record, Summary
from gossamer.runs.settings import Settings, read_stored_settings
from gossamer.runs.tensors import read_arrays, read_tensors, write_tensors
from gossamer.runs.training import Run, with_weights

VERSION = version("gossamer")
Begin = Callable[..., Run]  # like `start`: from graph, settings, and an assignment, a combination, a shift


def check_new(folder: Path) -> None:
    """Refuse a folder with files in it, before any work is done for it."""
    if folder.exists() and (not folder.is_dir() or any(path.name != LOCK for path in folder.iterdir())):
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


@contextmanager
def claimed(folder: Path) -> Iterator[None]:
    """An empty directory for a result, made now, that no other process writes to."""
    create(folder)
    with lock_folder(folder, f"trains in {folder}"):
        check_new(folder)  # another may have been here between the two
        yield


@contextmanager
def gone_on_with(folder: Path) -> Iterator[None]:
    """A run directory that no other process writes to."""
    read_manifest(folder)  # first: no lock is put into a folder that is none
    with lock_folder(folder, f"trains in {folder}"):
        remove_unfinished(folder)
        yield


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
    write_checkpoint(folder, params, update_state, state.host.step, state.seconds)


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
    for record in _read_evaluations(path, ReferenceEvaluation) if path.is_file() else ():
        histories.setdefault(record.pop("model"), []).append(cast(Record, record))
    for name, history in histories.items():
        _check_order(history, f"{path}, {name}")
    return histories


def read_summary(folder: Path) -> Summary:
    """The summary that a run directory holds."""
    return cast(Summary, read_manifest(folder).summary)


def save_summary(folder: Path, state: Run, summary: Summary, complete: bool = False) -> None:
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


def read_manifest(folder: Path) -> RunManifest:
    """run.json, checked."""
    path = folder / "run.json"
    try:
        content = read_json(path)
    except OSError:
        raise GossamerError(f"{folder} is not a run directory: it has no run.json") from None
    check_format(content, path)
    return checked(RunManifest, content, str(path))


def read_plan(folder: Path) -> tuple[Settings, str, dict[str, Any]]:
    """Settings, fingerprint of the data, and what was known of the deployment when its shares were cut."""
    manifest = read_manifest(folder)
    if manifest.plan is None:
        raise GossamerError(f"{folder} was not cut for ranks; cut it with gossamer shard DATASET --ranks N")
    return read_settings_of(folder), manifest.data.fingerprint, manifest.plan.model_dump()


def read_settings_of(folder: Path) -> Settings:
    """The settings of a run directory."""
    return read_stored_settings(read_manifest(folder).settings, str(folder / "run.json"))


def read_run(folder: Path, graph: DataGraph, begin: Begin, steps: int | None = None, shift: Any = None) -> Run:
    """A run as its last checkpoint left it, ready to go on, with more steps if wished; `begin` hosts it.

    A shift operator that the user gave to the run must be given again: it is not stored.
    """
    return restored(folder, _fresh(folder, graph, steps, shift, begin))


def restored(folder: Path, state: Run) -> Run:
    """A run at step 0 as the newest whole checkpoint of its directory left it, the same for all hosts."""
    found = newest_checkpoint(folder, state)
    if found is not None:
        state = with_weights(state, found.params, found.state, found.step, str(found.path))
        classes = state.host.full_pass.targets.dtype == torch.int64
        read = _read_evaluations(folder / "metrics.jsonl", Evaluation, "accuracy" if classes else "mse")
        history = cast(list[Record], read)
        _check_order(history, str(folder / "metrics.jsonl"))
        state.history = [record for record in history if record["step"] <= found.step]
        if found.step and not state.history:
            raise GossamerError(
                f"{folder / 'metrics.jsonl'} has no evaluation up to step {found.step}, the checkpoint's"
            )
        state.seconds = found.seconds
    step, hosts = state.engine.total(torch.tensor([state.host.step, 1], dtype=torch.float64)).tolist()
    if step != hosts * state.host.step:
        raise GossamerError(f"{folder}: not all ranks can restore step {state.host.step}; give them the same folder")
    if state.host.step > state.settings.steps:
        raise GossamerError(
            f"{folder} has done {state.host.step} steps already, asked for {state.settings.steps}; give more --steps"
        )
    return state


def read_weights(folder: Path, graph: DataGraph, begin: Begin, shift: Any = None) -> Run:
    """A run with the weights that it left behind, for prediction."""
    state = _fresh(folder, graph, None, shift, begin)
    path = folder / "weights.safetensors"
    if not path.is_file():
        raise GossamerError(f"{folder} holds no weights yet: finish it with gossamer train --resume {folder}")
    return with_weights(state, read_tensors(path), state.host.state, state.settings.steps, str(path))


def _fresh(folder: Path, graph: DataGraph, steps: int | None, shift: Any, begin: Begin) -> Run:
    """The run of a directory at step 0, with its own assignment and C, on the same data."""
    manifest, settings = read_manifest(folder), read_settings_of(folder)
    if steps is not None:
        settings = settings.model_copy(update={"steps": steps})
    path, m = folder / "network.safetensors", settings.agents
    arrays = Arrays(path, read_arrays(path), f"expected those of {graph.name!r} and {m} agents")
    combination = arrays.take_finite("combination", "float64", m, m)
    assignment = arrays.take_within("assignment", m, graph.num_vertices)
    arrays.finish()
    try:
        state = begin(graph, settings, assignment=assignment, combination=combination, shift=shift)
    except GossamerError as error:
        raise type(error)(f"{folder} does not hold a run that can go on: {error}") from None
    if manifest.data.fingerprint != state.fingerprint:
        raise GossamerError(
            f"the data set {graph.name!r} (or the shift operator given with it) is not the one that "
            f"{folder} was trained on"
        )
    return state


def _read_evaluations(path: Path, model: type[Evaluation], score: str | None = None) -> list[dict[str, Any]]:
    """The evaluations of a file, which must all have this score."""
    records: list[dict[str, Any]] = []
    for source, content in read_lines(path):
        record = checked(model, content, source)
        for mask in MASKS if score is not None else ():
            if score not in getattr(record, mask).model_fields_set:
                raise GossamerError(f"{source}: {mask} has no {score}, which this run's evaluations have")
        records.append(_null_is_nan(content))
    return records


def _check_order(history: list[Record], source: str) -> None:
    if any(one["step"] >= other["step"] for one, other in pairwise(history)):
        raise GossamerError(f"{source}: the evaluations' steps should ascend")


def _null_is_nan(content: dict[str, Any]) -> dict[str, Any]:
    return {
        name: math.nan if value is None else _null_is_nan(value) if isinstance(value, dict) else value
        for name, value in content.items()
    }
