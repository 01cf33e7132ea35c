"""Status of an agent, read from its folder by any process of its owner."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypedDict

from gossamer.files import is_in_use
from gossamer.peers.agent_folders import run_folder
from gossamer.peers.checkpoints import CHECKPOINT_NAME
from gossamer.peers.progress import STATUS_FILE
from gossamer.peers.refusals import RECOVERY_REASONS
from gossamer.peers.shards.shard import read_shard
from gossamer.peers.shards.sites import is_site, read_site_shard
from gossamer.runs.documents import read_json


class AgentStatus(TypedDict):
    """The object of `gossamer status --json`; None where it is not known."""

    folder: str
    agent: int
    state: str  # "not started", "starting", "planning", "training", "finished", "serving", "stopped"
    step: int | None
    steps: int
    loss: float | None  # of this agent's training vertices, at the last evaluation
    score: float | None  # of the whole network's validation vertices
    waiting_for: list[int]
    waited: float | None  # seconds
    epoch: int | None
    refused: int  # messages, without those of every recovery
    checkpoint_age: float | None  # seconds
    report_age: float | None  # seconds since the agent's process has last reported
    process: int | None


def read_status(folder: Path, now: float) -> AgentStatus:
    """The status of the agent in a folder, or in the folder of its run; `now` is in seconds since 1970."""
    inside = folder.parent if folder.name.startswith("run-") else folder
    shard = read_site_shard(inside) if is_site(inside) else read_shard(inside)
    state = run_folder(inside, shard.membership)
    report = _read_report(state)
    age = None if report is None else max(0.0, now - float(report["time"]))
    running = is_in_use(state)
    times = [path.stat().st_mtime for path in _list_checkpoints(state)]
    refused: Mapping[str, int] = (report or {}).get("refused", {})
    metrics = (report or {}).get("metrics") or {}
    loss, weight, *_ = metrics.get("train") or (0.0, 0.0)
    return {
        "folder": str(folder),
        "agent": shard.membership.agent,
        "state": _name_state(report, running, (state / "done").is_file()),
        "step": None if report is None else int(report["step"]),
        "steps": shard.settings.steps if report is None else int(report["steps"]),
        "loss": loss / weight if weight else None,
        "score": _find_score(metrics, shard.settings.score),
        "waiting_for": list(report["waiting_for"]) if report is not None and running else [],
        "waited": float(report["waited"]) if report is not None and running else None,
        "epoch": None if report is None else int(report["epoch"]),
        "refused": sum(count for reason, count in refused.items() if reason not in RECOVERY_REASONS),
        "checkpoint_age": max(0.0, now - max(times)) if times else None,
        "report_age": age,
        "process": int(report["process"]) if report is not None and running else None,
    }


def _name_state(report: Mapping[str, Any] | None, running: bool, done: bool) -> str:
    if report is None:
        return "starting" if running else "not started"
    if not running:
        return "finished" if done else "stopped"
    if report["serving"]:
        return "serving"
    return "planning" if report["planning"] else "finished" if done else "training"


def _read_report(state: Path) -> dict[str, Any] | None:
    try:
        found: dict[str, Any] = read_json(state / STATUS_FILE)
    except FileNotFoundError:
        return None
    return found


def _list_checkpoints(state: Path) -> list[Path]:
    return [path for path in state.rglob("checkpoint-*") if CHECKPOINT_NAME.fullmatch(path.name)]


def _find_score(metrics: Mapping[str, Any], name: str) -> float | None:
    """The validation score of the whole network at the last evaluation."""
    scores = (metrics.get("network") or {}).get("validation") or {}
    for key in (name, f"{name}_binned", "accuracy", "mse", "loss"):
        if scores.get(key) is not None:
            return float(scores[key])
    return None
