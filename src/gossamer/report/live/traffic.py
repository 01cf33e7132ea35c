"""Agents of a run that is simulated: all stand where the run stands.

Bytes on their links are those of a step, as its plan counts them, times its steps. Nobody waits for anybody.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import get_args

from gossamer.report.live.view import AgentView, NeighbourView
from gossamer.runs.records import PhaseName
from gossamer.runs.settings import Settings


class LinkTraffic:
    """Bytes of a step by sender, receiver and phase."""

    def __init__(self, links: Iterable[Mapping[str, int]]) -> None:
        """`links` are those of MessageCounts; without bytes where they are not known."""
        self.sent = {
            (one["sender"], one["receiver"]): {
                phase: one[f"{phase}_bytes"] for phase in get_args(PhaseName) if f"{phase}_bytes" in one
            }
            for one in links
        }

    @property
    def links(self) -> list[tuple[int, int]]:
        """Senders with their receivers."""
        return list(self.sent)


def count_mixed(settings: Settings, steps: int) -> int:
    """Steps with a consensus among so many."""
    return steps // settings.consensus_every if settings.consensus_every else 0


def view_links(traffic: LinkTraffic, steps: int, mixed: int) -> dict[int, list[NeighbourView]]:
    """The links of each agent after so many steps, and so many of them with a consensus."""

    def total(step: dict[str, int]) -> dict[str, int]:
        return {phase: size * (mixed if phase == "consensus" else steps) for phase, size in step.items()}

    found = defaultdict[int, list[NeighbourView]](list)
    for (sender, receiver), step in traffic.sent.items():
        back = traffic.sent.get((receiver, sender), {})
        found[sender].append(
            {
                "neighbour": receiver,
                "sent": total(step),
                "received": sum(total(back).values()),
                "waited": None,
            }
        )
    return found


def view_simulated(
    agent: int,
    state: str,
    step: int,
    sizes: tuple[int | None, int | None],
    checkpoint_age: float | None,
    neighbours: list[NeighbourView],
) -> AgentView:
    """A simulated agent; `sizes` are its vertices and training vertices."""
    vertices, labels = sizes
    return {
        "agent": agent,
        "state": state,
        "step": step,
        "epoch": None,
        "loss": None,
        "vertices": vertices,
        "labels": labels,
        "waiting_for": [],
        "waited": 0.0,
        "refused": {},
        "checkpoint_age": checkpoint_age,
        "report_age": None,
        "neighbours": neighbours,
    }
