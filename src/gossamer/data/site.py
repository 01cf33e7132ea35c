"""One site's part of a data graph: its own vertices, and every edge that touches them.

Vertices have numbers that all sites agree on; of another site's vertex a site knows the number and the owner.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gossamer.data.arrays import CSR, make_csr, open_arrays
from gossamer.data.checks import Features, check_real, validate_edges, validate_features, validate_mask
from gossamer.data.example_weights import validate_sample_weights
from gossamer.data.label_tables import SPLITS, parse_label_names, parse_real_labels, read_labels, tabulate_labels
from gossamer.data.labels import validate_labels
from gossamer.data.tables import read_edges, read_features, read_owners
from gossamer.data.tasks import Task, find_task
from gossamer.errors import GossamerError, naming, shown

ARRAYS = ("vertices", "targets", *SPLITS, "edges", "owners")  # of an .npz file, beside features
OPTIONAL_ARRAYS = ("weights", "sample_weights")


@dataclass(frozen=True)
class SiteData:
    """Data of a site; features, targets and masks are of its own vertices, in ascending order."""

    vertices: NDArray[np.int64]  # numbers of its own and the adjacent vertices, ascending
    owner: NDArray[np.int64]  # the agent of each
    edges: NDArray[np.int64]  # [edges, 2], indices into `vertices`, i < j, sorted
    weights: NDArray[np.float64]
    features: Features  # CSR [own, d], or dense [own, d] or [own, batch, d]
    targets: NDArray[Any]  # classes [own] (-1: unknown), labels [own, C], or real values [own(, batch), outputs]
    masks: dict[str, NDArray[np.bool_]]
    num_classes: int | None
    sample_weights: NDArray[np.float64] | None = None  # shaped as the masks; None: all 1

    @property
    def batch(self) -> int | None:
        return int(self.features.shape[1]) if self.features.ndim == 3 else None

    @property
    def task(self) -> Task:
        return find_task(self.targets)

    @property
    def num_outputs(self) -> int:
        return self.num_classes if self.num_classes is not None else int(self.targets.shape[-1])


def read_site(path: Path, agent: int, classes: Sequence[str] | None, task: Task | None = None) -> SiteData:
    """Read a folder of tables or an .npz file (`gossamer docs deployment` shows both); `classes` are those of all
    sites, names of labels if the task is so."""
    try:
        is_folder, is_file = path.is_dir(), path.suffix == ".npz" and path.is_file()
    except OSError:  # a name too long for any file
        is_folder = is_file = False
    if not (is_folder or is_file):
        raise GossamerError(
            f"expected a folder of CSV tables or an .npz file with the site's data, got {shown(str(path))}"
        )
    labels = task == "multilabel"
    given = _of_tables(path, classes, labels) if is_folder else _of_npz(path)
    num_classes = None if classes is None else len(classes)
    with naming(path):
        return make_site(agent, **given, num_classes=num_classes, labels=labels)


def make_site(
    agent: int,
    own: NDArray[np.int64],
    features: Features,
    targets: NDArray[Any],
    masks: dict[str, NDArray[np.bool_]],
    edges: NDArray[np.int64],
    weights: NDArray[np.float64] | None,
    owners: dict[int, int],
    num_classes: int | None,
    labels: bool = False,
    sample_weights: NDArray[np.float64] | None = None,
) -> SiteData:
    """Check a site's arrays. `edges` hold vertex numbers; `owners` has the agent of each vertex of another site.

    Targets are classes or, if so said, `labels`; without a number of classes they are real values.
    """
    if own.ndim != 1 or len(np.unique(own)) != len(own) or (own < 0).any():
        raise GossamerError("the site's vertices must have different numbers from 0 on")
    elsewhere = np.array(sorted(owners), dtype=np.int64)
    both = np.intersect1d(own, elsewhere)
    if len(both) or agent in owners.values():
        what = f"vertex {both[0]} is this site's own" if len(both) else f"agent {agent} is this site"
        raise GossamerError(f"owners are for other sites' vertices; {what}")
    here, there = np.isin(edges, own), np.isin(edges, elsewhere)
    for wrong, what in (
        (~(here | there).all(1), "names a vertex that is neither this site's nor has an owner"),
        (~here.any(1), "touches no vertex of this site; leave it to the others"),
    ):
        if wrong.any():
            raise GossamerError(f"edge ({', '.join(map(str, edges[wrong][0]))}) {what}")
    vertices = np.union1d(own, edges.reshape(-1)).astype(np.int64)
    pairs, edge_weights = validate_edges(np.searchsorted(vertices, edges), weights, len(vertices), vertices)
    rows = validate_features(features)
    for name, array in (("feature rows", rows), ("targets", targets)):
        count = array.shape[0] if array.ndim else 0
        if count != len(own):
            raise GossamerError(f"the site has {len(own)} vertices and {count} {name}; expected one for each")
    batch = rows.shape[1] if rows.ndim == 3 else None
    for name, mask in masks.items():
        if mask.dtype != np.bool_:  # a list of vertices would be ambiguous: their numbers, or their indices here
            raise GossamerError(f"the {name} mask must hold booleans, one for each vertex, got {mask.dtype}")
    masks = {name: validate_mask(mask, name, len(own), batch) for name, mask in masks.items()}
    weights_of = None if sample_weights is None else validate_sample_weights(sample_weights, len(own), batch)
    order = np.argsort(own)
    return SiteData(
        vertices,
        np.array([owners.get(v, agent) for v in vertices.tolist()], dtype=np.int64),
        pairs,
        edge_weights,
        rows[order],
        _targets(targets, masks, num_classes, labels, batch)[order],
        {name: mask[order] for name, mask in masks.items()},
        num_classes,
        None if weights_of is None else weights_of[order],
    )


def _targets(
    y: NDArray[Any], masks: dict[str, NDArray[np.bool_]], num_classes: int | None, labels: bool, batch: int | None
) -> Any:
    used = np.logical_or.reduce(list(masks.values()))
    if labels:
        check_real(y, "labels")
        table = validate_labels(y, used, batch)
        if table.shape[1] != num_classes:
            raise GossamerError(f"expected a column for each of {num_classes} labels, got {table.shape[1]}")
        return table
    if num_classes is not None:
        if not np.issubdtype(y.dtype, np.integer) or y.ndim != 1 or batch is not None:
            raise GossamerError(
                f"classes must be whole numbers, one for each vertex and without a time axis, got {y.dtype} {y.shape}"
                + (f" with {batch} time steps" if batch is not None else "")
            )
        if (y >= num_classes).any() or (y[used] < 0).any():
            raise GossamerError(f"classes must be numbered 0 to {num_classes - 1}, and known where a split needs them")
        return y.astype(np.int64)
    if not np.issubdtype(y.dtype, np.floating):
        raise GossamerError("whole numbers for targets are classes: name all sites' classes in the site file")
    leading = used.shape
    y = y[..., None] if y.ndim == len(leading) else y
    if y.shape[:-1] != leading or not np.isfinite(y[used]).all():
        expected = ", ".join(map(str, leading))
        raise GossamerError(
            f"real targets must be finite where a split needs them and [{expected}, outputs], got {y.shape}"
        )
    return np.nan_to_num(y, posinf=0.0, neginf=0.0)


def _of_tables(folder: Path, classes: Sequence[str] | None, several: bool) -> dict[str, Any]:
    names, features = read_features(folder / "features.csv")
    number = {name: i for i, name in enumerate(names)}
    own = np.array([parse_vertex(name, folder / "features.csv") for name in names])
    owners = {parse_vertex(v, folder / "owners.csv"): k for v, k in read_owners(folder / "owners.csv").items()}
    edges, weights = read_edges(
        folder / "edges.csv", {str(v): v for v in [*own.tolist(), *owners]}, "features.csv or owners.csv"
    )
    table = folder / "labels.csv"
    given = read_labels(table, number)
    if not any(given.splits):
        raise GossamerError(f"{table} needs a column split with train, validation or test: sites draw none together")
    targets: Any
    if classes is None:
        try:
            targets = parse_real_labels(given)
        except GossamerError as error:
            raise GossamerError(f"{error}; the site file names no classes") from None
    else:
        place = {name: c for c, name in enumerate(classes)}
        rows = parse_label_names(given) if several else [(label,) if label else None for label in given.labels]
        unknown = sorted({name for found in rows if found for name in found} - set(place))
        if unknown:
            raise GossamerError(f"{table}: {shown(unknown[0])} is not among the classes in the site file")
        if several:
            with naming(table):
                targets = tabulate_labels(rows, classes)
        else:
            targets = np.array([place[found[0]] if found else -1 for found in rows], dtype=np.int64)
    return {
        "own": own,
        "features": features,
        "targets": targets,
        "masks": given.masks,
        "edges": edges,
        "weights": weights,
        "owners": owners,
        "sample_weights": given.weights,
    }


def parse_vertex(name: str, path: Path) -> int:
    """The number of a vertex in a table."""
    if not name.isascii() or not name.isdigit() or len(name) > 19 or int(name) >= 2**62:
        raise GossamerError(f"{path}: vertices must be named by numbers that all sites agree on, got {shown(name)}")
    return int(name)


def read_site_arrays(path: Path, names: Sequence[str], optional: Sequence[str]) -> dict[str, Any]:
    """Arrays of an .npz file, features among them."""
    with open_arrays(path) as file:
        sparse_parts = [f"features.{part}" for part in CSR]
        is_sparse = file.keys.issuperset(sparse_parts)
        needed = [*names, *(sparse_parts if is_sparse else ["features"])]
        missing = set(needed) - file.keys
        if missing:
            raise GossamerError(f"{path} has no array {', '.join(sorted(missing))}")
        arrays = file.read([*needed, *(key for key in optional if key in file.keys)])
    if is_sparse:
        arrays["features"] = make_csr(path, "features", {part: arrays[f"features.{part}"] for part in CSR})
    return arrays


def _of_npz(path: Path) -> dict[str, Any]:
    arrays = read_site_arrays(path, ARRAYS, OPTIONAL_ARRAYS)
    owners = take_whole_numbers(path, arrays, "owners", 2)
    if len(np.unique(owners[:, 0])) != len(owners):
        raise GossamerError(f"{path}: owners name a vertex twice; expected one agent for each vertex of other sites")
    return {
        "own": take_whole_numbers(path, arrays, "vertices", 1),
        "features": arrays["features"],
        "targets": arrays["targets"],
        "masks": {split: arrays[split] for split in SPLITS},
        "edges": take_whole_numbers(path, arrays, "edges", 2),
        "weights": arrays.get("weights"),
        "owners": {int(v): int(k) for v, k in owners},
        "sample_weights": arrays.get("sample_weights"),
    }


def take_whole_numbers(path: Path, arrays: dict[str, Any], name: str, ndim: int) -> NDArray[np.int64]:
    """Require an array of whole numbers, [n] or [n, 2]."""
    array = arrays[name]
    if array.size == 0:
        return np.zeros((0, 2)[:ndim], dtype=np.int64)
    if not np.issubdtype(array.dtype, np.integer) or array.ndim != ndim or array.shape[1:] not in ((), (2,)):
        expected = "[n]" if ndim == 1 else "[n, 2]"
        raise GossamerError(f"{path}: {name} must be whole numbers {expected}, got {array.dtype} {array.shape}")
    return np.asarray(array, dtype=np.int64)
