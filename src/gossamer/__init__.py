"""Gossamer trains graph neural networks across agents that talk only to their neighbours.

It implements Scardapane, Spinelli and Di Lorenzo (2021), "Distributed training of graph convolutional networks", which
the code calls the paper: numbers of equations, sections, assumptions, algorithms and figures are those of the paper.

An agent holds vertices of the data graph, and weights of its own. A host is the set of agents that one process carries:
all of them in a simulation, one in a peer, some in a rank of a cluster. A share is what the agents of a host know of
the data, of D and of C; a shard is a share in a folder. A site is an agent with its data before a share is planned. A
member is an agent's side of the protocol between peers. A deployment joins data, assignment and topology.

The code follows the paper's pipeline:
    data          the data graph: edges, features, targets, masks
    assignment    a(i): which agent holds which vertex
    topology      C: which agents talk, and with which weights
    model         shift operators, layers, losses
    agents        inference, back-propagation and consensus, without I/O (Algorithm 1)
    runs          settings, deployments, the training loop, run directories
    engines       what drives the hosts of a run: simulation, cluster
    peers         one process for each agent, over a network
    privacy       what leaves an agent: audits of a run
    experiments   figures and tables of the paper
    observers     what follows a run: CSV, TensorBoard, notebooks, plain lines
    report        tables, progress bars, pictures
    api           train, resume, predict, load_model: what a user calls
    auditing      what curious agents learn from a run
    gathering     agents' folders joined into one run
    replaying     a run whose agents left and joined, simulated to the same bits
    reporting     reports of runs and of reproductions as HTML files
    launching     a run of one process for each agent on this machine
    projects      the folder of a new project
    commands      the sub-commands of `gossamer`
    cli           the sub-commands joined
and stands on
    errors        exceptions and warnings
    choices       names that settings take, without what they stand for
    layer_specs   layers as settings describe them
    files         files read within bounds, written whole or not at all, locked, private
    machine       memory and file descriptors that this process may take
    generators    drivers of generators
    array_types   names of array types
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from gossamer.api import Result, load_model, predict, resume, train
    from gossamer.auditing import audit
    from gossamer.data import DATASETS, DataGraph, from_networkx, from_pyg, load, make_graph
    from gossamer.errors import GossamerError, GossamerWarning
    from gossamer.layer_specs import LayerSpec, PygNetwork
    from gossamer.model.pyg_reading import from_pyg_module
    from gossamer.runs.observers import Observer
    from gossamer.runs.settings import Settings

__all__ = [
    "DATASETS",
    "DataGraph",
    "GossamerError",
    "GossamerWarning",
    "LayerSpec",
    "Observer",
    "PygNetwork",
    "Result",
    "Settings",
    "audit",
    "from_networkx",
    "from_pyg",
    "from_pyg_module",
    "load",
    "load_model",
    "make_graph",
    "predict",
    "resume",
    "train",
]

_HOMES = {  # imported when first used, so that `import gossamer` does not import torch
    "gossamer.api": ("Result", "load_model", "predict", "resume", "train"),
    "gossamer.auditing": ("audit",),
    "gossamer.data": ("DATASETS", "DataGraph", "from_networkx", "from_pyg", "load", "make_graph"),
    "gossamer.errors": ("GossamerError", "GossamerWarning"),
    "gossamer.layer_specs": ("LayerSpec", "PygNetwork"),
    "gossamer.model.pyg_reading": ("from_pyg_module",),
    "gossamer.runs.observers": ("Observer",),
    "gossamer.runs.settings": ("Settings",),
}


def __getattr__(name: str) -> Any:
    for module, names in _HOMES.items():
        if name in names:
            return getattr(import_module(module), name)
    raise AttributeError(f"module 'gossamer' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
