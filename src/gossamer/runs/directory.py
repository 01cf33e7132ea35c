"""The run directory: files of a run, written whole or not at all.

run.json               settings, versions, summary
metrics.jsonl          a line for each evaluation
network.safetensors    assignment, combination [agents, agents] (of a sequence of them [topologies, agents, agents]),
                       links by step [steps, agents, agents] if they switch
topology.json          the certificate of the combination matrix
weights.safetensors    the agents' weights that are kept, stacked: `layer.0.weight` [agents, in, out] and so on
checkpoint.safetensors weights and the update rule's state at some step, from which --resume goes on; beside it the one
                       before, checkpoint.previous.safetensors, for when it is damaged
transform.safetensors  offsets and scales by which features and targets were standardised, if they were
initial.safetensors    weights that all agents started from, if they were given: a model file without a header; beside
                       it initial.transform.safetensors, the transform that they belong to, if there is one
secrets.json           secrets of the agents, if they decided dropout and quantisation noise (0600); for --resume
encoder.safetensors    the agents' weights of the encoder, if there is one, `layer.0.weight` [agents, in, width] and so
                       on, and encodings.safetensors, what it made of the vertices [n, width]
curves.png             drawn by the caller
audit.json             what the last audit of the run found, for a report; beside it reconstructions.png
timeline.json          of a launch whose agents may leave and join: what happened, drawn in memberships.png; beside it
                       rehearsal.toml, the script of a rehearsal
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch

from gossamer.agents.salts import Secrets
from gossamer.data import DataGraph
from gossamer.errors import GossamerError
from gossamer.files import lock_folder, remove_unfinished, write_atomically
from gossamer.runs.arrays import StoredArrays
from gossamer.runs.checkpoints import NEWEST, read_newest_checkpoint, write_checkpoint
from gossamer.runs.documents import to_json
from gossamer.runs.encoders import ENCODER_FILE, ENCODINGS_FILE, read_encoder, read_encodings
from gossamer.runs.evaluated_steps import find_evaluation
from gossamer.runs.evaluations import append_evaluation, check_order, read_evaluations, write_evaluations
from gossamer.runs.manifests import DataIdentity, Evaluation, ReferenceEvaluation
from gossamer.runs.observers import Observer
from gossamer.runs.records import Description, Record, Summary
from gossamer.runs.run import Run, StartRun, restore_weights
from gossamer.runs.run_json import read_manifest, read_run_settings, write_manifest
from gossamer.runs.secret_files import SECRETS_FILE, read_secrets, write_secrets
from gossamer.runs.settings import Settings
from gossamer.runs.tensors import read_arrays, read_tensors, write_tensors
from gossamer.runs.transforms import TRANSFORM_FILE, find_transform_beside, write_transform
from gossamer.topology import Switching

INITIAL_FILE = "initial.safetensors"
AGENTS_FOLDER = "agents"  # of a launch: the folders of its agents


@contextmanager
def lock_run(folder: Path) -> Iterator[None]:
    """Let no other process write to a run directory."""
    read_manifest(folder)  # first: no lock is put into a folder that is none
    with lock_folder(folder, f"trains in {folder}"):
        remove_unfinished(folder)
        yield


def make_saver(folder: Path, run: Run) -> Observer:
    """An observer that keeps a run directory up to date: a line for each evaluation when it is made, checkpoints on the
    way, weights at the end.

    Evaluations beyond the run's are removed first: a resumed run makes them again.
    """
    path = folder / "metrics.jsonl"
    if run.engine.leads and (run.history or path.exists()):
        write_evaluations(path, run.history)
    return Observer(
        on_record=partial(append_evaluation, path) if run.engine.leads else lambda record: None,
        on_checkpoint=partial(save_checkpoint, folder),
        on_end=partial(save_weights, folder),
    )


def save_checkpoint(folder: Path, run: Run) -> None:
    """Write metrics and a checkpoint. Metrics first: they may be ahead of the checkpoint, never behind."""
    params, update_state = (run.engine.gathered(parts) for parts in (run.host.params, run.host.state))
    if not run.engine.leads:
        return
    write_evaluations(folder / "metrics.jsonl", run.history)
    write_checkpoint(folder, params, update_state, run.host.step, run.seconds)


def save_start(folder: Path, run: Run) -> None:
    """Write what never changes during a run, and a run.json from which it can be resumed."""
    network = {
        "assignment": torch.from_numpy(run.deployment.assignment),
        "combination": torch.from_numpy(run.deployment.combination),
    }
    sequence = run.deployment.certificate.sequence
    if isinstance(sequence, Switching):
        network["links"] = torch.from_numpy(sequence.steps)
    write_tensors(folder / "network.safetensors", network)
    initial = run.deployment.initial_state()
    if initial is not None:
        write_tensors(folder / INITIAL_FILE, initial)
    transform = run.deployment.transform
    if transform is not None:
        write_transform(folder / TRANSFORM_FILE, transform)
        if initial is not None:
            write_transform(find_transform_beside(folder / INITIAL_FILE), transform)
    if run.secrets is not None:
        write_secrets(folder / SECRETS_FILE, run.secrets)
    if run.settings.encodes and run.stage is None and run.deployment.handed is not None:
        write_tensors(folder / ENCODINGS_FILE, {"encodings": torch.from_numpy(run.deployment.handed)})
    if run.encoder is not None:
        write_tensors(folder / ENCODER_FILE, run.encoder)
    certificate = run.deployment.certificate.to_dict(
        run.deployment.network.num_parameters, run.settings.torch_dtype.itemsize
    )
    write_atomically(folder / "topology.json", (to_json(certificate) + "\n").encode())
    about = run.deployment
    edges: Summary = {"edges_kept": about.edges_kept, "edges_relayed": about.edges_relayed}
    save_summary(folder, run, {**edges, "messages": run.messages})


def save_weights(folder: Path, run: Run) -> None:
    """Write a checkpoint, and the weights for prediction."""
    save_checkpoint(folder, run)
    params = run.engine.gathered(run.kept.params)
    if run.engine.leads:
        write_tensors(folder / "weights.safetensors", params)


def save_references(folder: Path, histories: Mapping[str, list[Record]]) -> None:
    """Write the references' evaluations, from which the curves can be drawn again."""
    lines = (to_json({"model": name, **record}) + "\n" for name, history in histories.items() for record in history)
    write_atomically(folder / "references.jsonl", "".join(lines).encode())


def read_references(folder: Path) -> dict[str, list[Record]]:
    """Evaluations of the references so far; none before the distributed run is done."""
    histories: dict[str, list[Record]] = {}
    path = folder / "references.jsonl"
    for record in read_evaluations(path, ReferenceEvaluation) if path.is_file() else ():
        histories.setdefault(record.pop("model"), []).append(cast(Record, record))
    for name, history in histories.items():
        check_order(history, f"{path}, {name}")
    return histories


def read_summary(folder: Path) -> Summary:
    """Summary in a run directory."""
    return cast(Summary, read_manifest(folder).summary)


def save_summary(folder: Path, run: Run, summary: Summary, complete: bool = False) -> None:
    """Write run.json; `complete` once the run and its references are done."""
    data = DataIdentity(
        name=run.description["name"],
        fingerprint=run.fingerprint,
        class_names=run.description.get("class_names"),
        task=run.description.get("task"),
    )
    more = {**({"plan": run.plan} if run.plan else {}), **({"secrets": True} if run.secrets is not None else {})}
    write_manifest(folder, run.whole_settings, data, run.host.step, complete, more, summary)


def read_plan(folder: Path) -> tuple[Settings, str, Description]:
    """Settings, fingerprint of the data, and the description of the deployment when its shares were cut."""
    manifest = read_manifest(folder)
    if manifest.plan is None:
        raise GossamerError(f"{folder} was not cut for ranks; cut it with gossamer shard DATASET --ranks N")
    return read_run_settings(folder), manifest.data.fingerprint, cast(Description, manifest.plan.model_dump())


def read_run(folder: Path, graph: DataGraph, start: StartRun, steps: int | None = None, shift: Any = None) -> Run:
    """A run at its last checkpoint, with another number of steps if given; `start` hosts it.

    A shift operator that the user gave to the run must be given again: it is not stored.
    """
    if is_unfinished_launch(folder):
        raise GossamerError(
            f"{folder} is of a launch that has not ended, and its agents have the checkpoints: go on with gossamer "
            f"launch --resume {folder}, or simulate the rest with gossamer train --resume {folder}"
        )
    return restore_checkpoint(folder, _start_stored(folder, graph, steps, shift, start, _read_secrets(folder)))


def is_unfinished_launch(folder: Path) -> bool:
    """Return whether a run directory is of a launch whose agents have not all finished, or not been gathered."""
    return (folder / AGENTS_FOLDER).is_dir() and not (folder / NEWEST).is_file()


def name_command(folder: Path) -> str:
    """The command by which a run goes on."""
    return f"{'launch' if is_unfinished_launch(folder) else 'train'} --resume {folder}"


def _read_secrets(folder: Path) -> Secrets | None:
    path = folder / SECRETS_FILE
    if not path.exists() and not read_manifest(folder).secrets:
        return None
    return read_secrets(path, range(read_run_settings(folder).agents))  # without it random numbers would be others


def read_start(folder: Path, graph: DataGraph, start: StartRun) -> Run:
    """A run of a directory as it stood at step 0."""
    return _start_stored(folder, graph, None, None, start)


def read_first_stage(folder: Path, graph: DataGraph, start: StartRun, steps: int | None = None) -> Run:
    """A run of a directory at step 0 of its first stage, with its secrets."""
    return _start_stored(folder, graph, steps, None, start, _read_secrets(folder), encoded=False)


def restore_checkpoint(folder: Path, run: Run) -> Run:
    """Restore a run from the newest whole checkpoint of its directory, the same on all hosts."""
    found = read_newest_checkpoint(folder, run)
    if found is not None:
        run = restore_weights(run, found.params, found.step, found.state, str(found.path))
        basic = "mse" if run.host.task == "regression" else "accuracy"
        read = read_evaluations(folder / "metrics.jsonl", Evaluation, basic)
        history = cast(list[Record], read)
        check_order(history, str(folder / "metrics.jsonl"))
        run.history = [record for record in history if record["step"] <= found.step]
        if found.step and not run.history:
            raise GossamerError(
                f"{folder / 'metrics.jsonl'} has no evaluation up to step {found.step}, the checkpoint's"
            )
        due = find_evaluation(run.settings, found.step)
        if found.step and run.history[-1]["step"] < due:
            raise GossamerError(
                f"{folder / 'metrics.jsonl'} has no evaluation of step {due}, and the checkpoint is of {found.step}"
            )
        run.seconds = found.seconds
    step, hosts = run.engine.total(torch.tensor([run.host.step, 1], dtype=torch.float64)).tolist()
    if step != hosts * run.host.step:
        raise GossamerError(f"{folder}: not all ranks can restore step {run.host.step}; give them the same folder")
    if run.host.step > run.settings.steps:
        raise GossamerError(
            f"{folder} has done {run.host.step} steps already, asked for {run.settings.steps}; give more --steps"
        )
    return run


def read_weights(folder: Path, graph: DataGraph, start: StartRun, shift: Any = None) -> Run:
    """A run with its final weights, for prediction."""
    path = folder / "weights.safetensors"
    if not path.is_file():
        raise GossamerError(f"{folder} holds no weights yet: finish it with gossamer {name_command(folder)}")
    run = _start_stored(folder, graph, None, shift, start)
    return restore_weights(run, read_tensors(path), run.settings.steps, source=str(path))


def _start_stored(
    folder: Path,
    graph: DataGraph,
    steps: int | None,
    shift: Any,
    start: StartRun,
    secrets: Secrets | None = None,
    encoded: bool = True,
) -> Run:
    """Start the run of a directory at step 0, with its stored assignment and C, on the same data; of the graph network
    if its vertices are `encoded`."""
    manifest, settings = read_manifest(folder), read_run_settings(folder)
    if steps is not None and steps != settings.steps and settings.privacy_spec is not None:
        raise GossamerError(
            f"the privacy budget of {folder} is divided among {settings.steps} steps, and {steps} would spend more; "
            "leave --steps out, or train again"
        )
    if steps is not None:
        settings = settings.model_copy(update={"steps": steps})
    path, m = folder / "network.safetensors", settings.agents
    arrays = StoredArrays(path, read_arrays(path), f"expected those of {graph.name!r} and {m} agents")
    combination = arrays.take_combination(m)
    assignment = arrays.take_within("assignment", m, graph.num_vertices)
    links = arrays.take("links", ("bool",), None, m, m) if "links" in arrays else None
    arrays.finish()
    stored = folder / INITIAL_FILE
    initial = stored if stored.is_file() else None
    try:
        given = {"assignment": assignment, "combination": combination, "shift": shift, "initial": initial}
        if settings.encodes and encoded:
            given["encodings"] = read_encodings(folder, graph, settings)
        run = start(graph, settings, **given, secrets=secrets)
    except GossamerError as error:
        raise type(error)(f"{folder} does not hold a run that can go on: {error}") from None
    if manifest.data.fingerprint != run.fingerprint:
        raise GossamerError(
            f"the data set {graph.name!r} (or the shift operator given with it) is not the one that "
            f"{folder} was trained on"
        )
    sequence = None if run.full_deployment is None else run.deployment.certificate.sequence
    if links is not None and not (isinstance(sequence, Switching) and np.array_equal(sequence.steps, links)):
        raise GossamerError(f"the links of --topology {settings.topology} are not those that {folder} was trained on")
    if settings.encodes and (folder / ENCODER_FILE).is_file():  # not needed to go on, but by an exported model
        run.encoder = read_encoder(folder, settings, graph.num_outputs)
    return run
