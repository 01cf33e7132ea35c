"""The npz layout of the heterophilous benchmark graphs, in which neighbours mostly have different classes.

Platonov, Kuznedelev, Diskin, Babenko and Prokhorenkova 2023, "A critical look at the evaluation of GNNs under
heterophily: are we really making progress?": node_features, node_labels, edges (each once), and several splits as rows
of train_masks, val_masks and test_masks.
"""

from pathlib import Path

from gossamer.data.arrays import open_arrays
from gossamer.data.graph import DataGraph, make_graph
from gossamer.errors import FileError, GossamerError, naming

PARTS = ("node_features", "node_labels", "edges")
SPLIT_KEYS = {"train": "train_masks", "validation": "val_masks", "test": "test_masks"}


def read_heterophilous(path: Path, seed: int, task: str = "auto") -> DataGraph | None:
    """Read a graph with the split of number `seed` modulo their number; None for a file of another layout."""
    try:
        with open_arrays(path) as file:
            if not file.keys.issuperset(PARTS):
                return None
            arrays = file.read([*PARTS, *SPLIT_KEYS.values()])
    except FileError as error:
        raise GossamerError(f"{path} is not a graph in an npz layout of docs/data.md: {error.reason}") from None
    features, labels, edges = (arrays[name] for name in PARTS)
    splits = {name: arrays[key] for name, key in SPLIT_KEYS.items()}
    shapes = {masks.shape for masks in splits.values()}
    if len(shapes) > 1 or splits["train"].ndim != 2 or len(splits["train"]) == 0:
        raise GossamerError(
            f"{path}: expected {', '.join(SPLIT_KEYS.values())} of one shape [splits, vertices]; got "
            f"{', '.join(str(masks.shape) for masks in splits.values())}"
        )
    chosen = {name: masks[seed % len(masks)] for name, masks in splits.items()}
    with naming(path):
        return make_graph(path.stem, edges, features, labels, task=task, **chosen)
