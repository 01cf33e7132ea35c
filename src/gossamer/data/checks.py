"""Checks of a user's arrays before they become a DataGraph; unusual but legal input causes a warning."""

import warnings
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import sparse

from gossamer.errors import GossamerError, GossamerWarning, VertexError

LARGEST_FEATURE = float(np.finfo(np.float32).max)
SYMMETRISE = "--symmetrise (symmetrise=True in Python)"
Features = Any  # scipy.sparse.csr_array [n, d], or numpy [n, d] or [n, batch, d]


def check_rows(n: int, **arrays: Any) -> None:
    """Require n rows, one per vertex, in each of the arrays."""
    for name, array in arrays.items():
        if array is not None and (np.ndim(array) == 0 or len(array) != n):
            raise GossamerError(
                f"the features have {n} rows, the {name} {0 if np.ndim(array) == 0 else len(array)}; expected one for "
                "each vertex: is a feature or target row missing?"
            )


def validate_positions(positions: ArrayLike) -> NDArray[np.float64]:
    """Require finite positions [n, 2]."""
    places = np.asarray(positions)
    check_real(places, "positions")
    if places.ndim != 2 or places.shape[1] != 2 or not np.isfinite(places).all():
        raise GossamerError(f"positions must be finite numbers [vertices, 2], got shape {places.shape}")
    return places.astype(np.float64)


def check_real(array: Any, name: str) -> None:
    """Require booleans, integers or real numbers."""
    if array.dtype.kind not in "biuf":
        raise GossamerError(f"{name} must be a table of numbers, got {array.dtype}")


def validate_features(features: Features) -> Features:
    """Require finite features, CSR [n, d] or dense [n, d] or [n, batch, d]; integers become floats."""
    if sparse.issparse(features):
        features = sparse.csr_array(features, copy=True)
        check_csr(features, "features")
        features.sum_duplicates()
        check_real(features, "features")
        values = features.data
        row_of = np.repeat(np.arange(features.shape[0]), np.diff(features.indptr))
    else:
        try:
            features = np.asarray(features)
        except ValueError as error:
            raise GossamerError(f"features must be a table of numbers with one row for each vertex: {error}") from None
        check_real(features, "features")
        features = features.astype(np.result_type(features.dtype, np.float32), copy=False)
        if features.ndim not in (2, 3):
            raise GossamerError(
                f"features must be [vertices, features] or [vertices, batch, features], got shape {features.shape}"
            )
        values, row_of = features.reshape(-1), None
    if features.shape[0] == 0 or features.shape[-1] == 0:
        raise GossamerError(f"the graph is empty: features have shape {features.shape}")
    finite = np.isfinite(values)
    if not finite.all():
        bad = np.flatnonzero(~finite)
        vertex = row_of[bad[0]] if row_of is not None else bad[0] // (values.size // features.shape[0])
        message = f"features hold {len(bad)} NaN or infinite values, the first at vertex {{}}; fill or drop them first"
        raise VertexError(message, int(vertex))
    if values.dtype.itemsize > 4 and values.size and max(values.max(), -values.min()) > LARGEST_FEATURE:
        raise GossamerError(f"features must stay below {LARGEST_FEATURE:.1g}, float32's largest; scale them first")
    return features


def check_csr(matrix: sparse.csr_array, name: str) -> None:
    """Require indices inside the CSR matrix; otherwise a product with it would read foreign memory."""
    starts = matrix.indptr
    if (starts[1:] < starts[:-1]).any():  # check_format takes differences, which may overflow
        raise GossamerError(f"the sparse {name} do not fit together: row pointers must not decrease")
    try:
        matrix.check_format(full_check=True)
    except ValueError as error:
        raise GossamerError(f"the sparse {name} do not fit together: {error}") from None


def validate_edges(
    edges: ArrayLike,
    weights: ArrayLike | None,
    n: int,
    numbers: NDArray[np.int64] | None = None,
    symmetrise: bool = False,
) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Return each undirected edge once with i < j, sorted; both directions may be given if their weights agree.

    With `symmetrise` an edge has the mean of the weights that are given for it. Errors name a vertex by its index, or
    by its entry in `numbers`.
    """
    try:
        pairs = np.asarray(edges)
        w = np.ones(len(pairs)) if weights is None else np.asarray(weights, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise GossamerError(f"edges must be integers [edges, 2] and weights real numbers: {error}") from None
    if pairs.size == 0:
        pairs = pairs.reshape(0, 2).astype(np.int64)
    if pairs.ndim != 2 or pairs.shape[1] != 2 or not np.issubdtype(pairs.dtype, np.integer):
        raise GossamerError(f"edges must be integers [edges, 2], got {pairs.dtype} {pairs.shape}")
    pairs = pairs.astype(np.int64, copy=False)
    if w.shape != (len(pairs),):
        raise GossamerError(f"expected one weight for each of the {len(pairs)} edges, got shape {w.shape}")
    if pairs.size and (pairs.min() < 0 or pairs.max() >= n):
        outside = np.flatnonzero((pairs < 0).any(1) | (pairs >= n).any(1))
        i, j = pairs[outside[0]]
        raise GossamerError(
            f"edge ({i}, {j}) names a vertex that does not exist: there are {n} vertices, "
            f"numbered 0 to {n - 1} ({len(outside)} such edges)"
        )
    if w.size and not (w.min() > 0 and np.isfinite(w.max())):
        wrong = np.flatnonzero(~(np.isfinite(w) & (w > 0)))
        i, j = pairs[wrong[0]] if numbers is None else numbers[pairs[wrong[0]]]
        raise VertexError(f"edge weights must be positive and finite, got {w[wrong[0]]} on edge ({{}}, {{}})", i, j)
    loops = pairs[:, 0] == pairs[:, 1]
    if loops.any():
        warnings.warn(
            f"{loops.sum()} self-loops dropped: layers that count a vertex itself do so for every one, with weight 1",
            GossamerWarning,
            stacklevel=4,
        )
        pairs, w = pairs[~loops], w[~loops]
    low, high = np.minimum(pairs[:, 0], pairs[:, 1]), np.maximum(pairs[:, 0], pairs[:, 1])
    code = low * n + high
    if (code[1:] > code[:-1]).all():  # sorted and without repetitions, as large graphs are stored
        return np.stack([low, high], axis=1), w
    if (w == w[0]).all():  # sorting values is many times faster than sorting indices
        code.sort()
        code = code[np.diff(code, prepend=-1) > 0]
        return np.stack(np.divmod(code, n), axis=1), np.full(len(code), w[0])
    pairs = np.stack([low, high], axis=1)
    _, first, inverse = np.unique(code, return_index=True, return_inverse=True)
    if symmetrise:
        return pairs[first], np.bincount(inverse, w) / np.bincount(inverse)
    differs = np.flatnonzero(w != w[first][inverse])
    if len(differs):
        i, j = pairs[differs[0]] if numbers is None else numbers[pairs[differs[0]]]
        raise VertexError(
            f"asymmetric weights: edge ({{}}, {{}}) is given more than once with different weights "
            f"({len(differs)} such edges); the data graph is undirected, so make them equal, or take their mean with "
            f"{SYMMETRISE}",
            i,
            j,
        )
    return pairs[first], w[first]


def check_both_directions(pairs: NDArray[np.int64], n: int) -> None:
    """Require the reverse of every edge [edges, 2], as where a library stores an undirected graph so."""
    if pairs.size and (pairs.min() < 0 or pairs.max() >= n):
        return  # refused by name later
    i, j = pairs[pairs[:, 0] != pairs[:, 1]].T
    alone = np.flatnonzero(~np.isin(i * n + j, j * n + i))
    if len(alone):
        first = alone[0]
        raise GossamerError(
            f"edge ({i[first]}, {j[first]}) is given without its reverse ({len(alone)} such edges); the data graph is "
            f"undirected, so give both directions, or take edges as undirected with {SYMMETRISE}"
        )


def validate_masks(masks: dict[str, ArrayLike], n: int, batch: int | None) -> list[NDArray[np.bool_]]:
    """Return train, validation and test masks [n] or [n, batch], given as booleans or as vertex numbers."""
    try:
        found = [validate_mask(np.asarray(mask), label, n, batch) for label, mask in masks.items()]
    except GossamerError:
        raise
    except (ValueError, TypeError) as error:
        raise GossamerError(f"masks must be arrays of booleans or of vertex numbers: {error}") from None
    if not found[0].any():
        raise GossamerError("no labelled vertex: the train mask is empty; mark at least one vertex for training")
    shared = (found[0] & (found[1] | found[2])).sum()
    if shared:
        warnings.warn(f"{shared} training examples are also used for validation or test", GossamerWarning, stacklevel=4)
    return found


def validate_mask(given: NDArray[Any], label: str, n: int, batch: int | None) -> NDArray[np.bool_]:
    """Return one mask as booleans [n], or [n, batch] with a batch axis."""
    if given.dtype != np.bool_:
        if given.size and not np.issubdtype(given.dtype, np.integer):
            raise GossamerError(f"the {label} mask must hold booleans or vertex numbers, got {given.dtype}")
        if given.size and (given.min() < 0 or given.max() >= n):
            raise GossamerError(
                f"the {label} vertices must be numbered 0 to {n - 1}, got {given.min()} to {given.max()}"
            )
        numbers = given.astype(np.int64)
        given = np.zeros(n, dtype=bool)
        given[numbers] = True
        if given.sum() != numbers.size:
            raise GossamerError(
                f"the {label} vertices are named more than once; is this a mask of 0 and 1? Make it bool"
            )
    if batch is not None and given.shape == (n,):
        given = np.repeat(given[:, None], batch, axis=1)
    expected = (n,) if batch is None else (n, batch)
    if given.shape != expected:
        raise GossamerError(f"the {label} mask must have shape {expected}, got {given.shape}")
    return given


def warn_of_components(adjacency: Any) -> None:
    """Warn of a graph without edges, or in several components."""
    if adjacency.nnz == 0:
        warnings.warn(
            "the graph has no edges: a graph network can do no more than a plain one", GossamerWarning, stacklevel=3
        )
        return
    pieces, _ = sparse.csgraph.connected_components(adjacency, directed=False)
    if pieces > 1:
        warnings.warn(
            f"the data graph is disconnected: {pieces} components; a vertex's output depends on its own alone",
            GossamerWarning,
            stacklevel=3,
        )
