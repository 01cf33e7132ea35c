"""An audit of a run directory, of an agent's folder or of settings: what curious agents learn from messages.

The messages are those that agents have recorded in the run itself or, without a record, those of a simulation of it.
"""

import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Unpack

import numpy as np

from gossamer.api import load_graph
from gossamer.array_types import Floats
from gossamer.data import DataGraph, load
from gossamer.engines.simulation import run_together, start_run
from gossamer.errors import GossamerError, GossamerWarning
from gossamer.peers.agent_folders import EVALUATIONS_FILE, read_trained_shard, run_folder
from gossamer.peers.evaluation_log import read_evaluation_log
from gossamer.peers.sessions import SESSION_LOG, count_repeated_sessions
from gossamer.peers.shards.shard import read_shard
from gossamer.privacy.audit import Audit, attack_run, audit_deployment, choose_curious
from gossamer.privacy.canary_runs import audit_with_canaries
from gossamer.privacy.encoded import decode_audit, view_encodings
from gossamer.privacy.knowledge import check_curious
from gossamer.privacy.membership import attack_membership, check_shadow_runs
from gossamer.privacy.noisy import attack_sums, audit_private
from gossamer.privacy.own_share import deploy_share, know_own_row, number_vertices
from gossamer.report.audit_tables import describe_audit
from gossamer.report.reconstructions import draw_reconstructions
from gossamer.runs import directory
from gossamer.runs.capacity import fit_agents
from gossamer.runs.deployment import Deployment
from gossamer.runs.encoders import read_encoder
from gossamer.runs.handover import train_stages
from gossamer.runs.loading import load_dataset, take_graph
from gossamer.runs.observers import Observer
from gossamer.runs.options import Options
from gossamer.runs.recordings import RECORD_FOLDER, Recording, read_recording
from gossamer.runs.run import Run
from gossamer.runs.run_json import read_manifest
from gossamer.runs.secret_files import SECRETS_FILE, read_secrets
from gossamer.runs.settings import Settings, make_settings
from gossamer.runs.shares import MANIFEST
from gossamer.runs.stored_results import write_findings
from gossamer.runs.training import measure_scores, run_training, use_threads

PICTURE = "reconstructions.png"


@dataclass(frozen=True)
class AuditOptions:
    """Curious agents, and the extent of attacks."""

    curious: Sequence[int] | None = None  # None: the agent that sees most
    attack: bool = True
    attack_steps: int | None = None  # None: the first of the run
    sample: int | None = None  # vertices to reconstruct; None: as many as take under a minute
    membership: int = 0  # shadow runs
    picture: Path | None = None
    canaries: int = 0  # in a private run


def audit(
    target: Any = None,
    *,
    curious: int | Sequence[int] | None = None,
    attack: bool = True,
    attack_steps: int | None = None,
    sample: int | None = None,
    membership: int = 0,
    picture: str | Path | None = None,
    canaries: int = 0,
    graph: Any = None,
    **options: Unpack[Options],
) -> Audit:
    """Say what an agent, or a coalition, learns about all other agents' vertices (`gossamer docs privacy`).

    `target` is a run directory, the folder of an agent that has trained as a peer, or what `gossamer.train` takes as
    its data set, with the options of a run. `curious` is an agent or several. A graph that was given to `train` from
    memory must be given again as `graph`. `picture` is a .png file for originals beside reconstructions. `canaries` are
    vertices that bound the epsilon of a private run from below.
    """
    who = [curious] if isinstance(curious, int) else curious
    if who is not None and not all(isinstance(k, int) for k in who):
        raise GossamerError(f"expected the number of an agent, or several, as curious; got {curious!r}")
    to = None if picture is None else Path(picture)
    asked = AuditOptions(who, attack, attack_steps, sample, membership, to, canaries)
    if isinstance(target, str | Path) and (Path(target) / "run.json").is_file():
        if options:
            raise GossamerError("a run directory is audited with its own settings; give no other ones with it")
        return audit_run(Path(target), asked, None if graph is None else load(graph))
    if isinstance(target, str | Path) and (Path(target) / MANIFEST).is_file():
        if options or graph is not None:
            raise GossamerError("an agent's folder is audited with its own settings and data; give no others with it")
        return audit_agent(Path(target), asked)
    settings = make_settings({**options, **({"dataset": str(target)} if isinstance(target, str | Path) else {})})
    given = graph if target is None or isinstance(target, str | Path) else target
    data = load_dataset(settings) if given is None else take_graph(given, settings)
    return audit_settings(data, settings, asked)


def audit_run(folder: Path, asked: AuditOptions, graph: DataGraph | None = None) -> Audit:
    """Audit a run directory, and leave the findings in it."""
    data = load_graph(folder) if graph is None else graph
    started, taken = directory.read_start(folder, data, start_run), read_manifest(folder).step
    if started.settings.encoder:
        started.encoder = read_encoder(folder, started.settings, data.num_outputs)
    if (folder / SECRETS_FILE).exists():  # of a launch: a simulation sends the same messages
        started.secrets = read_secrets(folder / SECRETS_FILE, range(started.settings.agents))
    if taken:  # patience, or a stop, may have ended it early
        started.settings = started.settings.model_copy(update={"steps": taken, "patience": 0})
    recording = _read_recordings(folder, asked, started.deployment) if asked.attack else None
    found = _audit(started, data, asked, recording)
    logs = [path.parent for path in folder.glob(f"agents/*/*/{SESSION_LOG}")]  # of a launch
    if logs:
        found.repeated_pads = sum(map(count_repeated_sessions, logs))
    try:
        write_findings(folder, found.to_dict(), describe_audit(found))
    except OSError as error:  # whoever asks may not be who trained
        warnings.warn(f"the findings are not kept for gossamer report: {error}", GossamerWarning, stacklevel=2)
    return found


def audit_settings(graph: DataGraph, settings: Settings, asked: AuditOptions) -> Audit:
    """Audit the run that settings describe."""
    return _audit(start_run(graph, fit_agents(settings, graph.num_vertices)), graph, asked)


def audit_agent(folder: Path, asked: AuditOptions) -> Audit:
    """Audit the folder of an agent (or site) that has trained as a peer, from its own share and what it has recorded.

    The truth is with others: reconstructions are reported, and no rates. Without a record there is algebra alone.
    """
    if asked.curious is not None or asked.membership or asked.picture is not None:
        raise GossamerError(
            f"{folder} holds one agent's share: its agent is the observer, and there is no truth to compare with; "
            "leave --observer, --coalition, --membership and --out away, or audit the directory of the whole run"
        )
    shard, state = read_trained_shard(folder)
    settings, own = shard.settings, shard.membership
    if settings.encodes:
        raise GossamerError(
            f"{folder} is that of a run with an encoder or a privacy budget, which is audited as a whole: audit the "
            "run directory, or its settings"
        )
    metrics = state / EVALUATIONS_FILE
    if (state / "done").is_file() and metrics.is_file():  # patience may have ended it early
        settings = settings.model_copy(update={"steps": read_evaluation_log(metrics)[-1]["step"], "patience": 0})
    deployment, fields = deploy_share(shard.share, settings)
    found, seen = audit_deployment(deployment, settings, [own.agent], know_own_row(settings), fields)
    found.judged = False
    if (state / SESSION_LOG).exists():
        found.repeated_pads = count_repeated_sessions(state)
    if asked.attack and (state / RECORD_FOLDER).is_dir():
        recording = read_recording(state / RECORD_FOLDER, own.run, own.agent)
        found = attack_run(found, seen, deployment, run_together, asked.attack_steps, asked.sample, recording)
    return number_vertices(found, shard.share)


def _read_recordings(folder: Path, asked: AuditOptions, deployment: Deployment) -> Recording | None:
    """Messages that the curious agents of a launch have recorded; None if they have not."""
    curious = (
        [choose_curious(deployment)] if asked.curious is None else check_curious(asked.curious, deployment.num_agents)
    )
    folders = {k: folder / "agents" / f"agent-{k}" for k in curious}
    found = {k: read_shard(path).membership for k, path in folders.items() if list(path.glob(f"run-*/{RECORD_FOLDER}"))}
    silent = sorted(set(curious) - set(found))
    if silent and found:
        raise GossamerError(
            f"agent {silent[0]} has not recorded, and others of the coalition have; leave it out, or remove the "
            f"folders {RECORD_FOLDER!r} in {folder / 'agents'} to simulate the run"
        )
    whole: Recording | None = None
    for k, own in found.items():
        one = read_recording(run_folder(folders[k], own) / RECORD_FOLDER, own.run, k)
        whole = one if whole is None else whole.join(one)
    return whole


def _audit(run: Run, graph: DataGraph, asked: AuditOptions, recording: Recording | None = None) -> Audit:
    deployment, settings = run.deployment, run.whole_settings
    if asked.picture is not None and (asked.picture.suffix != ".png" or not asked.picture.parent.is_dir()):
        raise GossamerError(f"expected a .png file in a folder that exists for the picture, got {asked.picture}")
    if settings.agents == 1:
        raise GossamerError("one agent sends nothing to anybody: there is nothing to audit; give --agents 2 or more")
    if asked.membership:
        check_shadow_runs(graph, asked.membership)
    if asked.canaries and settings.privacy_spec is None:
        raise GossamerError("canaries bound the epsilon of a run with --privacy; leave --canaries out")
    curious = [choose_curious(deployment)] if asked.curious is None else asked.curious
    if settings.privacy_spec is not None:
        return _audit_private(run, asked, curious)
    if settings.encodes:
        with use_threads(run):
            trained = train_stages(run, lambda name, steps: Observer())
        view, plain = view_encodings(trained.deployment, settings)
        seen_as = replace(trained, full_deployment=view, settings=plain, stage=None)
        found = _audit_plain(seen_as, graph, replace(asked, membership=0, picture=None), recording, curious)
        assert trained.encoder is not None
        found = decode_audit(found, trained.deployment, settings, trained.encoder)
    else:
        found = _audit_plain(run, graph, asked, recording, curious)
    if asked.picture is not None and found.feature_attack is not None:
        draw_reconstructions(asked.picture, found.feature_attack, graph.name, deployment.transform)
    return found


def _audit_private(run: Run, asked: AuditOptions, curious: Sequence[int]) -> Audit:
    """The audit of a private run: its budget, and attacks on what is noisy."""
    deployment, settings = run.deployment, run.whole_settings
    found = audit_private(deployment, settings, curious)
    if asked.membership:
        raise GossamerError("membership in a private run is audited with --canaries N, at one training")
    with use_threads(run):
        if asked.attack:
            found.label_attack = attack_sums(found, deployment, settings, run.secrets)
        if asked.canaries:
            found.canaries = audit_with_canaries(deployment, settings, asked.canaries, settings.seed)
    return found


def _audit_plain(
    run: Run, graph: DataGraph, asked: AuditOptions, recording: Recording | None, curious: Sequence[int]
) -> Audit:
    """The audit of a run whose rows are functions of features as they are."""
    deployment, settings = run.deployment, run.settings
    found, seen = audit_deployment(deployment, settings, curious)
    with use_threads(run):
        if asked.attack:
            steps, sample = asked.attack_steps, asked.sample
            found = attack_run(found, seen, deployment, run_together, steps, sample, recording, run.secrets)
        if asked.membership:
            found.membership = _infer_membership(run, graph, asked.membership)
    return found


def _infer_membership(run: Run, graph: DataGraph, shadow_runs: int) -> Any:
    """The attack on membership with shadow runs of the same settings, each on half of the training vertices."""

    def predict(shadow: DataGraph) -> Floats:
        settings = run.settings.model_copy(
            update={"keep": "last", "patience": 0, "evaluate_every": max(1, run.settings.steps)}
        )
        other = start_run(
            shadow, settings, assignment=run.deployment.assignment, combination=run.deployment.combination
        )
        run_training(other, measure=measure_scores)
        return np.asarray(other.predict().double().numpy())

    return attack_membership(graph, shadow_runs, predict, run.settings.seed)
