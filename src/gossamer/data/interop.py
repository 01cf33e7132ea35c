"""Conversion of graphs from other libraries: NetworkX and PyTorch Geometric."""

import sys
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gossamer.data.checks import SYMMETRISE, check_both_directions
from gossamer.data.conversion import is_tensor, to_array, to_number
from gossamer.data.graph import DataGraph, make_graph
from gossamer.data.splits import SPLIT, check_split, refuse_split
from gossamer.errors import GossamerError

SPLIT_NAMES = ("train", "validation", "test")


def convert(data: Any, symmetrise: bool = False, task: str = "auto", split: int | None = None) -> DataGraph:
    """Convert a graph of a library that is loaded; the types of others cannot occur."""
    networkx, pyg = sys.modules.get("networkx"), sys.modules.get("torch_geometric.data")
    if networkx is not None and isinstance(data, networkx.Graph):
        refuse_split(split, "a networkx.Graph")
        return from_networkx(data, symmetrise=symmetrise, task=task)
    if pyg is not None and isinstance(data, pyg.Data):
        return from_pyg(data, symmetrise=symmetrise, task=task, split=split)
    kind = f"{type(data).__module__}.{type(data).__qualname__}"
    hint = ""
    if pyg is not None and isinstance(data, pyg.Dataset):
        hint = "; give one of its graphs, as in dataset[0]"
    elif pyg is not None and isinstance(data, pyg.HeteroData):
        hint = "; give vertices and edges of one type, as data.to_homogeneous() makes them"
    raise GossamerError(
        "expected a DataGraph, a torch_geometric.data.Data, a networkx.Graph, a data set's name or a path, got "
        f"{kind}{hint}"
    )


def from_networkx(
    graph: Any,
    *,
    features: str = "x",
    target: str = "y",
    split: str = "split",
    weight: str = "weight",
    sample_weight: str = "sample_weight",
    symmetrise: bool = False,
    task: str = "auto",
) -> DataGraph:
    """Convert an undirected networkx.Graph whose vertices have `x` (numbers), `y` (a class, 0 or 1 for each label, or
    values) and `split`.

    `split` is "train", "validation" or "test"; a vertex without it is in no mask. `sample_weight`, if a vertex has it,
    weighs the vertex in the loss; it is 1 at vertices without it. Vertices keep their names. With
    `symmetrise` a directed graph's edges lose their direction; of two opposite ones the mean weight is kept. `task` is
    that of `make_graph`.
    """
    if graph.is_multigraph():
        raise GossamerError(
            f"expected a networkx.Graph without parallel edges, got {type(graph).__name__}; use nx.Graph(graph)"
        )
    if graph.is_directed() and not symmetrise:
        raise GossamerError(
            f"expected an undirected networkx.Graph, got {type(graph).__name__}; use graph.to_undirected(), or "
            f"{SYMMETRISE}"
        )
    number = {v: i for i, v in enumerate(graph.nodes)}
    rows = [values.get(features) for _, values in graph.nodes(data=True)]
    missing = [v for v, row in zip(graph.nodes, rows, strict=True) if row is None]
    if missing:
        raise GossamerError(f"vertex {missing[0]!r} has no attribute {features!r} ({len(missing)} such vertices)")
    rows = [np.atleast_1d(to_array(row, features)) for row in rows]
    lengths = {len(row) for row in rows}
    if len(lengths) > 1:
        raise GossamerError(f"all feature rows must have one length, got {sorted(lengths)}")
    targets, class_names = _targets([values.get(target) for _, values in graph.nodes(data=True)], target)
    splits = [values.get(split) for _, values in graph.nodes(data=True)]
    unknown = {str(s) for s in splits} - {*SPLIT_NAMES, "None"}
    if unknown:
        raise GossamerError(f"the split must be one of train, validation, test, got {sorted(unknown)[0]!r}")
    edges = np.array([(number[u], number[v]) for u, v in graph.edges], dtype=np.int64).reshape(-1, 2)
    try:
        weights = np.array(
            [to_number(values.get(weight, 1.0)) for _, _, values in graph.edges(data=True)], dtype=np.float64
        )
        table = np.array(rows, dtype=np.float32)
        sample_weights = None
        if any(sample_weight in values for _, values in graph.nodes(data=True)):
            given = [to_number(values.get(sample_weight, 1.0)) for _, values in graph.nodes(data=True)]
            sample_weights = np.array(given, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise GossamerError(
            f"{features!r} and {sample_weight!r} of vertices and {weight!r} of edges must be numbers: {error}"
        ) from None
    return make_graph(
        graph.name or "networkx",
        edges,
        table,
        targets,
        weights=weights,
        names=tuple(str(v) for v in graph.nodes),
        class_names=class_names,
        sample_weights=sample_weights,
        symmetrise=symmetrise,
        task=task,
        **{part: np.array([s == part for s in splits]) for part in SPLIT_NAMES},
    )


def _targets(values: list[Any], name: str) -> tuple[NDArray[Any], tuple[str, ...] | None]:
    """Targets of vertices, None where there is none: real values, class numbers, or classes with names."""
    given = [to_number(y) for y in values]
    width = max((np.size(y) for y in given if isinstance(y, list | tuple | np.ndarray)), default=0)
    if width or any(isinstance(y, float | np.floating) for y in given):
        try:
            blank = np.full(width, np.nan) if width else np.nan
            return np.array([blank if y is None else y for y in given], dtype=np.float64), None
        except (TypeError, ValueError) as error:
            raise GossamerError(f"{name!r} must be all numbers or all classes: {error}") from None
    known = [y for y in given if y is not None]
    if known and all(isinstance(y, int | np.integer) and not isinstance(y, bool) for y in known):
        return np.array([-1 if y is None else y for y in given], dtype=np.int64), None
    try:
        order = sorted(set(known))
    except TypeError as error:
        raise GossamerError(f"the classes in {name!r} must be of one type, all text or all numbers: {error}") from None
    classes = {y: c for c, y in enumerate(order)}
    return np.array([-1 if y is None else classes[y] for y in given], dtype=np.int64), tuple(map(str, order))


def from_pyg(
    data: Any, name: str = "pyg", *, symmetrise: bool = False, task: str = "auto", split: int | None = None
) -> DataGraph:
    """Convert a torch_geometric.data.Data with x, edge_index, y and the masks train_mask, val_mask, test_mask.

    `edge_weight` (or `edge_attr`), one number an edge, gives the weights; `pos` the positions; `sample_weight`
    the weights of vertices in the loss. `edge_index` has both directions of each edge; with `symmetrise` one is enough,
    and different weights are replaced by their mean. `task` is that of `make_graph`. `split` is the column to
    take of masks [n, splits].
    """
    for attribute in ("x", "edge_index", "y", "train_mask", "val_mask", "test_mask"):
        if getattr(data, attribute, None) is None:
            remedy = "; torch_geometric.transforms.RandomNodeSplit makes masks" if attribute.endswith("mask") else ""
            raise GossamerError(
                f"the PyTorch Geometric graph has no `{attribute}`; expected x, edge_index, y, "
                f"train_mask, val_mask and test_mask{remedy}"
            )
    wrong = [key for key in ("x", "edge_index", "y") if not is_tensor(getattr(data, key))]
    others = ("train_mask", "val_mask", "test_mask", "edge_weight", "edge_attr")
    wrong += [key for key in others if isinstance(getattr(data, key, None), list | tuple)]
    if wrong:
        found = getattr(data, wrong[0])
        raise GossamerError(
            f"`{wrong[0]}` must be a torch.Tensor, got {type(found).__name__}; make it one with torch.as_tensor"
        )
    masks = _choose_column({part: getattr(data, key) for part, key in zip(SPLIT_NAMES, others, strict=False)}, split)
    weights = getattr(data, "edge_weight", None)
    if weights is None:
        weights = getattr(data, "edge_attr", None)
    if weights is not None and weights.ndim == 2 and weights.shape[1] == 1:
        weights = weights[:, 0]
    if weights is not None and weights.ndim != 1:
        raise GossamerError(
            f"expected one weight for each edge, got shape {tuple(weights.shape)}; "
            "set data.edge_weight, or drop edge_attr"
        )
    edges = to_array(data.edge_index, "edge_index")
    if edges.ndim != 2 or len(edges) != 2 or edges.dtype.kind not in "iu":
        raise GossamerError(f"edge_index must be whole numbers [2, edges], got {edges.dtype} {edges.shape}")
    if not symmetrise:
        check_both_directions(edges.T.astype(np.int64), len(data.x))
    return make_graph(
        name,
        edges.T,
        data.x,
        data.y,
        weights=weights,
        positions=getattr(data, "pos", None),
        sample_weights=getattr(data, "sample_weight", None),
        symmetrise=symmetrise,
        task=task,
        **masks,
    )


def _choose_column(masks: dict[str, Any], split: int | None) -> dict[str, Any]:
    """Masks of one split: as they are, or the column `split` of masks [n, splits]."""
    shape = tuple(masks["train"].shape)
    if len(shape) != 2:
        refuse_split(split, "the PyTorch Geometric graph")
    if split is None or len(shape) != 2:
        if len(shape) != 1:
            raise GossamerError(f"expected one split, got masks of shape {shape}; choose a column of them with {SPLIT}")
        return masks
    if any(tuple(mask.shape) != shape for mask in masks.values()):
        found = ", ".join(str(tuple(mask.shape)) for mask in masks.values())
        raise GossamerError(f"expected masks of one shape [vertices, splits]; got {found}")
    column = check_split(split, shape[1], "the PyTorch Geometric graph")
    return {part: mask[:, column] for part, mask in masks.items()}
