"""The embedded data set: handwritten digits as a nearest-neighbour graph.

The images are scikit-learn's copy of a part of the data of Alpaydin and Kaynak 1998, Optical recognition of handwritten
digits (UCI machine learning repository).
"""

import numpy as np

from gossamer.data.graph import DataGraph, make_graph
from gossamer.data.splits import split_by_class

NEIGHBOURS = 8
DIGIT_LABELS = 10  # training vertices of each class


def load_digits(seed: int) -> DataGraph:
    """Load 1797 images of 8 x 8 pixels; an edge joins an image to each of its 8 nearest. 9928 edges, connected."""
    from sklearn import datasets  # here, because it takes a second that other data sets need not wait

    images, labels = datasets.load_digits(return_X_y=True)
    number = np.arange(len(images))
    # Pixels are whole numbers, so squared distances are exact. Ties, of which 47 images have one at the 8th place, go
    # to the smaller i XOR j, which is symmetric: the graph is the same on every machine.
    squares = (images**2).sum(1)
    distance = squares[:, None] + squares[None, :] - 2 * images @ images.T
    rank = distance * 2048 + (number[:, None] ^ number[None, :])
    np.fill_diagonal(rank, np.inf)
    nearest = np.argpartition(rank, NEIGHBOURS, axis=1)[:, :NEIGHBOURS]
    edges = np.stack([np.repeat(number, NEIGHBOURS), nearest.reshape(-1)], axis=1)
    classes = labels.astype(np.int64)
    masks = split_by_class(classes, DIGIT_LABELS, num_validation=500, seed=seed)
    return make_graph("digits", edges, (images / 16.0).astype(np.float32), classes, **masks)
