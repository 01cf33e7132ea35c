"""The view of a run that goes on: all that its live page and its Prometheus metrics show, as one JSON object.

A source (a simulation, a peer, the processes of a launch, a run directory) keeps a view up to date; pages and metrics
read it. It holds no features, labels, rows or weights.
"""

from typing import TypedDict

from gossamer.runs.records import MembershipRecord


class NeighbourView(TypedDict):
    """An agent's link to a neighbour."""

    neighbour: int
    sent: dict[str, int]  # bytes by phase: "forward", "backward", "consensus", "evaluation", "protocol"
    received: int  # bytes
    waited: float | None  # seconds that the agent has waited for this neighbour so far; None in simulations


class AgentView(TypedDict):
    """An agent; None where it is not known."""

    agent: int
    # "training", "finished", ... as in gossamer.peers.status.AgentStatus; "missing": others wait for it, or its process
    # has ended; "unknown": those that see it do not run
    state: str
    step: int | None
    epoch: int | None
    loss: float | None  # of its training vertices, at the last evaluation
    vertices: int | None
    labels: int | None  # training vertices
    waiting_for: list[int]
    waited: float  # seconds that it has been waiting now
    refused: dict[str, int]  # messages and connections, by reason
    checkpoint_age: float | None  # seconds
    report_age: float | None  # seconds since its process has last reported
    neighbours: list[NeighbourView]


class EvaluationView(TypedDict):
    """An evaluation of the whole network; None where it is not known."""

    step: int
    loss: float | None
    train: float | None
    validation: float | None
    test: float | None
    disagreement: float | None


class CertificateView(TypedDict):
    """The certificate of the topology."""

    holds: dict[str, bool]  # "A1", "A2", "A3"
    spectral_radius: float
    needed_links: int
    added_links: int
    edges_kept: float  # share of the data edges
    edges_relayed: float  # share that goes over agents between


class LogLine(TypedDict):
    """A line of the log."""

    time: float  # seconds since 1970
    level: str  # "info", "warning", "error"
    text: str


class RunView(TypedDict):
    """A run, as one process sees it."""

    title: str  # "cora, 10 agents"
    own: int | None  # the agent whose own page this is: others are known by what it sees of them
    state: str  # "starting", "training", "finished", "stopped"
    activity: str  # what is done but training the network: "training the centralised reference", or nothing
    step: int
    steps: int
    seconds: float  # of training: they stand still once it has ended
    score: str  # name of the score that is validated on
    agents: list[AgentView]
    positions: dict[str, tuple[float, float]]  # of agents on the map, by id; from -1 to 1
    evaluations: list[EvaluationView]
    references: dict[str, list[EvaluationView]]  # evaluations of "centralised" and "graphless"
    memberships: list[MembershipRecord]
    certificate: CertificateView | None
    log: list[LogLine]  # the last ones


def starting_view(title: str) -> RunView:
    """The view of a run of which nothing is known yet."""
    return {
        "title": title,
        "own": None,
        "state": "starting",
        "activity": "",
        "step": 0,
        "steps": 0,
        "seconds": 0.0,
        "score": "",
        "agents": [],
        "positions": {},
        "evaluations": [],
        "references": {},
        "memberships": [],
        "certificate": None,
        "log": [],
    }
