"""Views of small runs for the tests of what shows them."""

from gossamer.report.live.view import AgentView, NeighbourView, RunView


def make_link(neighbour: int) -> NeighbourView:
    return {
        "neighbour": neighbour,
        "sent": {"forward": 1000 + neighbour, "consensus": 7},
        "received": 900 + neighbour,
        "waited": 0.25,
    }


def make_agent(agent: int, state: str = "training") -> AgentView:
    return {
        "agent": agent,
        "state": state,
        "step": 40 + agent,
        "epoch": 2,
        "loss": 0.5 + agent,
        "vertices": 10,
        "labels": 3,
        "waiting_for": [1] if agent == 0 else [],
        "waited": 1.5,
        "refused": {"signature": 4} if agent == 0 else {},
        "checkpoint_age": 12.0,
        "report_age": None,
        "neighbours": [make_link(other) for other in range(3) if other != agent],
    }


def make_view(own: int | None = None) -> RunView:
    return {
        "title": "digits, 3 agents",
        "own": own,
        "state": "training",
        "activity": "",
        "step": 41,
        "steps": 100,
        "seconds": 9.5,
        "score": "accuracy",
        "agents": [make_agent(0), make_agent(1, "missing"), make_agent(2)],
        "positions": {},
        "evaluations": [
            {"step": 30, "loss": 2.0, "train": 0.1, "validation": 0.1, "test": 0.1, "disagreement": 1.0},
            {"step": 40, "loss": 1.25, "train": 0.75, "validation": 0.5, "test": None, "disagreement": None},
        ],
        "references": {},
        "memberships": [
            {"number": 0, "members": [0, 1, 2], "from_step": 0, "seconds": 0.0, "stopped": None},
            {"number": 1, "members": [0, 2], "from_step": 30, "seconds": 5.0, "stopped": 3.0},
        ],
        "certificate": None,
        "log": [],
    }
