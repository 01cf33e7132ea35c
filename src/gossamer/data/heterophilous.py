"""Minesweeper, and the npz layout of the heterophilous benchmark graphs, in which neighbours mostly have different
classes.

Platonov, Kuznedelev, Diskin, Babenko and Prokhorenkova 2023, "A critical look at the evaluation of GNNs under
heterophily: are we really making progress?": node_features, node_labels, edges (each once), and several splits as rows
of train_masks, val_masks and test_masks.

In Minesweeper the vertices are the cells of a grid of 100 x 100, joined to the 8 around them. A fifth of them are
mines, to be found from the numbers of mines around, which half of the cells show.
"""

from pathlib import Path

from gossamer.data.arrays import open_arrays
from gossamer.data.fetch import DownloadProgress, Source, find_or_download
from gossamer.data.graph import DataGraph, make_graph
from gossamer.data.splits import check_split
from gossamer.errors import FileError, GossamerError, naming

PARTS = ("node_features", "node_labels", "edges")
SPLIT_KEYS = {"train": "train_masks", "validation": "val_masks", "test": "test_masks"}
NUM_SPLITS = 10  # of each published graph
HETEROPHILOUS = {
    "minesweeper": Source(
        "graphs/minesweeper.npz",
        "https://raw.githubusercontent.com/yandex-research/heterophilous-graphs/main/data/minesweeper.npz",
        None,
        (10000, 39402, 7, 2),
    )
}


def load_heterophilous(name: str, split: int, progress: DownloadProgress | None = None) -> DataGraph:
    """Load a published graph with one of its fixed splits."""
    source = HETEROPHILOUS[name]
    path = find_or_download(name, source.path, source.url, source.blob, progress)
    graph = read_heterophilous(path, 0, split=split)
    if graph is None:
        raise GossamerError(f"{path} is not a graph in the layout of {name}: expected {', '.join(PARTS)}")
    source.check_sizes(name, (graph.num_vertices, graph.num_edges, graph.num_features, graph.num_classes))
    return graph


def read_heterophilous(path: Path, seed: int, task: str = "auto", split: int | None = None) -> DataGraph | None:
    """Read a graph with the split of number `split`, or `seed` modulo their number; None for a file of another
    layout."""
    try:
        with open_arrays(path) as file:
            if not file.keys.issuperset(PARTS):
                return None
            arrays = file.read([*PARTS, *SPLIT_KEYS.values()])
    except FileError as error:
        raise GossamerError(f"{path} is not a graph in the npz layout (gossamer docs data): {error.reason}") from None
    features, labels, edges = (arrays[name] for name in PARTS)
    splits = {name: arrays[key] for name, key in SPLIT_KEYS.items()}
    shapes = {masks.shape for masks in splits.values()}
    if len(shapes) > 1 or splits["train"].ndim != 2 or len(splits["train"]) == 0:
        raise GossamerError(
            f"{path}: expected {', '.join(SPLIT_KEYS.values())} of one shape [splits, vertices]; got "
            f"{', '.join(str(masks.shape) for masks in splits.values())}"
        )
    count = len(splits["train"])
    number = seed % count if split is None else check_split(split, count, str(path))
    chosen = {name: masks[number] for name, masks in splits.items()}
    with naming(path):
        return make_graph(path.stem, edges, features, labels, task=task, **chosen)
