"""Gossamer trains graph neural networks across agents that talk only to their neighbours.

The code follows the pipeline of the paper:
    data          the data graph: edges, features, targets, masks
    assignment    a(i): which agent holds which vertex
    topology      C: which agents talk, and with which weights
    model         shift operators, graph convolutional layers, losses
    agents        inference, back-propagation and consensus, without I/O (Algorithm 1)
    runtime       simulation, settings, run directories
    experiments   a run beside its references; a topology on its own; figures of the paper
    report        tables, progress bars, pictures
    commands      the sub-commands, joined in cli
"""

from gossamer.data import DATASETS, DataGraph, from_networkx, from_pyg, load, make_graph
from gossamer.errors import GossamerError, GossamerWarning
from gossamer.experiments.comparison import Result, predict, resume, train
from gossamer.runtime.settings import Settings

__all__ = [
    "DATASETS",
    "DataGraph",
    "GossamerError",
    "GossamerWarning",
    "Result",
    "Settings",
    "from_networkx",
    "from_pyg",
    "load",
    "make_graph",
    "predict",
    "resume",
    "train",
]
