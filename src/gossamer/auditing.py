"""An audit of a run directory or of settings: what curious agents learn, measured on a simulation of the run."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Unpack

import numpy as np

from gossamer.api import load_graph
from gossamer.array_types import Floats
from gossamer.data import DataGraph, load
from gossamer.engines.simulation import run_together, start_run
from gossamer.errors import GossamerError
from gossamer.peers.sessions import SESSION_LOG, count_repeated_sessions
from gossamer.privacy.audit import Audit, attack_run, audit_deployment, choose_curious
from gossamer.privacy.membership import attack_membership, check_shadow_runs
from gossamer.report.reconstructions import draw_reconstructions
from gossamer.runs import directory
from gossamer.runs.options import Options
from gossamer.runs.run import Run
from gossamer.runs.settings import Settings, make_settings
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


def audit(
    target: Any = None,
    *,
    curious: int | Sequence[int] | None = None,
    attack: bool = True,
    attack_steps: int | None = None,
    sample: int | None = None,
    membership: int = 0,
    picture: str | Path | None = None,
    graph: Any = None,
    **options: Unpack[Options],
) -> Audit:
    """Say what an agent, or a coalition, learns about all other agents' vertices (docs/privacy.md).

    `target` is a run directory, or what `gossamer.train` takes as its data set, with the options of a run. `curious` is
    an agent or several. A graph that was given to `train` from memory must be given again as `graph`. `picture` is a
    .png file for originals beside reconstructions.
    """
    who = [curious] if isinstance(curious, int) else curious
    if who is not None and not all(isinstance(k, int) for k in who):
        raise GossamerError(f"expected the number of an agent, or several, as curious; got {curious!r}")
    asked = AuditOptions(who, attack, attack_steps, sample, membership, None if picture is None else Path(picture))
    if isinstance(target, str | Path) and (Path(target) / "run.json").is_file():
        if options:
            raise GossamerError("a run directory is audited with its own settings; give no other ones with it")
        return audit_run(Path(target), asked, None if graph is None else load(graph))
    settings = make_settings({**options, **({"dataset": str(target)} if isinstance(target, str | Path) else {})})
    given = graph if target is None or isinstance(target, str | Path) else target
    data = load(
        settings.dataset if given is None else given,
        settings.seed,
        symmetrise=settings.symmetrise,
        task=settings.task,
    )
    return audit_settings(data, settings, asked)


def audit_run(folder: Path, asked: AuditOptions, graph: DataGraph | None = None) -> Audit:
    """Audit a run directory."""
    data = load_graph(folder) if graph is None else graph
    started, taken = directory.read_start(folder, data, start_run), directory.read_manifest(folder).step
    if taken:  # patience, or a stop, may have ended it early
        started.settings = started.settings.model_copy(update={"steps": taken, "patience": 0})
    found = _audit(started, data, asked)
    logs = [path.parent for path in folder.glob(f"agents/*/*/{SESSION_LOG}")]  # of a launch
    if logs:
        found.repeated_pads = sum(map(count_repeated_sessions, logs))
    return found


def audit_settings(graph: DataGraph, settings: Settings, asked: AuditOptions) -> Audit:
    """Audit the run that settings describe."""
    return _audit(start_run(graph, settings), graph, asked)


def _audit(run: Run, graph: DataGraph, asked: AuditOptions) -> Audit:
    deployment, settings = run.deployment, run.settings
    if asked.picture is not None and (asked.picture.suffix != ".png" or not asked.picture.parent.is_dir()):
        raise GossamerError(f"expected a .png file in a folder that exists for the picture, got {asked.picture}")
    if settings.agents == 1:
        raise GossamerError("one agent sends nothing to anybody: there is nothing to audit; give --agents 2 or more")
    if asked.membership:
        check_shadow_runs(graph, asked.membership)
    curious = [choose_curious(deployment)] if asked.curious is None else asked.curious
    found, seen = audit_deployment(deployment, settings, curious)
    with use_threads(run):
        if asked.attack:
            found = attack_run(found, seen, deployment, run_together, asked.attack_steps, asked.sample)
        if asked.membership:
            found.membership = _infer_membership(run, graph, asked.membership)
    if asked.picture is not None and found.feature_attack is not None:
        draw_reconstructions(asked.picture, found.feature_attack, graph.name, deployment.transform)
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
