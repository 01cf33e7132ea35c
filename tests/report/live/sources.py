"""Small runs that sources follow."""

from typing import Any

import numpy as np

from gossamer.data import DataGraph, make_graph
from gossamer.report.live.feed import Feed
from gossamer.report.live.view import RunView

OPTIONS: dict[str, Any] = {
    "agents": 3, "topology": "line", "hidden": 3, "steps": 6, "evaluate_every": 2, "checkpoint_every": 4,
    "consensus_every": 2,
}  # fmt: skip


def make_small_graph() -> DataGraph:
    """Twelve vertices in a chain of triangles."""
    random = np.random.default_rng(0)
    edges = [(i, i + 1) for i in range(11)] + [(i, i + 2) for i in range(10)]
    places = np.arange(12)
    return make_graph(
        "small", np.array(edges), random.standard_normal((12, 4)), places % 2, train=places % 3 == 0,
        validation=places % 3 == 1, test=places % 3 == 2,
    )  # fmt: skip


class SeenFeed(Feed):
    """A feed that keeps all that was published."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[RunView] = []

    def publish(self, view: RunView) -> None:
        self.seen.append(view)
        super().publish(view)

    @property
    def last(self) -> RunView:
        return self.seen[-1]
