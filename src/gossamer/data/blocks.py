"""Generated graphs of any size: stochastic blocks with power-law degrees and features correlated with the class.

Edges are drawn as in the degree-corrected stochastic block model (Holland, Laskey and Leinhardt 1983, Stochastic
blockmodels: first steps; Karrer and Newman 2011, Stochastic blockmodels and community structure in networks): an
endpoint i with a probability proportional to its weight theta_i, the other one likewise, inside i's block or, with
probability 1 - `inside`, anywhere. A random tree joins all vertices. Every operation is on whole arrays.
"""

import dataclasses
import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from gossamer.array_types import Ints
from gossamer.data.graph import DataGraph, make_graph
from gossamer.errors import GossamerError
from gossamer.machine import as_size, available_memory

ROWS = 1 << 16  # rows of features in one operation
STREAM = b"blocks"  # separates these random numbers from others of the same seed, such as an assignment's
BYTES = 32  # of memory for a vertex or an edge, at least
EDGE_DRAWS = 50  # rounds at most, each of which replaces repeated edges


@dataclass(frozen=True)
class Blocks:
    """Parameters of a generated graph, each of which a data set's name may set: blocks:vertices=1000000."""

    vertices: int = 10_000
    edges: int = 100_000
    features: int = 64
    classes: int = 8
    blocks: int = 0  # communities, each of one class; 0: one for each 500 vertices, and at least one a class
    inside: float = 0.8  # share of the edges that are drawn inside a block
    exponent: float = 2.5  # of the degrees' power law
    signal: float = 1.5  # distance of a class's mean feature from 0; the noise has deviation 1 in each direction
    labelled: float = 0.1  # share of the vertices for training, and as many for validation
    seed: int = 0  # of the graph; the split is drawn from the run's

    @property
    def num_blocks(self) -> int:
        return self.blocks or max(self.classes, self.vertices // 500)


def parse_blocks(name: str) -> Blocks:
    """Parse the parameters in blocks:KEY=VALUE,KEY=VALUE,..."""
    kinds = {field.name: type(field.default) for field in dataclasses.fields(Blocks)}
    values: dict[str, int | float] = {}
    for part in filter(None, name.partition(":")[2].split(",")):
        key, _, text = part.partition("=")
        if key not in kinds or key in values:
            raise GossamerError(
                f"{name}: expected each of {', '.join(kinds)} once at most, as in blocks:vertices=1000; got {part!r}"
            )
        try:
            values[key] = int(text) if kinds[key] is int else float(text)
        except ValueError:
            kind = "a whole number" if kinds[key] is int else "a number"
            raise GossamerError(f"{name}: {key} must be {kind}, got {text!r}") from None
    return check_blocks(Blocks(**values))  # type: ignore[arg-type]


def check_blocks(how: Blocks) -> Blocks:
    """Require parameters that a graph can have."""
    n = how.vertices
    for good, what, got in (
        (how.classes >= 2, "classes at least 2", how.classes),
        (how.features >= 1, "features at least 1", how.features),
        (n >= 10 * how.classes, f"vertices at least {10 * how.classes}, 10 for each class", n),
        (n - 1 <= how.edges <= n * (n - 1) // 4, f"edges between {n - 1} and {n * (n - 1) // 4}", how.edges),
        (how.classes <= how.num_blocks <= n // 2, f"blocks between {how.classes} and {n // 2}, or 0", how.blocks),
        (0 <= how.inside <= 1, "inside between 0 and 1", how.inside),
        (2 < how.exponent < math.inf, "an exponent above 2", how.exponent),
        (0 <= how.signal < math.inf, "a signal of at least 0", how.signal),
        (2 * how.classes <= how.labelled * n < n / 2, "labelled below 0.5 and 2 vertices for each class", how.labelled),
        (how.seed >= 0, "a seed of at least 0", how.seed),
    ):
        if not good:
            raise GossamerError(f"the data set blocks expects {what}, got {got}")
    needed, available = 8 * n * how.features + BYTES * (n + how.edges), available_memory()
    if needed > available:
        raise GossamerError(
            f"the data set blocks with {n} vertices of {how.features} features and {how.edges} edges takes at least "
            f"{as_size(needed)} of memory, and {as_size(available)} are available"
        )
    return how


def generate_blocks(how: Blocks, seed: int) -> DataGraph:
    """Generate a graph; `seed` draws the training and validation vertices, the others are for test."""
    random = np.random.default_rng([how.seed, *STREAM])
    n = how.vertices
    block = random.integers(0, how.num_blocks, n, dtype=np.int32)
    block[random.choice(n, how.num_blocks, replace=False)] = np.arange(how.num_blocks)  # none is empty
    edges = _edges(how, block, random)
    classes = (block % how.classes).astype(np.int64)
    features = _features(how, classes, random)
    order = np.random.default_rng([seed, *STREAM]).permutation(n)
    count = round(how.labelled * n)
    return make_graph(
        "blocks",
        edges,
        features,
        classes,
        train=order[:count],
        validation=order[count : 2 * count],
        test=order[2 * count :],
    )


def _edges(how: Blocks, block: NDArray[np.int32], random: np.random.Generator) -> Ints:
    """Draw edges [edges, 2], i < j, sorted and without repetitions, between positions in the order of blocks."""
    n = how.vertices
    members = np.argsort(block, kind="stable")
    starts = np.concatenate([[0], np.cumsum(np.bincount(block, minlength=how.num_blocks))])
    theta = (1.0 - random.random(n)) ** (-1.0 / (how.exponent - 1.0))
    np.minimum(theta, math.sqrt(n), out=theta)  # where the power law ends: hubs would only repeat their edges
    reach = np.concatenate([[0.0], np.cumsum(theta)])
    tree = codes = np.sort(_code(members, np.arange(1, n), _parents(starts, random), n))
    for _ in range(EDGE_DRAWS):
        missing = how.edges - len(codes)
        if missing <= 0:
            break
        places = _draw_edges(missing + missing // 16 + 16, how.inside, starts, reach, random)
        codes = np.sort(np.concatenate([codes, _code(members, *places, n)]))
        codes = codes[np.diff(codes, prepend=-1) > 0]  # many times faster than np.unique's hash table
        extra = len(codes) - how.edges
        if extra > 0:
            spare = np.ones(len(codes), dtype=bool)
            spare[np.searchsorted(codes, tree)] = False
            codes = np.delete(codes, random.choice(np.flatnonzero(spare), extra, replace=False))
    if len(codes) < how.edges:
        raise GossamerError(
            f"the data set blocks found {len(codes)} of {how.edges} different edges: its blocks are full; give fewer "
            "edges or blocks, or a smaller share inside"
        )
    return np.stack(np.divmod(codes, n), axis=1)


def _parents(starts: Ints, random: np.random.Generator) -> Ints:
    """Draw a random tree: the parent of each position but the first, an earlier one, in its own block if possible."""
    n = int(starts[-1])
    first = np.repeat(starts[:-1], np.diff(starts))[1:]
    place = np.arange(1, n)
    lowest = np.where(place == first, 0, first)
    return lowest + (random.random(n - 1) * (place - lowest)).astype(np.int64)


def _draw_edges(
    count: int, inside: float, starts: Ints, reach: NDArray[np.float64], random: np.random.Generator
) -> tuple[Ints, Ints]:
    """Draw two positions for each of `count` edges, the first in ascending order, without self-loops."""
    n = len(reach) - 1
    i = np.repeat(np.arange(n), random.multinomial(count, np.diff(reach) / reach[-1]))
    number = np.repeat(np.arange(len(starts) - 1), np.diff(starts))[i]
    stays = random.random(count) < inside
    low = np.where(stays, reach[starts[number]], 0.0)
    high = np.where(stays, reach[starts[number + 1]], reach[-1])
    j = np.searchsorted(reach, low + random.random(count) * (high - low), side="right") - 1
    apart = i != j
    return i[apart], np.minimum(j[apart], n - 1)


def _code(members: Ints, i: Ints, j: Ints, n: int) -> Ints:
    """Encode edges between two positions as numbers that sort as (i, j) with i < j."""
    i, j = members[i], members[j]
    return np.asarray(np.minimum(i, j) * n + np.maximum(i, j))


def _features(how: Blocks, classes: Ints, random: np.random.Generator) -> NDArray[np.float32]:
    """Draw x_i: the mean of its class plus Gaussian noise."""
    means = random.standard_normal((how.classes, how.features), dtype=np.float32)
    means *= how.signal / np.linalg.norm(means, axis=1, keepdims=True)
    features = random.standard_normal((how.vertices, how.features), dtype=np.float32)
    for row in range(0, how.vertices, ROWS):
        features[row : row + ROWS] += means[classes[row : row + ROWS]]
    return features
