"""Small problems for the agents' tests: a weighted graph, awkward assignments, and the matching oracle."""

import warnings
from collections.abc import Callable, Generator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from oracles.whole_graph import Problem
from scipy import sparse

from gossamer import topology
from gossamer.agents import Host, Inbox, Outbox, TrainingOptions, make_host, make_rule
from gossamer.agents.consensus import MaskedMethod, parse_method
from gossamer.agents.row_codecs import ROW_CODECS
from gossamer.agents.rules import UpdateRule
from gossamer.agents.salts import Secrets
from gossamer.assignment import shared_edges
from gossamer.data import DataGraph, make_graph
from gossamer.model import make_network, make_shift

M = 5
COMPRESSIONS = ["power:1", "power:2,bits=8", "choco:bits=8", "choco:bits=4", "choco:topk=0.2", "choco:randk=0.3"]


@dataclass
class Case:
    graph: DataGraph
    owner: np.ndarray
    shift: Any
    network: Any
    combination: np.ndarray
    problem: Problem
    balanced: bool = False

    def host(
        self,
        agents: Any = range(M),
        rule: str = "gd",
        step_size: float = 0.1,
        *,
        receptive_field: bool = True,
        combination: np.ndarray | None = None,
        initial_deviation: float | None = 0.5,
        same_initial: bool = False,
        seed: int = 3,
        dtype: torch.dtype = torch.float64,
        hosting: np.ndarray | None = None,
        compress: str = "none",
        masked: bool = False,
        boundary_bits: int = 0,
        update_rule: UpdateRule | None = None,
        secrets: Secrets | None = None,
        **training: Any,
    ) -> Host:
        training = {"row_codec": ROW_CODECS.get(f"quantised-{boundary_bits}"), **training}
        how = TrainingOptions(
            update_rule or make_rule(rule),
            step_size,
            seed=seed,
            consensus=MaskedMethod() if masked else parse_method(compress),
            **training,
        )
        return make_host(
            self.graph,
            [(self.shift, self.combination if combination is None else combination)],
            self.network,
            self.owner,
            list(agents),
            how,
            initial_deviation=initial_deviation,
            same_initial=same_initial,
            dtype=dtype,
            receptive_field=receptive_field,
            hosting=hosting,
            balanced=self.balanced,
            secrets=secrets,
        )

    def weights(self, host: Host) -> list[torch.Tensor]:
        return [host.params[f"layer.{i}.weight"].clone() for i in range(len(self.problem.layers))]

    def biases(self, host: Host) -> list[torch.Tensor] | None:
        if not self.network.layers[0].bias:
            return None
        return [host.params[f"layer.{i}.bias"].clone() for i in range(len(self.problem.layers))]


def make_case(
    kind: str = "gcn",
    order: int = 1,
    num_layers: int = 2,
    *,
    sparse_features: bool = True,
    batch: int | None = None,
    dropout: float = 0.0,
    shift: str = "normalized",
    bias: bool = False,
    activation: str = "tanh",
    n: int = 24,
    seed: int = 0,
    task: str = "multiclass",
    sampled: bool = False,
    balanced: bool = False,
    hidden: tuple[int, ...] | None = None,
    **network_options: Any,
) -> Case:
    """Agent 3 has vertices but no labels, agent 4 has no vertex at all. Targets with a batch axis are real values.

    `sampled` draws sample weights, some of them 0, and `balanced` weighs classes or labels. `hidden` are widths in
    place of those of `num_layers`, and other options are those of the network.
    """
    random = np.random.default_rng(seed)
    edges = {(i, i + 1) for i in range(n - 1)} | {
        tuple(sorted(random.choice(n, 2, replace=False).tolist())) for _ in range(2 * n)
    }
    pairs = np.array(sorted(edges))
    owner = random.integers(0, M - 1, n)
    labelled = (random.random(n) < 0.4) & (owner != 3)
    d, classes = 6, 3
    features = random.standard_normal((n, d) if batch is None else (n, batch, d))
    if batch is None:
        targets: Any = random.integers(0, classes, n)
        targets[:classes] = np.arange(classes)
        labelled[:2] = owner[:2] != 3
        features *= random.random((n, d)) < 0.5
        train = labelled
    else:
        targets = random.standard_normal((n, batch, classes))
        train = labelled[:, None] & (random.random(batch) < 0.6)[None, :]
        train[np.flatnonzero(labelled)[0], 0] = True
    if batch is None and task == "multilabel":
        targets = random.random((n, classes)) < (0.2, 0.5, 0.7)
        targets[np.flatnonzero(labelled)[0]] = ~targets[np.flatnonzero(labelled)[1]]
    elif task == "regression":
        targets = random.standard_normal((*train.shape, classes))
    sample_weights = random.uniform(0.1, 3, train.shape) * (random.random(train.shape) < 0.8) if sampled else None
    rest = ~train
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        graph = make_graph(
            "case",
            pairs,
            sparse.csr_array(features) if sparse_features and batch is None else features,
            targets,
            train=train,
            validation=rest,
            test=rest,
            weights=random.uniform(0.5, 2, len(pairs)),
            sample_weights=sample_weights,
        )
    D = make_shift(graph.adjacency, shift)
    hidden = (5, 4)[: num_layers - 1] if hidden is None else hidden
    network = make_network(
        kind,
        d,
        classes,
        hidden=hidden,
        order=order,
        activation=activation,
        bias=bias,
        dropout=dropout,
        **network_options,
    )
    gcn = "one" if order == 1 else "monomial"
    name = {"gcn": gcn, "polynomial": "monomial", "mlp": "none"}.get(kind, kind)
    layers = [(name, order, activation)] * (num_layers - 1) + [(name, order, "identity")]
    C = topology.metropolis_weights(topology.ring(M) | topology.needed_links(shared_edges(graph, owner, M)))
    problem = Problem(
        torch.tensor(D.toarray()),
        torch.tensor(features),
        torch.tensor(graph.targets),
        torch.tensor(graph.train),
        torch.tensor(owner),
        layers,
        dropout,
        seed=3,
        weights=_weigh(graph, sample_weights, balanced and task == "multiclass"),
        positive_weight=_weigh_labels(graph) if balanced and task == "multilabel" else None,
    )
    return Case(graph, owner, D, network, C, problem, balanced)


def _weigh(graph: DataGraph, sample_weights: Any, by_class: bool) -> torch.Tensor:
    """Weights of the examples from their definition, one by one."""
    weights = torch.ones(graph.train.shape, dtype=torch.float64)
    if sample_weights is not None:
        weights *= torch.from_numpy(sample_weights)
    if by_class:
        shown = graph.targets[graph.train].tolist()
        for i, c in enumerate(graph.targets.tolist()):
            weights[i] *= len(shown) / (len(set(shown)) * shown.count(c)) if c in shown else 1.0
    return weights


def _weigh_labels(graph: DataGraph) -> torch.Tensor:
    """Weights of positive labels: the training vertices without the label for each with it."""
    shown = graph.targets[graph.train].tolist()
    counts = [sum(row[c] for row in shown) for c in range(graph.num_outputs)]
    return torch.tensor([(len(shown) - k) / k if 0 < k < len(shown) else 1.0 for k in counts], dtype=torch.float64)


def watched(generator: Generator[Outbox, Inbox, Any], note: Callable[[Outbox], None]) -> Generator[Outbox, Inbox, Any]:
    """The same generator; `note` sees every outbox that it yields."""
    inbox: Inbox | None = None
    while True:
        try:
            outbox = next(generator) if inbox is None else generator.send(inbox)
        except StopIteration as done:
            return done.value
        note(outbox)
        inbox = yield outbox
