"""A feed's view, and a client of its page, for tests."""

import http.client
import json
from typing import Any
from urllib.parse import urlsplit

from gossamer.report.live.view import AgentView, EvaluationView, LogLine, RunView

LIMIT = 20.0  # seconds


def an_agent(agent: int, neighbours: tuple[int, ...] = (), state: str = "training") -> AgentView:
    return {
        "agent": agent,
        "state": state,
        "step": 3,
        "epoch": 1,
        "loss": 0.5,
        "vertices": 10,
        "labels": 2,
        "waiting_for": [],
        "waited": 0.0,
        "refused": {},
        "checkpoint_age": None,
        "report_age": 0.1,
        "neighbours": [
            {"neighbour": other, "sent": {"forward": 100, "consensus": 50}, "received": 150, "waited": 0.5}
            for other in neighbours
        ],
    }


def an_evaluation(step: int, loss: float | None = 0.5) -> EvaluationView:
    return {"step": step, "loss": loss, "train": 0.9, "validation": 0.8, "test": 0.7, "disagreement": 0.01}


def a_line(text: str) -> LogLine:
    return {"time": 1_700_000_000.0, "level": "info", "text": text}


def a_view(count: int = 3, evaluations: int = 2, **changes: Any) -> RunView:
    """A ring of agents that has been evaluated at steps 1, 2, ..."""
    agents = [an_agent(k, ((k - 1) % count, (k + 1) % count) if count > 2 else ()) for k in range(count)]
    view: RunView = {
        "title": "digits, 3 agents",
        "own": None,
        "state": "training",
        "activity": "",
        "step": evaluations,
        "steps": 100,
        "seconds": 1.5,
        "score": "accuracy",
        "agents": agents,
        "positions": {},
        "evaluations": [an_evaluation(step) for step in range(1, evaluations + 1)],
        "references": {},
        "memberships": [],
        "certificate": None,
        "log": [],
    }
    return view | changes  # type: ignore[return-value]


def connect(url: str) -> http.client.HTTPConnection:
    parts = urlsplit(url)
    return http.client.HTTPConnection(parts.hostname or "", parts.port, timeout=LIMIT)


class Answer:
    """An answer that has been read whole."""

    def __init__(self, answer: http.client.HTTPResponse) -> None:
        self.status, self.headers, self.body = answer.status, answer.headers, answer.read()


def ask(url: str, path: str, method: str = "GET", body: str | None = None, **headers: str) -> Answer:
    connection = connect(url)
    try:
        connection.request(method, path, body, {name.replace("_", "-"): value for name, value in headers.items()})
        return Answer(connection.getresponse())
    finally:
        connection.close()


class EventReader:
    """The events of a page, one after the other."""

    def __init__(self, url: str, **headers: str) -> None:
        self._connection = connect(url)
        self._connection.request("GET", "/events", headers=headers)
        self._answer = self._connection.getresponse()
        self.status = self._answer.status

    def __enter__(self) -> "EventReader":
        return self

    def __exit__(self, *_: object) -> None:
        self._answer.close()
        self._connection.close()

    def read(self) -> tuple[str, Any]:
        """The name and the content of the next event; "" once the stream has ended."""
        name, content = "", None
        while line := self._answer.readline().decode():
            field, _, value = line.rstrip("\n").partition(": ")
            if field == "event":
                name = value
            elif field == "data":
                content = json.loads(value)
            elif not line.strip() and name:
                return name, content
        return "", None
