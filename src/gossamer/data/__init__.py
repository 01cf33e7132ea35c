"""Data graphs: the pipeline's first stage.

The code is organised as follows:
    graph      DataGraph, made from a user's arrays
    checks     checks of a user's arrays
    tasks      classes, labels or values: the three kinds of targets
    targets    classes and their names, and real values
    labels     tables of 0 and 1: several labels a vertex
    example_weights weights of examples and classes in the loss
    conversion tensors as arrays
    moments    means and variances of columns, merged over parts
    standardisation features and targets centred and scaled
    splits     random training, validation and test masks, and the choice among fixed ones
    digits     the embedded data set
    citation   CORA, CITESEER, PUBMED, Coauthor Physics, and the npz layout
    heterophilous Minesweeper, and npz files of the heterophilous benchmark graphs
    traffic    PeMS loop detectors: traffic flows of sensors on a road graph
    roads      distances and positions of sensors
    blocks     generated graphs of any size
    interop    NetworkX and PyTorch Geometric graphs
    tables     edges, features and labels as CSV
    label_tables labels in CSV: classes, several labels, or values
    rows       the reader of CSV files and of matrices in text
    arrays     the reader of .npz and .npy files, which trusts none of them
    saving     a DataGraph as an .npz file, and back
    unlabelled graphs to predict on, which need no labels
    site       one site's part of a graph that nobody has as a whole
    new_vertices   vertices of an agent that its network was not trained with
    fetch      files of known data sets: found, or downloaded and verified
Here stand the table of data sets by name, and `load`.
"""

import difflib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gossamer.data.blocks import generate_blocks, parse_blocks
from gossamer.data.citation import load_citation, read_npz
from gossamer.data.digits import load_digits
from gossamer.data.fetch import SOURCES, DownloadProgress
from gossamer.data.graph import DataGraph, make_graph, name_classes
from gossamer.data.heterophilous import HETEROPHILOUS, NUM_SPLITS, load_heterophilous, read_heterophilous
from gossamer.data.interop import convert, from_networkx, from_pyg
from gossamer.data.saving import read_saved
from gossamer.data.splits import check_split, refuse_split
from gossamer.data.tables import read_tables
from gossamer.data.traffic import TRAFFIC, load_traffic
from gossamer.errors import GossamerError, shown

__all__ = ["DATASETS", "DataGraph", "NamedDataset", "from_networkx", "from_pyg", "load", "make_graph", "name_classes"]


@dataclass(frozen=True)
class NamedDataset:
    """A data set that `load` knows by name."""

    load: Callable[[str, int, DownloadProgress | None], DataGraph]  # of its name, a seed for the split, and progress
    parameters: bool = False  # may follow the name, after a colon
    num_splits: int = 0  # fixed ones, of which `load` takes the number in place of a seed


# A new data set is a line here.
DATASETS: dict[str, NamedDataset] = {
    "digits": NamedDataset(lambda name, seed, progress: load_digits(seed)),
    **{name: NamedDataset(load_citation) for name in SOURCES},
    **{name: NamedDataset(load_heterophilous, num_splits=NUM_SPLITS) for name in HETEROPHILOUS},
    **{name: NamedDataset(lambda name, seed, progress: load_traffic(name, progress)) for name in TRAFFIC},
    "blocks": NamedDataset(lambda name, seed, progress: generate_blocks(parse_blocks(name), seed), parameters=True),
}


def load(
    dataset: Any,
    seed: int = 0,
    progress: DownloadProgress | None = None,
    *,
    symmetrise: bool = False,
    task: str = "auto",
    split: int | None = None,
) -> DataGraph:
    """Load a data set by name, an .npz file, or a folder with edges.csv, features.csv and labels.csv; or convert a
    torch_geometric.data.Data or a networkx.Graph.

    A generated graph's parameters follow its name: blocks:vertices=1000000,edges=10000000.

    `seed` draws the training, validation and test vertices where the data has no split of its own. `symmetrise` takes
    directed edges as undirected ones, with the mean weight of both directions. `task` is what to predict where the
    targets leave it open: "multiclass", "multilabel" or "regression". `split` is the number of one of the fixed splits
    of data that has several; by default 0 of a data set by name, and `seed` modulo their number of a file.
    """
    if not isinstance(dataset, str | Path | DataGraph):
        return convert(dataset, symmetrise, task, split)
    if isinstance(dataset, DataGraph):
        refuse_split(split, dataset.name)
        graph = dataset
    else:
        graph = _load(dataset, seed, progress, symmetrise, task, split)
    if task not in ("auto", graph.task):
        raise GossamerError(f"the task {task} is chosen, and the targets of {graph.name} are for {graph.task}")
    return graph


def _load(
    dataset: str | Path, seed: int, progress: DownloadProgress | None, symmetrise: bool, task: str, split: int | None
) -> DataGraph:
    """Load a data set by name, or a file of a user."""
    path, name = Path(dataset), str(dataset)
    kind, colon, _ = name.partition(":")
    if kind in DATASETS and (not colon or DATASETS[kind].parameters):
        named = DATASETS[kind]
        if named.num_splits:
            return named.load(name, check_split(split or 0, named.num_splits, name), progress)
        refuse_split(split, name)
        return named.load(name, seed, progress)
    if path.suffix == ".npz" and path.is_file():
        graph = read_heterophilous(path, seed, task, split)
        if graph is None:
            refuse_split(split, str(path))
            graph = read_saved(path) or read_npz(path, seed, symmetrise, task)
        return graph
    if path.is_dir():
        refuse_split(split, str(path))
        return read_tables(path, seed, symmetrise=symmetrise, task=task)
    near = difflib.get_close_matches(name, DATASETS, n=1)
    hint = f"; did you mean {near[0]!r}?" if near else "."
    raise GossamerError(
        f"no data set, .npz file or folder of CSV tables called {shown(name)}{hint} Known data sets: "
        f"{', '.join(DATASETS)}"
    )
