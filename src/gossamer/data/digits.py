"""The embedded data set: scikit-learn's handwritten digits as a nearest-neighbour similarity graph."""

import numpy as np
from sklearn.datasets import load_digits
from sklearn.neighbors import kneighbors_graph

from gossamer.data.graph import DataGraph, make_graph
from gossamer.data.splits import split_by_class

NEIGHBOURS = 8
PER_CLASS = 10


def digits(seed: int) -> DataGraph:
    """1797 images of 8 x 8 pixels; an edge joins an image to each of its 8 nearest. One component, 9928 edges."""
    images, labels = load_digits(return_X_y=True)
    features = (images / 16.0).astype(np.float32)
    nearest = kneighbors_graph(images, NEIGHBOURS).tocoo()
    edges = np.stack([nearest.row, nearest.col], axis=1)
    classes = labels.astype(np.int64)
    return make_graph(
        "digits", edges, features, classes, **split_by_class(classes, PER_CLASS, num_validation=500, seed=seed)
    )
