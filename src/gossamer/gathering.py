"""Agents' folders joined into one run: their weights stacked, and their evaluations, in one run directory.

Where agents may leave and join, the members of the last membership are joined; what was evaluated before it is as they
have logged it.
"""

import warnings
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch

from gossamer.agents.consensus.neighbour_slots import pad_slots
from gossamer.agents.measures import disagreement
from gossamer.agents.salts import Secrets
from gossamer.api import Result, finish
from gossamer.engines.simulation import Simulation
from gossamer.errors import GossamerError, GossamerWarning
from gossamer.peers.agent_folders import EVALUATIONS_FILE, read_trained_shard
from gossamer.peers.checkpoints import find_checkpoints
from gossamer.peers.evaluation_log import AgentMetrics, read_evaluation_log, score_agents
from gossamer.peers.progress import join_numbers
from gossamer.peers.results import make_record, track_best
from gossamer.peers.run_history import RunHistory, list_memberships, may_change, read_history
from gossamer.peers.shards.shard import Shard
from gossamer.peers.staged_work import read_handed
from gossamer.runs import directory, new_folders
from gossamer.runs.encoders import ENCODER_FILE
from gossamer.runs.hosts import build_host
from gossamer.runs.joined import join_shares
from gossamer.runs.manifests import DataIdentity
from gossamer.runs.records import Record
from gossamer.runs.run import Run, restore_weights
from gossamer.runs.secret_files import SECRETS_FILE, read_secrets
from gossamer.runs.shares import find_agent_folder
from gossamer.runs.stages import ENCODER, find_input_width
from gossamer.runs.tensors import check_tensors, pack_state, read_tensors, unpack_state
from gossamer.runs.training import stationarity


def gather_agents(folders: Sequence[Path], out: Path) -> Result:
    """Join the folders of all agents of a finished run, and write its run directory."""
    found = [find_agent_folder(folder) for folder in folders]
    if any(may_change(folder) for folder in found):
        return _gather_members(read_history(found), out)
    given = [read_trained_shard(folder) for folder in found]
    agents = sorted(given, key=lambda one: one[0].membership.agent)
    check_agents_at_hand([shard for shard, _ in agents])
    for shard, state in agents:
        if not (state / "done").is_file():
            raise GossamerError(
                f"agent {shard.membership.agent} has not finished ({state}); see gossamer status {state.parent}"
            )
    run = join_run([shard for shard, _ in agents], [state for _, state in agents])
    run = collect_agents(run, [state for _, state in agents])
    with new_folders.create_locked(out):
        directory.save_start(out, run)
        return finish(Result(run), None, out)


def _gather_members(history: RunHistory, out: Path) -> Result:
    """Join the members of a finished run's last membership, and write its run directory."""
    for shard, state in history.read_last():
        if not (state / "done").is_file():
            agent = history.members[shard.membership.agent]
            raise GossamerError(
                f"agent {agent} has not finished ({state}); see gossamer status {history.states[agent].parent}"
            )
    if history.others:
        warnings.warn(
            f"agent {join_numbers(history.others)} was no member when the run ended and is left out: the run directory "
            f"holds the agents {join_numbers(history.members)}, numbered 0 to {len(history.members) - 1} in this order",
            GossamerWarning,
            stacklevel=3,
        )
    run = join_members(history)
    with new_folders.create_locked(out):
        directory.save_start(out, run)
        result = finish(Result(run), None, out)
        if len(history.terms) > 1:
            result.summary["memberships"] = list_memberships(history)
            directory.save_summary(out, result.run, result.summary, result.complete)
        return result


def join_members(history: RunHistory) -> Run:
    """The run of the members of the last membership, with their weights and the evaluations of all memberships."""
    shards, states = map(list, zip(*history.read_last(), strict=True))
    if not history.is_whole:  # vertices have gone, or come: this is no data set that could be loaded
        shards = [
            one if one.identity is None else replace(one, identity=one.identity.model_copy(update={"fingerprint": ""}))
            for one in shards
        ]
    run = replace(join_run(shards, states), since=history.last_begin)
    return collect_agents(run, states, history.list_earlier())


def check_agents_at_hand(shards: Sequence[Shard]) -> None:
    """Require the shards of all agents of one run, once each and in order."""
    runs = sorted({shard.membership.run for shard in shards})
    if len(runs) > 1:
        raise GossamerError(f"expected the agents of one run, got those of {' and '.join(runs[:2])}")
    found, m = [shard.membership.agent for shard in shards], shards[0].membership.num_agents
    twice = [k for k in set(found) if found.count(k) > 1]
    if twice:
        raise GossamerError(f"agent {twice[0]} is given twice; give each agent's folder once")
    missing = sorted(set(range(m)) - set(found))
    if missing:
        raise GossamerError(
            f"expected the folders of all {m} agents, and agent {', '.join(map(str, missing))} is missing; copy it "
            "here, or use one agent's folder alone: gossamer export and --initial take it, with the mean of all weights"
        )


def join_run(shards: Sequence[Shard], states: Sequence[Path]) -> Run:
    """The run of all agents at step 0, from their shares; `states` are the folders of their runs."""
    settings, share = shards[0].settings, shards[0].share
    identity = shards[0].identity or DataIdentity(name=settings.dataset, fingerprint="", task=share.task)
    if not identity.fingerprint:  # sites have no data set that could be loaded
        settings = settings.model_copy(update={"dataset": identity.name})
    names = [shard.names for shard in shards if shard.names is not None]
    shares = [shard.share for shard in shards]
    deployment = join_shares(shares, settings, identity.name, identity.class_names, names)
    encoder = None
    if settings.encodes:
        width = find_input_width(0, deployment.graph.num_outputs, settings)
        encodings = np.zeros((deployment.graph.num_vertices, width), dtype=settings.dtype)
        for k, state in enumerate(states):
            encodings[deployment.assignment == k] = read_handed(state / ENCODER)
        deployment = replace(deployment, handed=encodings)
        parts = [read_tensors(state / ENCODER_FILE) for state in states]
        encoder = {name: torch.cat([part[name] for part in parts]) for name in parts[0]}
    # Weights of classes are in those of the examples already.
    host = build_host(deployment, settings.model_copy(update={"class_weights": "none"}))
    secrets = None
    if not settings.public_randomness:
        owned = [read_secrets(state / SECRETS_FILE, [k]).by_agent for k, state in enumerate(states)]
        secrets = Secrets({k: secret for one in owned for k, secret in one.items()})
    return Run(settings, deployment, host, identity.fingerprint, Simulation(), encoder=encoder, secrets=secrets)


def collect_agents(run: Run, states: Sequence[Path], earlier: Sequence[AgentMetrics] = ()) -> Run:
    """The run with the weights and evaluations of its agents, at the latest step that all of them have stored;
    `earlier` evaluations have the scores of those that there were before them."""
    step = max(set.intersection(*({0, *find_checkpoints(state)} for state in states)))
    if step == 0 and not all(0 in find_checkpoints(state) for state in states):
        return run
    like = pack_state(run.host.params, run.host.state)
    expected = {name: (part.dtype, (1, *part.shape[1:])) for name, part in like.items()}
    parts = []
    for state in states:
        path = state / f"checkpoint-{step}.safetensors"
        found = read_tensors(path)
        parts.append({name: pad_slots(part, like[name]) if name in like else part for name, part in found.items()})
        check_tensors(parts[-1], expected, str(path))
    params, statistics = unpack_state({name: torch.cat([part[name] for part in parts]) for name in parts[0]})
    done = restore_weights(run, params, step, statistics)
    logs = [
        [one for one in read_evaluation_log(path / EVALUATIONS_FILE) if one["step"] >= run.since] for path in states
    ]
    done.history = _join_histories(done, logs, earlier)
    return done


def _join_histories(run: Run, logs: Sequence[Sequence[AgentMetrics]], earlier: Sequence[AgentMetrics]) -> list[Record]:
    """Scores from the sums of all agents, up to the run's step, with disagreement and g^t as agents have measured them;
    of the last step and of the weights that are kept, they are measured here."""
    score = run.score.key(binned=True)
    task, width = run.host.task, run.deployment.graph.num_outputs
    by_step = [{one["step"]: one for one in log if one["step"] <= run.host.step} for log in logs]
    steps = sorted(set.intersection(*map(set, by_step)))
    first = min(steps, default=run.host.step + 1)  # none: the last membership has ended before an evaluation
    history = [make_record(one, score, one["network"]) for one in earlier if one["step"] < first]
    for step in steps:
        records = [log[step] for log in by_step]
        found = score_agents(records, task, width, run.target_scale)
        history.append(make_record(records[0], score, found))
    for host in (run.host, run.kept):
        for record in history:
            if record["step"] == host.step:
                record["disagreement"] = disagreement(host.params)
                record["stationarity"] = stationarity(host, run.engine)
    track_best(history)
    return history
