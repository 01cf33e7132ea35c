"""Inductive inference at one agent: its share with vertices that the network was not trained with.

The graph that was trained on stays as it is, and new vertices look at it: D is extended by their rows, over themselves
and over their neighbours, D' = [D 0; R S]. So no other agent need know of them, and what it is sent does not change.
"""

from dataclasses import replace
from typing import Any

import numpy as np
from scipy import sparse

from gossamer.agents.share import Share
from gossamer.array_types import Floats, Ints
from gossamer.errors import GossamerError
from gossamer.model import make_shift
from gossamer.model.shift import UNWEIGHTED, sum_degrees


def find_degrees(share: Share, kind: str) -> Floats:
    """Degrees of the hosted vertices, read off their rows of D."""
    i, j, values = share.topologies[0].entries
    own = np.flatnonzero(share.hosted)
    if kind in UNWEIGHTED:
        return np.bincount(i, minlength=len(share.vertices))[own].astype(np.float64)
    diagonal = np.zeros(len(share.vertices))
    diagonal[i[i == j]] = values[i == j]
    if kind == "laplacian":
        return diagonal[own]
    if kind == "scaled-laplacian":  # D_ij = -a_ij / sqrt(d_i d_j): the degrees are counts, if all weights are 1
        counts = np.bincount(i[i != j], minlength=len(share.vertices)).astype(np.float64)
        inside = (i != j) & share.hosted[i] & share.hosted[j]
        expected = -1.0 / np.sqrt(counts[i[inside]] * counts[j[inside]])
        if not np.allclose(values[inside], expected, rtol=1e-6):
            raise GossamerError(
                "the degrees of weighted edges do not follow from the scaled Laplacian that an agent has, so that new "
                "vertices cannot be joined to it; train with --shift normalized"
            )
        return counts[own]
    if kind == "identity":
        return np.zeros(len(own))
    return 1.0 / diagonal[own] - 1.0  # normalized, random-walk: D_ii = 1 / (d_i + 1)


def add_vertices(share: Share, kind: str, features: Any, edges: Ints, weights: Floats) -> Share:
    """The share with new vertices after its own, of which these are the features as the network takes them.

    `edges` are pairs of positions among the agent's own vertices and, after these, the new ones."""
    own, new = np.flatnonzero(share.hosted), features.shape[0]
    size, known = len(own) + new, len(share.vertices)
    both = np.concatenate([edges, edges[:, ::-1]]).T
    adjacency = sparse.csr_array((np.concatenate([weights, weights]), tuple(both)), shape=(size, size))
    degrees = np.concatenate([find_degrees(share, kind), sum_degrees(adjacency, kind)[len(own) :]])
    rows = make_shift(adjacency, kind, degrees).tocsr()[len(own) :].tocoo()
    places = np.concatenate([own, known + np.arange(new)])
    order = np.lexsort((rows.col, rows.row))
    one = share.topologies[0]
    i, j, values = one.entries
    entries = (
        np.concatenate([i, known + rows.row[order]]),
        np.concatenate([j, places[rows.col[order]]]),
        np.concatenate([values, rows.data[order].astype(values.dtype)]),
    )
    topology = replace(
        one,
        entries=entries,
        train_fields=_extend(one.train_fields, new, value=False),
        full_fields=_extend(one.full_fields, new, value=True),
    )
    stack = sparse.vstack if sparse.issparse(share.features) else np.concatenate
    joined = stack([share.features, features.astype(share.features.dtype)])
    weights_of = share.example_weights
    return replace(
        share,
        vertices=np.concatenate([share.vertices, share.vertices.max(initial=0) + 1 + np.arange(new)]),
        owner=np.concatenate([share.owner, np.full(new, share.agents[0])]),
        topologies=(topology,),
        features=sparse.csr_array(joined) if sparse.issparse(joined) else joined,
        targets=_pad(share.targets, new, -1 if share.task == "multiclass" else 0),
        masks={name: _pad(mask, new) for name, mask in share.masks.items()},
        example_weights=None if weights_of is None else _pad(weights_of, new),
    )


def _pad(rows: Any, new: int, value: int = 0) -> Any:
    return np.concatenate([rows, np.full((new, *rows.shape[1:]), value, dtype=rows.dtype)])


def _extend(fields: list[list[Any]], new: int, *, value: bool) -> list[list[Any]]:
    """Receptive fields with the new vertices, all or none of them."""
    return [[np.concatenate([mask, np.full(new, value)]) for mask in sets] for sets in fields]
