"""Memory that a host's weights and a deployment's matrices need, checked before they are allocated."""

import math
import warnings

from gossamer.agents.rules import make_rule, num_statistics
from gossamer.errors import GossamerError, GossamerWarning
from gossamer.machine import as_size, available_memory
from gossamer.model import Network
from gossamer.runs.settings import Settings

DRAW_BYTES = 3 * 8  # for a parameter of the layer whose initial weights are drawn, in float64
TRACKING = 2  # the tracker and the last gradient
MATRICES = 4  # matrices [m, m] of 8 bytes that are there at once: B, its counts, links and C


def check_host(network: Network, settings: Settings, num_hosted: int, num_vertices: int) -> None:
    """Refuse a network that the machine cannot hold: for each hosted agent its weights, their gradient, the update
    rule's state and the best weights, and for each vertex the input and the output of the widest layer."""
    itemsize, p = settings.torch_dtype.itemsize, network.num_parameters
    copies = 2 + num_statistics(make_rule(settings.update)) + (TRACKING if settings.tracks else 0)
    copies += settings.keep == "best"
    drawn = DRAW_BYTES * max(map(math.prod, network.shapes().values())) + p * itemsize
    weights = num_hosted * max(drawn, p * copies * itemsize)
    widest = max(layer.inputs + layer.outputs for layer in network.layers[1:] or network.layers)
    hidden = num_vertices * widest * itemsize if len(network.layers) > 1 else 0
    available = available_memory()
    if weights + hidden > available:
        raise GossamerError(
            f"{num_hosted} agents with {p} parameters each take at least {as_size(weights)} of memory with gradients "
            f"and the state of {settings.update}, and the hidden layers of {num_vertices} vertices {as_size(hidden)}; "
            f"{as_size(available)} are available. Choose narrower hidden layers, fewer agents, or "
            "more hosts (gossamer docs scaling)"
        )


def fit_agents(settings: Settings, num_vertices: int) -> Settings:
    """The settings with at most as many agents as there are vertices, if the number is the default's and not the
    user's."""
    if "agents" in settings.model_fields_set or settings.agents <= num_vertices:
        return settings
    warnings.warn(
        f"{num_vertices} agents, one for each vertex, in place of the default {settings.agents}; --agents (agents= in "
        "Python) takes others",
        GossamerWarning,
        stacklevel=3,
    )
    return settings.model_copy(update={"agents": num_vertices})


def check_agents(num_agents: int) -> None:
    """Refuse more agents than the machine can hold matrices for."""
    needed, available = MATRICES * 8 * num_agents**2, available_memory()
    if needed > available:
        raise GossamerError(
            f"{num_agents} agents take at least {as_size(needed)} of memory for the matrices of their links, and "
            f"{as_size(available)} are available; choose fewer agents"
        )
