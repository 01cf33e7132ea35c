"""Status of an agent, read from its folder by any process of its owner."""

import contextlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NotRequired, TypedDict

from gossamer.agents.scores import choose_score
from gossamer.errors import GossamerError
from gossamer.files import is_in_use
from gossamer.peers.agent_folders import find_last_membership, run_folder
from gossamer.peers.checkpoints import CHECKPOINT_NAME
from gossamer.peers.progress import STATUS_FILE
from gossamer.peers.refusals import RECOVERY_REASONS
from gossamer.peers.shards.shard import read_shard
from gossamer.peers.shards.sites import is_site, read_site_shard
from gossamer.runs.documents import read_json
from gossamer.runs.shares import find_agent_folder

SILENCE = 15.0  # seconds without a report, which a process makes every two, unless its arithmetic takes longer


class AgentStatus(TypedDict):
    """The object of `gossamer status --json`; None where it is not known."""

    folder: str | None  # None of an agent that is known by its metrics
    metrics: NotRequired[str]  # the address that they were read from
    agent: int
    # "not started", "starting", "planning", "training", "silent", "finished", "serving", "stopped"; where agents may
    # leave and join also "leaving", "split", "joining", "left", "outside" (the run has finished without it);
    # in metrics also "missing": others wait for it, or its process has ended
    state: str
    step: int | None
    steps: int
    loss: float | None  # of this agent's training vertices, at the last evaluation
    score: float | None  # of the whole network's validation vertices
    waiting_for: list[int]
    waited: float | None  # seconds
    detours: dict[str, list[int]]  # agents that messages for a neighbour go over, whose link is down; none in metrics
    epoch: int | None
    refused: int  # messages, without those of every recovery
    checkpoint_age: float | None  # seconds
    report_age: float | None  # seconds since the agent's process has last reported
    process: int | None
    membership: int | None  # the last one that the agent knows, where agents may leave and join
    members: list[int] | None


def read_status(folder: Path, now: float) -> AgentStatus:
    """The status of the agent in a folder, or in the folder of its run; `now` is in seconds since 1970."""
    inside = find_agent_folder(folder)
    shard = read_site_shard(inside) if is_site(inside) else read_shard(inside)
    state = run_folder(inside, shard.membership)
    report, done = read_report(state), (find_last_membership(state) / "done").is_file()
    age = None if report is None else max(0.0, now - float(report["time"]))
    running = is_in_use(state)
    times = list_checkpoint_times(state)
    refused: Mapping[str, int] = (report or {}).get("refused", {})
    metrics = (report or {}).get("metrics") or {}
    loss, weight, *_ = metrics.get("train") or (0.0, 0.0)
    return {
        "folder": str(folder),
        "agent": shard.membership.agent,
        "state": name_state(report, running, done, age),
        "step": None if report is None else int(metrics["step"] if done and "step" in metrics else report["step"]),
        "steps": shard.settings.steps if report is None else int(report["steps"]),
        "loss": loss / weight if weight else None,
        "score": _find_score(metrics, choose_score(shard.settings.score, shard.local_data.task).key(binned=True)),
        "waiting_for": list(report["waiting_for"]) if report is not None and running else [],
        "waited": float(report["waited"]) if report is not None and running else None,
        "detours": dict(report.get("detours", {})) if report is not None and running else {},
        "epoch": None if report is None else int(report["epoch"]),
        "refused": sum(count for reason, count in refused.items() if reason not in RECOVERY_REASONS),
        "checkpoint_age": max(0.0, now - max(times)) if times else None,
        "report_age": age,
        "process": int(report["process"]) if report is not None and running else None,
        "membership": None if report is None else report.get("membership"),
        "members": None if report is None else report.get("members"),
    }


def name_state(report: Mapping[str, Any] | None, running: bool, done: bool, age: float | None) -> str:
    """The state of an agent, one of those of AgentStatus, by its last report and that report's age."""
    if report is None or age is None:
        return "starting" if running else "not started"
    standing = report.get("standing", "member")
    if standing in ("left", "outside"):
        return str(standing)
    if not running:
        return "finished" if done else "stopped"
    if age > SILENCE:
        return "silent"
    if report["serving"]:
        return "serving"
    if standing in ("leaving", "split", "joining"):
        return str(standing)
    return "planning" if report["planning"] else "finished" if done else "training"


def read_report(state: Path) -> dict[str, Any] | None:
    """The last report in the folder of an agent's run."""
    try:
        content = read_json(state / STATUS_FILE)
    except FileNotFoundError:
        return None
    needed = ("step", "steps", "time", "epoch", "waiting_for", "waited", "process", "serving", "planning", "refused")
    if not isinstance(content, dict) or any(name not in content for name in needed):
        raise GossamerError(f"{state / STATUS_FILE} is no report of this version; remove it")
    return content


def list_checkpoint_times(state: Path) -> list[float]:
    """Times at which checkpoints were written; one may be removed while they are listed."""
    times = []
    for path in state.rglob("checkpoint-*"):
        if CHECKPOINT_NAME.fullmatch(path.name):
            with contextlib.suppress(FileNotFoundError):
                times.append(path.stat().st_mtime)
    return times


def _find_score(metrics: Mapping[str, Any], name: str) -> float | None:
    """The validation score of the whole network at the last evaluation."""
    found = ((metrics.get("network") or {}).get("validation") or {}).get(name)
    return None if found is None else float(found)
