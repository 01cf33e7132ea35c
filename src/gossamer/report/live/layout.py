"""Places of agents on the map: neighbours near each other, the same places for the same links."""

from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

MOST_SPREAD = 1000  # agents beyond which they stay on the circle
CROWDED = 0.6  # share of possible links above which no arrangement is clearer than the circle
WORK = 4_000_000  # pairs of agents that are moved, at most
Positions = dict[str, tuple[float, float]]


def place_agents(agents: Sequence[int], links: Iterable[tuple[int, int]]) -> Positions:
    """Positions of agents by id, from -1 to 1: on a circle, then spread by the forces of Fruchterman and Reingold
    (1991), "Graph drawing by force-directed placement"."""
    m, number = len(agents), {agent: index for index, agent in enumerate(agents)}
    joined = np.zeros((m, m), dtype=bool)
    for k, z in links:
        if k in number and z in number and k != z:
            joined[number[k], number[z]] = joined[number[z], number[k]] = True
    places = _place_on_circle(m)
    if 3 < m <= MOST_SPREAD and joined.any() and joined.sum() < CROWDED * m * (m - 1):
        places = _spread(places[np.argsort(_order(joined), kind="stable")], joined)
    return {str(agent): (round(float(x), 4), round(float(y), 4)) for agent, (x, y) in zip(agents, places, strict=True)}


def place_around(own: int, neighbours: Sequence[int]) -> Positions:
    """Positions of an agent in the middle and of those that it knows on the circle around it."""
    circle = _place_on_circle(len(neighbours))
    around = {str(z): (round(float(x), 4), round(float(y), 4)) for z, (x, y) in zip(neighbours, circle, strict=True)}
    return {str(own): (0.0, 0.0), **around}


def _place_on_circle(count: int) -> NDArray[np.float64]:
    if count == 1:
        return np.zeros((1, 2)) if count else np.zeros((0, 2))
    angle = np.pi / 2 - 2 * np.pi * np.arange(count) / max(count, 1)
    return np.stack([np.cos(angle), np.sin(angle)], axis=1)


def _order(joined: NDArray[np.bool_]) -> NDArray[np.int64]:
    """Agents by their angle in the two smoothest nonconstant eigenvectors of the Laplacian."""
    laplacian = np.diag(joined.sum(1)) - joined.astype(np.float64)
    _, vectors = np.linalg.eigh(laplacian)
    return np.asarray(np.argsort(np.arctan2(vectors[:, 2], vectors[:, 1]).round(6), kind="stable"))


def _spread(places: NDArray[np.float64], joined: NDArray[np.bool_]) -> NDArray[np.float64]:
    m = len(places)
    rounds = max(10, min(150, WORK // m**2))
    length = 1.6 / np.sqrt(m)  # of a link at rest
    for heat in np.linspace(0.2, 0.005, rounds):
        apart = places[:, None] - places[None]
        distance = np.maximum(np.sqrt((apart**2).sum(2)), 1e-3)
        force = length**2 / distance**2 - np.where(joined, distance / length, 0.0)
        move = (apart * force[:, :, None]).sum(1) - 0.3 * places  # parts without a link between them stay together
        size = np.maximum(np.sqrt((move**2).sum(1, keepdims=True)), 1e-9)
        places = places + move / size * np.minimum(size, heat)
    places = places - (places.max(0) + places.min(0)) / 2
    scaled: NDArray[np.float64] = places / np.maximum(abs(places).max(0), 1e-9)
    return scaled
