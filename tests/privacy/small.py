"""A small deployment for tests of the audit: a random graph with few features on three or four agents, in float64."""

from typing import Any

import numpy as np
from oracles.graphs import random_adjacency

from gossamer.data import DataGraph, make_graph
from gossamer.runs.deployment import Deployment, make_deployment
from gossamer.runs.settings import Settings, make_settings

D = 5


def small_graph(n: int = 36, seed: int = 1, share: float = 0.4) -> DataGraph:
    random = np.random.default_rng(seed)
    adjacency = random_adjacency(n, 0.12, seed)
    train = random.random(n) < share
    return make_graph(
        "small",
        np.argwhere(np.triu(adjacency)),
        random.normal(size=(n, D)),
        np.arange(n) % 3,
        train=train,
        validation=~train,
        test=~train,
    )


def deploy(graph: DataGraph | None = None, **changes: Any) -> tuple[Deployment, Settings]:
    """Four agents who all talk and know the dropout masks, unless changed; evaluated every fourth step."""
    data = small_graph() if graph is None else graph
    settings = make_settings(
        {"agents": 4, "topology": "complete", "hidden": 3, "steps": 12, "evaluate_every": 4, "dtype": "float64",
         "assignment": "uniform", "keep": "last", "public_randomness": True, **changes}
    )  # fmt: skip
    settings = settings.fit_to(data.task, data.batch)
    return make_deployment(data, settings), settings
