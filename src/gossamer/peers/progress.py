"""Progress of a peer: a report as one JSON object, and log lines about what has changed."""

import logging
import os
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NotRequired, TypedDict

from gossamer.files import PRIVATE, write_atomically
from gossamer.peers.evaluation_log import AgentMetrics, EvaluationLog
from gossamer.peers.network.transport import Transport
from gossamer.peers.protocol.member import Member
from gossamer.peers.refusals import RECOVERY_REASONS, RefusalLog
from gossamer.runs.documents import to_json


class LinkReport(TypedDict):
    """An agent's traffic with a neighbour since its process, or its membership, began."""

    sent: dict[str, int]  # bytes of payloads by kind (exchanges.TRAFFIC_KINDS), without retransmissions
    received: int  # bytes of all messages
    waited: float  # seconds in which this neighbour's messages were missing and nothing else was to be done


class PeerReport(TypedDict):
    """One report of an agent: its progress, traffic and refusals (`gossamer peer --report`)."""

    agent: int
    step: int
    planning: bool
    epoch: int
    finished: bool
    all_done: bool
    neighbours: list[int]
    waiting_for: list[int]
    waited: float  # seconds
    bytes_in: int
    bytes_out: int
    links: dict[str, LinkReport]  # by neighbour
    refused: dict[str, int]  # by reason
    refused_from: dict[str, dict[str, int]]  # by sender and reason
    dropped: int
    cpu_seconds: float
    metrics: AgentMetrics | None  # sums of the last evaluation
    steps: int  # of the run
    serving: bool  # all agents have finished, and this one stays for inference
    time: float  # of the report, seconds since 1970
    process: int
    detours: NotRequired[dict[str, list[int]]]  # agents that messages for a neighbour go over, whose link is down
    membership: NotRequired[int]  # the last one that is known, of a run whose agents may leave and join
    members: NotRequired[list[int]]  # its agents
    standing: NotRequired[str]  # "member", "leaving", "split", "joining", "left", "outside", "finished"


STATUS_FILE = "status.json"
LOG_INTERVAL = 2.0  # seconds between two log lines, at least
FIRST_WAIT, LONG_WAIT = 2.0, 15.0  # seconds of waiting that are logged first, and from which on at WARNING
JOINING = " to let it join; the log of one that refuses it says why"
_logger = logging.getLogger(__name__)


def training_step_of(member: Member, first: int) -> int:
    """The training step of a member whose training begins at the protocol's step `first`."""
    return max(0, min(member.position[0], member.config.steps) - first)


def join_numbers(agents: Sequence[int]) -> str:
    return ", ".join(map(str, agents))


def make_report(
    member: Member,
    transport: Transport,
    log: EvaluationLog,
    refusals: RefusalLog,
    waits: Mapping[int, float],
    now: float,
    first: int,
    serving: Member | None = None,
) -> PeerReport:
    """The agent's progress and what it waits for, while it serves for the next pass of inference."""
    driven = member if serving is None else serving
    return {
        "agent": member.membership.agent,
        "step": training_step_of(member, first),
        "planning": member.position[0] < first,
        "epoch": member.epoch,
        "finished": member.finished,
        "all_done": member.all_done,
        "neighbours": list(member.membership.neighbours),
        "waiting_for": list(driven.waiting_for),
        "waited": round(now - driven.waiting_since, 1),
        "bytes_in": sum(transport.bytes_in.values()),
        "bytes_out": sum(transport.bytes_out.values()),
        "links": describe_links(transport, waits, member.sent_bytes),
        "refused": dict(member.refused + transport.refused),
        "refused_from": refusals.by_sender(),
        "dropped": transport.dropped,
        "cpu_seconds": round(time.process_time(), 3),
        "metrics": log.last,
        "steps": member.config.steps - first,
        "serving": serving is not None,
        "time": round(time.time(), 3),
        "process": os.getpid(),
    }


def make_outside_report(
    agent: int,
    steps: int,
    neighbours: Sequence[int],
    transport: Transport,
    log: EvaluationLog,
    refusals: RefusalLog,
    waits: Mapping[int, float],
    waited: float,
    all_done: bool,
) -> PeerReport:
    """The report of an agent that is no member of its run."""
    return {
        "agent": agent,
        "step": 0 if log.last is None else log.last["step"],
        "planning": False,
        "epoch": 0,
        "finished": False,
        "all_done": all_done,
        "neighbours": list(neighbours),
        "waiting_for": [] if all_done else list(neighbours),
        "waited": round(waited, 1),
        "bytes_in": sum(transport.bytes_in.values()),
        "bytes_out": sum(transport.bytes_out.values()),
        "links": describe_links(transport, waits),
        "refused": dict(transport.refused),
        "refused_from": refusals.by_sender(),
        "dropped": transport.dropped,
        "cpu_seconds": round(time.process_time(), 3),
        "metrics": log.last,
        "steps": steps,
        "serving": False,
        "time": round(time.time(), 3),
        "process": os.getpid(),
    }


def describe_links(
    transport: Transport,
    waits: Mapping[int, float],
    sent: Mapping[tuple[int, str], int] | None = None,
) -> dict[str, LinkReport]:
    """Traffic by neighbour: bytes `sent` by neighbour and kind, bytes received, and seconds waited."""
    found: dict[str, LinkReport] = {}

    def link(agent: int) -> LinkReport:
        return found.setdefault(str(agent), {"sent": {}, "received": 0, "waited": 0.0})

    for (agent, kind), size in (sent or {}).items():
        link(agent)["sent"][kind] = size
    for agent, size in list(transport.bytes_in.items()):
        link(agent)["received"] = size
    for agent, seconds in waits.items():
        link(agent)["waited"] = round(seconds, 3)
    return found


def write_status(folder: Path, report: PeerReport) -> None:
    """Leave a report in the folder of the run, for gossamer status."""
    write_atomically(folder / STATUS_FILE, to_json(report).encode(), PRIVATE, durable=False)


class ProgressLog:
    """Logs a peer's reports: what has changed every LOG_INTERVAL, and waiting each time that it has doubled."""

    def __init__(self) -> None:
        self._last = ""
        self._logged_at = -LOG_INTERVAL
        self._next_wait = FIRST_WAIT

    def add(self, report: PeerReport, now: float) -> None:
        self._log_waiting(report)
        if now < self._logged_at + LOG_INTERVAL and not report["all_done"]:
            return
        text = _describe(report)
        if text != self._last:
            _logger.info("%s", text)
            self._last, self._logged_at = text, now

    def _log_waiting(self, report: PeerReport) -> None:
        waited = report["waited"]
        if waited < FIRST_WAIT:
            self._next_wait = FIRST_WAIT
        elif waited >= self._next_wait and report["waiting_for"]:
            _logger.log(
                logging.WARNING if waited >= LONG_WAIT else logging.INFO,
                "agent %d: step %d, epoch %d, waiting %.0f s for agent %s%s",
                report["agent"],
                report["step"],
                report["epoch"],
                waited,
                join_numbers(report["waiting_for"]),
                JOINING if report.get("standing") == "joining" else "",
            )
            self._next_wait = 2 * waited


def _describe(report: PeerReport) -> str:
    text = f"agent {report['agent']}: step {report['step']}, epoch {report['epoch']}"
    loss, weight, *_ = (report["metrics"] or {}).get("train", (0.0, 0.0))
    text += f", loss {loss / weight:.4f}" if weight else ""
    if report.get("standing") == "left":
        text += ", has left"
    else:
        text += ", all agents have finished" if report["all_done"] else ", finished" if report["finished"] else ""
    refused = {reason: n for reason, n in report["refused"].items() if n and reason not in RECOVERY_REASONS}
    if refused:
        text += ", refused " + ", ".join(f"{n} {reason}" for reason, n in refused.items())
    return text
