"""A launched training as a run: the results of the agents' processes, gathered into one run directory."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch

from gossamer.api import Display, Result, finish, load_graph
from gossamer.array_types import Ints
from gossamer.data import DataGraph
from gossamer.engines.simulation import start_run
from gossamer.errors import GossamerError
from gossamer.files import read_bytes, write_atomically
from gossamer.gathering import collect_agents, join_members
from gossamer.peers.agent_folders import run_folder
from gossamer.peers.local_processes import move_ports, write_local_shards
from gossamer.peers.rehearsal.script import Event, list_joining
from gossamer.peers.rehearsal.timeline import Timeline
from gossamer.peers.run_history import read_history
from gossamer.peers.shards.shard import read_shard
from gossamer.peers.staged_work import HANDED_FILE, read_handed
from gossamer.report.timeline import draw_timeline
from gossamer.runs import directory
from gossamer.runs.advice import warn_before_training
from gossamer.runs.capacity import fit_agents
from gossamer.runs.deployment import Progress, assign_vertices
from gossamer.runs.observers import Observer
from gossamer.runs.run import Run
from gossamer.runs.run_json import read_run_settings
from gossamer.runs.secret_files import make_secrets
from gossamer.runs.settings import Settings
from gossamer.runs.stages import ENCODER, find_input_width
from gossamer.runs.tensors import read_tensors
from gossamer.runs.toml_files import MAX_TOML_BYTES
from gossamer.runs.training import ShouldStop

SCRIPT_FILE = "rehearsal.toml"  # of a rehearsal, in its run directory


@dataclass(frozen=True)
class Launch:
    """A run of one process for each agent: its data, its run at step 0, and what happens to its agents.

    Agents that join are held back at first; `graph` has their vertices, too, and `owner` the agent of each.
    """

    graph: DataGraph
    owner: Ints
    run: Run  # of the agents that are there from the start
    events: tuple[Event, ...] = ()

    @property
    def may_change(self) -> bool:
        """Return whether agents may leave and join."""
        return self.run.whole_settings.evict_after is not None

    @property
    def joining(self) -> tuple[int, ...]:
        """Agents that join, in their order."""
        return list_joining(self.events)


def prepare(graph: DataGraph, settings: Settings, progress: Progress | None, events: tuple[Event, ...] = ()) -> Launch:
    """A launch at step 0, with new secrets unless its randomness is public, and with its warnings."""
    if "dataset" not in settings.model_fields_set:
        settings = settings.model_copy(update={"dataset": graph.name})
    settings, joining = fit_agents(settings, graph.num_vertices), list_joining(events)
    secrets = None if settings.public_randomness else make_secrets(range(settings.agents))
    if not joining:
        run = start_run(graph, settings, progress=progress, secrets=secrets)
        owner = run.deployment.assignment
    else:
        m = settings.agents
        owner = assign_vertices(graph, settings.model_copy(update={"agents": m + len(joining)}))
        there = owner < m
        first = graph.select_vertices(there)
        run = start_run(first, settings, progress=progress, assignment=owner[there], secrets=secrets)
    warn_before_training(run.deployment, run.whole_settings)
    return Launch(graph, owner, run, events)


def cut_agents(launch: Launch, folder: Path) -> list[Path]:
    """Write the run directory at step 0, and the shards of its agents; on one machine they can measure themselves at
    every evaluation, however their consensus is compressed."""
    run = launch.run
    directory.save_start(folder, run)
    settings = run.whole_settings
    if settings.measure == "auto" and not settings.masks:
        settings = settings.model_copy(update={"measure": "all"})
    return write_local_shards(
        folder / directory.AGENTS_FOLDER,
        run.deployment,
        settings,
        run.secrets,
        "" if launch.joining else run.fingerprint,  # its agents do not start with all of a data set
        launch.graph,
        launch.owner,
        launch.joining,
    )


def keep_script(script: Path, folder: Path) -> None:
    """Keep the script of a rehearsal in its run directory."""
    write_atomically(folder / SCRIPT_FILE, read_bytes(script, MAX_TOML_BYTES))


def gather_launch(
    launch: Launch,
    folders: Sequence[Path],
    folder: Path,
    timeline: Timeline,
    should_stop: ShouldStop = lambda: False,
    display: Display | None = None,
) -> Result:
    """Gather the agents' weights and sums into a finished run, then train its references; writes what `train` does.

    Where agents may leave and join, these are the members of the last membership, and the references are trained on
    their data; the `timeline` is stored and drawn.
    """
    graph, run = launch.graph, launch.run
    if launch.may_change:
        history = read_history(folders)
        if not history.finished:
            raise GossamerError(
                f"the agents of {folder} have ended before their run has finished; go on with gossamer launch "
                f"--resume {folder}"
            )
        joined = replace(join_members(history), seconds=run.seconds)
        directory.save_start(folder, joined)
        members = graph.select_vertices(np.isin(launch.owner, history.members))
        timeline.finish(history)
        timeline.save(folder)
        draw_timeline(folder / "memberships.png", timeline, f"{graph.name}, {len(folders)} agents")
        result = finish(Result(joined), members, folder, (), should_stop, display)
        result.summary["memberships"] = timeline.memberships
        directory.save_summary(folder, result.run, result.summary, result.complete)
        return result
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


def resume_launch(folder: Path) -> tuple[Launch, list[Path]]:
    """A launch that goes on, and its agents' folders, on ports that are free now."""
    if (folder / SCRIPT_FILE).is_file():
        raise GossamerError(
            f"{folder} is of a rehearsal, whose script goes from its start to its end; start it again with another "
            f"--out: gossamer launch ... --script {folder / SCRIPT_FILE}"
        )
    if not directory.is_unfinished_launch(folder):
        raise GossamerError(
            f"{folder} is not of a launch with agents that could go on; gossamer train --resume goes on with other runs"
        )
    graph, folders = load_graph(folder), list_agents(folder)
    move_ports(folders)
    run = directory.read_first_stage(folder, graph, start_run)
    return Launch(graph, run.deployment.assignment, run), folders


def simulate_rest(
    folder: Path,
    steps: int | None,
    observers: Sequence[Observer] = (),
    should_stop: ShouldStop = lambda: False,
    display: Display | None = None,
) -> Result:
    """Go on with a launch in one process, from the latest step that all its agents have stored."""
    with directory.lock_run(folder):
        if read_run_settings(folder).evict_after is not None:
            raise GossamerError(
                f"the agents of {folder} may leave and join, which one process cannot decide for them; go on with "
                f"gossamer launch --resume {folder}"
            )
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
