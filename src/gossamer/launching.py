"""A launched training as a run: the results of the agents' processes, gathered into one run directory."""

import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch

from gossamer.agents.consensus.neighbour_slots import pad_slots
from gossamer.agents.measures import disagreement
from gossamer.api import Display, Result, finish
from gossamer.data import DataGraph
from gossamer.engines.simulation import start_run
from gossamer.peers.evaluation_log import read_evaluation_log, score_agents
from gossamer.peers.process import run_folder
from gossamer.peers.shards.shard import read_shard
from gossamer.peers.staged_work import HANDED_FILE
from gossamer.runs import directory
from gossamer.runs.advice import warn_before_training
from gossamer.runs.capacity import fit_agents
from gossamer.runs.deployment import Progress
from gossamer.runs.records import Record
from gossamer.runs.run import Run, restore_weights
from gossamer.runs.secret_files import make_secrets
from gossamer.runs.settings import Settings
from gossamer.runs.stages import ENCODER, find_input_width
from gossamer.runs.tensors import check_tensors, pack_state, read_arrays, read_tensors, unpack_state
from gossamer.runs.training import ShouldStop, stationarity


def prepare(graph: DataGraph, settings: Settings, progress: Progress | None) -> Run:
    """A run at step 0, with new secrets unless its randomness is public, and with its warnings."""
    if "dataset" not in settings.model_fields_set:
        settings = settings.model_copy(update={"dataset": graph.name})
    settings = fit_agents(settings, graph.num_vertices)
    secrets = None if settings.public_randomness else make_secrets(range(settings.agents))
    run = start_run(graph, settings, progress=progress, secrets=secrets)
    warn_before_training(run.deployment, run.whole_settings)
    return run


def gather(
    graph: DataGraph,
    run: Run,
    folders: list[Path],
    folder: Path,
    should_stop: ShouldStop = lambda: False,
    display: Display | None = None,
) -> Result:
    """Gather the agents' weights and sums into a finished run, then train its references; writes what `train` does."""
    folders = [run_folder(path, read_shard(path).membership) for path in folders]
    if run.stage is not None:
        run = replace(_follow_encoder(run, folders), seconds=run.seconds)
        directory.save_start(folder, run)
    parts = []
    step = read_evaluation_log(folders[0] / "evaluations.jsonl")[-1]["step"]
    like = pack_state(run.host.params, run.host.state)
    expected = {name: (part.dtype, (1, *part.shape[1:])) for name, part in like.items()}
    for path in folders:
        found = read_tensors(path / f"checkpoint-{step}.safetensors")
        parts.append({name: pad_slots(part, like[name]) if name in like else part for name, part in found.items()})
        check_tensors(parts[-1], expected, str(path))
    params, state = unpack_state({name: torch.cat([part[name] for part in parts]) for name in parts[0]})
    done = restore_weights(run, params, step, state)
    done.history = _read_history(done, folders)
    return finish(Result(done), graph, folder, (), should_stop, display)


def _follow_encoder(run: Run, folders: list[Path]) -> Run:
    """The graph network's run, from what the agents' encoders made of their vertices."""
    stage, owner = run.stage, run.deployment.assignment
    assert stage is not None
    settings = stage.settings
    encodings = np.zeros(
        (len(owner), find_input_width(0, run.deployment.graph.num_outputs, settings)), dtype=settings.dtype
    )
    weights = []
    for k, path in enumerate(folders):
        encodings[owner == k] = read_arrays(path / ENCODER / HANDED_FILE)["handed"]
        weights.append(read_tensors(path / ENCODER / "weights.safetensors"))
    encoder = {name: torch.cat([one[name] for one in weights]) for name in weights[0] if name.startswith("layer.0.")}
    while stage is not None and stage.name != ENCODER:  # nothing of a teacher's is needed any more
        run = stage.follow(np.zeros((len(owner), run.deployment.graph.num_outputs)))
        stage = run.stage
    assert stage is not None
    return replace(stage.follow(encodings), encoder=encoder)


def _read_history(run: Run, folders: list[Path]) -> list[Record]:
    """Scores from the sums of all agents. Disagreement and stationarity, which need all weights, are known of the last
    step and of the weights that are kept."""
    task, width = run.host.task, run.deployment.graph.num_outputs
    tables = [read_evaluation_log(path / "evaluations.jsonl") for path in folders]
    history: list[Record] = []
    for records in zip(*tables, strict=True):
        found = score_agents(records, task, width, run.target_scale)
        record: Record = {
            "step": records[0]["step"],
            "score": run.score.key(binned=True),
            "train": found["train"],
            "validation": found["validation"],
            "test": found["test"],
            "disagreement": math.nan,
            "stationarity": math.nan,
            "best_stationarity": math.nan,
        }
        if "best_step" in records[0]:
            record["best_step"] = records[0]["best_step"]
        history.append(record)
    for host in (run.host, run.kept):
        record = next(one for one in history if one["step"] == host.step)
        record["disagreement"] = disagreement(host.params)
        record["stationarity"] = stationarity(host, run.engine)
    return history
