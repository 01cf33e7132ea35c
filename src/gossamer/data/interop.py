"""Conversion of graphs from other libraries: NetworkX and PyTorch Geometric."""

from typing import Any

import numpy as np

from gossamer.data.graph import DataGraph, make_graph
from gossamer.errors import GossamerError


def from_networkx(
    graph: Any, *, features: str = "x", target: str = "y", split: str = "split", weight: str = "weight"
) -> DataGraph:
    """Convert an undirected networkx.Graph whose vertices have `x` (numbers), `y` (a class or a value) and `split`.

    `split` is "train", "validation" or "test"; a vertex without it is in no mask. Vertices keep their names.
    """
    if graph.is_directed() or graph.is_multigraph():
        raise GossamerError(
            f"expected an undirected networkx.Graph, got {type(graph).__name__}; use graph.to_undirected()"
        )
    number = {v: i for i, v in enumerate(graph.nodes)}
    rows = [values.get(features) for _, values in graph.nodes(data=True)]
    missing = [v for v, row in zip(graph.nodes, rows, strict=True) if row is None]
    if missing:
        raise GossamerError(f"vertex {missing[0]!r} has no attribute {features!r} ({len(missing)} such vertices)")
    lengths = {len(np.atleast_1d(row)) for row in rows}
    if len(lengths) > 1:
        raise GossamerError(f"all feature rows must have one length, got {sorted(lengths)}")
    given = [values.get(target) for _, values in graph.nodes(data=True)]
    real = any(isinstance(y, (float, np.floating)) for y in given)
    class_names: tuple[str, ...] | None = None
    targets: Any
    if real:
        try:
            targets = np.array([np.nan if y is None else y for y in given], dtype=np.float64)
        except (TypeError, ValueError) as error:
            raise GossamerError(f"{target!r} must be all numbers or all classes: {error}") from None
    else:
        try:
            order = sorted({y for y in given if y is not None})
        except TypeError as error:
            raise GossamerError(
                f"the classes in {target!r} must be of one type, all text or all numbers: {error}"
            ) from None
        class_names = tuple(str(y) for y in order)
        classes = {y: c for c, y in enumerate(order)}
        targets = np.array([-1 if y is None else classes[y] for y in given], dtype=np.int64)
    splits = [values.get(split) for _, values in graph.nodes(data=True)]
    unknown = {str(s) for s in splits} - {"train", "validation", "test", "None"}
    if unknown:
        raise GossamerError(f"the split must be one of train, validation, test, got {sorted(unknown)[0]!r}")
    edges = np.array([(number[u], number[v]) for u, v in graph.edges], dtype=np.int64).reshape(-1, 2)
    try:
        weights = np.array([values.get(weight, 1.0) for _, _, values in graph.edges(data=True)], dtype=np.float64)
        table = np.array([np.atleast_1d(row) for row in rows], dtype=np.float32)
    except (TypeError, ValueError) as error:
        raise GossamerError(f"{features!r} of vertices and {weight!r} of edges must be numbers: {error}") from None
    return make_graph(
        graph.name or "networkx",
        edges,
        table,
        targets,
        weights=weights,
        names=tuple(str(v) for v in graph.nodes),
        class_names=class_names,
        **{part: np.array([s == part for s in splits]) for part in ("train", "validation", "test")},
    )


def from_pyg(data: Any, name: str = "pyg") -> DataGraph:
    """Convert a torch_geometric.data.Data with x, edge_index, y and the masks train_mask, val_mask, test_mask.

    One-dimensional `edge_weight` (or `edge_attr`) gives the weights; `pos` the positions.
    """
    for attribute in ("x", "edge_index", "y", "train_mask", "val_mask", "test_mask"):
        if getattr(data, attribute, None) is None:
            raise GossamerError(
                f"the PyTorch Geometric graph has no `{attribute}`; expected x, edge_index, y, "
                "train_mask, val_mask and test_mask"
            )
    if data.x.layout != data.y.layout:
        raise GossamerError("expected dense features x; use data.x.to_dense(), or make_graph with a scipy matrix")
    if data.train_mask.ndim != 1:
        raise GossamerError(
            f"expected one split, got masks of shape {tuple(data.train_mask.shape)}; choose a column of them first"
        )
    weights = getattr(data, "edge_weight", None)
    if weights is None:
        weights = getattr(data, "edge_attr", None)
    if weights is not None and weights.ndim != 1:
        raise GossamerError(
            f"expected one weight for each edge, got shape {tuple(weights.shape)}; "
            "set data.edge_weight, or drop edge_attr"
        )
    positions = getattr(data, "pos", None)
    return make_graph(
        name,
        data.edge_index.cpu().numpy().T,
        data.x.detach().cpu().numpy(),
        data.y.cpu().numpy(),
        train=data.train_mask.cpu().numpy(),
        validation=data.val_mask.cpu().numpy(),
        test=data.test_mask.cpu().numpy(),
        weights=None if weights is None else weights.cpu().numpy(),
        positions=None if positions is None else positions.cpu().numpy(),
    )
