"""A launched training as a run: the results of the agents' processes, gathered into one run directory."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch

from gossamer.api import Display, Result, finish, load_graph
from gossamer.data import DataGraph
from gossamer.engines.simulation import start_run
from gossamer.errors import GossamerError
from gossamer.gathering import collect_agents
from gossamer.peers.agent_folders import run_folder
from gossamer.peers.local_processes import move_ports, write_local_shards
from gossamer.peers.shards.shard import read_shard
from gossamer.peers.staged_work import HANDED_FILE, read_handed
from gossamer.runs import directory
from gossamer.runs.advice import warn_before_training
from gossamer.runs.capacity import fit_agents
from gossamer.runs.deployment import Progress
from gossamer.runs.observers import Observer
from gossamer.runs.run import Run
from gossamer.runs.run_json import read_run_settings
from gossamer.runs.secret_files import make_secrets
from gossamer.runs.settings import Settings
from gossamer.runs.stages import ENCODER, find_input_width
from gossamer.runs.tensors import read_tensors
from gossamer.runs.training import ShouldStop


def prepare(graph: DataGraph, settings: Settings, progress: Progress | None) -> Run:
    """A run at step 0, with new secrets unless its randomness is public, and with its warnings."""
    if "dataset" not in settings.model_fields_set:
        settings = settings.model_copy(update={"dataset": graph.name})
    settings = fit_agents(settings, graph.num_vertices)
    secrets = None if settings.public_randomness else make_secrets(range(settings.agents))
    run = start_run(graph, settings, progress=progress, secrets=secrets)
    warn_before_training(run.deployment, run.whole_settings)
    return run


def cut_agents(run: Run, folder: Path) -> list[Path]:
    """Write the run directory at step 0, and the shards of its agents; on one machine they can measure themselves at
    every evaluation, however their consensus is compressed."""
    directory.save_start(folder, run)
    settings = run.whole_settings
    if settings.measure == "auto" and not settings.masks:
        settings = settings.model_copy(update={"measure": "all"})
    return write_local_shards(folder / directory.AGENTS_FOLDER, run.deployment, settings, run.secrets, run.fingerprint)


def gather_launch(
    graph: DataGraph,
    run: Run,
    folders: list[Path],
    folder: Path,
    should_stop: ShouldStop = lambda: False,
    display: Display | None = None,
) -> Result:
    """Gather the agents' weights and sums into a finished run, then train its references; writes what `train` does."""
    states = find_states(folders)
    if run.stage is not None:
        run = replace(follow_encoder(run, states), seconds=run.seconds)
        directory.save_start(folder, run)
    return finish(Result(collect_agents(run, states)), graph, folder, (), should_stop, display)


def find_states(folders: Sequence[Path]) -> list[Path]:
    """The folders of the agents' runs within those of their shards."""
    return [run_folder(path, read_shard(path).membership) for path in folders]


def list_agents(folder: Path) -> list[Path]:
    """The agents' folders of a launch."""
    m = read_run_settings(folder).agents
    return [folder / directory.AGENTS_FOLDER / f"agent-{k}" for k in range(m)]


def resume_launch(folder: Path) -> tuple[DataGraph, Run, list[Path]]:
    """The data, the run at step 0 and the agents' folders of a launch that goes on, on ports that are free now."""
    if not directory.is_unfinished_launch(folder):
        raise GossamerError(
            f"{folder} is not of a launch with agents that could go on; gossamer train --resume goes on with other runs"
        )
    graph, folders = load_graph(folder), list_agents(folder)
    move_ports(folders)
    return graph, directory.read_first_stage(folder, graph, start_run), folders


def simulate_rest(
    folder: Path,
    steps: int | None,
    observers: Sequence[Observer] = (),
    should_stop: ShouldStop = lambda: False,
    display: Display | None = None,
) -> Result:
    """Go on with a launch in one process, from the latest step that all its agents have stored."""
    with directory.lock_run(folder):
        graph, states = load_graph(folder), find_states(list_agents(folder))
        run = directory.read_first_stage(folder, graph, start_run, steps)
        if run.stage is not None:
            if not all((state / ENCODER / HANDED_FILE).is_file() for state in states):
                raise GossamerError(
                    f"the agents of {folder} are still training their encoder; go on with gossamer launch --resume "
                    f"{folder}"
                )
            run = follow_encoder(run, states)
            directory.save_start(folder, run)
        return finish(Result(collect_agents(run, states)), graph, folder, observers, should_stop, display)


def follow_encoder(run: Run, states: Sequence[Path]) -> Run:
    """The graph network's run, from what the agents' encoders made of their vertices."""
    stage, owner = run.stage, run.deployment.assignment
    assert stage is not None
    settings = stage.settings
    encodings = np.zeros(
        (len(owner), find_input_width(0, run.deployment.graph.num_outputs, settings)), dtype=settings.dtype
    )
    weights = []
    for k, path in enumerate(states):
        encodings[owner == k] = read_handed(path / ENCODER)
        weights.append(read_tensors(path / ENCODER / "weights.safetensors"))
    encoder = {name: torch.cat([one[name] for one in weights]) for name in weights[0] if name.startswith("layer.0.")}
    while stage is not None and stage.name != ENCODER:  # nothing of a teacher's is needed any more
        run = stage.follow(np.zeros((len(owner), run.deployment.graph.num_outputs)))
        stage = run.stage
    assert stage is not None
    return replace(stage.follow(encodings), encoder=encoder)
