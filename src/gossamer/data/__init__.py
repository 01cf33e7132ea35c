"""Data graphs: the pipeline's first stage.

The code is organised as follows:
    graph      DataGraph and the checks on a user's arrays
    digits     the embedded data set
    citation   CORA, CITESEER, PUBMED, Coauthor Physics, and the npz layout
    traffic    PeMS loop detectors: flows of sensors on a road graph
    blocks     generated graphs of any size
    arrays     the one reader of .npz and .npy files, which trusts none of them
    tables     edges, features and labels as CSV
    rows       the one reader of CSV files
    roads      road graphs from distances between sensors
    checks     checks of a user's arrays
    site       what one site knows of a graph that no one has as a whole
    interop    NetworkX and PyTorch Geometric graphs
    fetch      where files are found, or downloaded and verified
    splits     masks drawn from a seed
"""

import difflib
from collections.abc import Callable
from pathlib import Path

from gossamer.data.blocks import blocks, parse_blocks
from gossamer.data.citation import citation, npz
from gossamer.data.digits import digits
from gossamer.data.fetch import SOURCES
from gossamer.data.graph import DataGraph, make_graph
from gossamer.data.interop import from_networkx, from_pyg
from gossamer.data.tables import tables
from gossamer.data.traffic import TRAFFIC, traffic
from gossamer.errors import GossamerError, shown

__all__ = ["DATASETS", "DataGraph", "from_networkx", "from_pyg", "load", "make_graph"]

DATASETS = ("digits", *SOURCES, *TRAFFIC, "blocks")


def load(dataset: str | Path, seed: int = 0, progress: Callable[[int, int], None] | None = None) -> DataGraph:
    """A data set by name, an .npz file, or a folder with edges.csv, features.csv and labels.csv.

    A generated graph's parameters follow its name: blocks:vertices=1000000,edges=10000000.

    `seed` draws the training, validation and test vertices where the data brings no split of its own.
    """
    path, name = Path(dataset), str(dataset)
    if name == "digits":
        return digits(seed)
    if name in SOURCES:
        return citation(name, seed, progress)
    if name in TRAFFIC:
        return traffic(name, progress)
    if name.partition(":")[0] == "blocks":
        return blocks(parse_blocks(name), seed)
    if path.suffix == ".npz" and path.is_file():
        return npz(path, seed)
    if path.is_dir():
        return tables(path, seed)
    near = difflib.get_close_matches(name, DATASETS, n=1)
    hint = f"; did you mean {near[0]!r}?" if near else "."
    raise GossamerError(
        f"no data set, .npz file or folder of CSV tables called {shown(name)}{hint} Known data sets: "
        f"{', '.join(DATASETS)}"
    )
