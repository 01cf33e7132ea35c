"""Passes: a plan with a host's data laid out for it, as a forward pass reads it, for training or for evaluation."""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import sparse
from torch import Tensor

from gossamer.agents.coded_rows import HostedCodec
from gossamer.agents.counter_rng import hash_columns, hash_rows
from gossamer.agents.dropout import Drop
from gossamer.agents.edge_counters import EdgeCounters, make_edge_counters
from gossamer.agents.inputs import LayerInput
from gossamer.agents.layout import Layout
from gossamer.agents.plan import LayerPlan, Plan, make_plan
from gossamer.agents.salts import OwnedRows, RowSalts, Secrets, own_rows
from gossamer.agents.share import Share
from gossamer.agents.step_links import StepLinks
from gossamer.model import Network
from gossamer.model.layers import Outputs, edge_dropout
from gossamer.model.product import DenseProduct, SparseProduct, plan_dense, plan_sparse
from gossamer.model.selected_product import SelectedProduct, convert_features, has_many_entries, plan_selected

EDGE_STREAMS = 1 << 16  # added to a layer's number in the keys of its edges' random numbers
Product = DenseProduct | SparseProduct | SelectedProduct


@dataclass(frozen=True)
class OwnInput:
    """The input of a layer at its output rows, where the layer keeps something of it."""

    product: DenseProduct | SparseProduct
    counters: Tensor | None = None  # of a sparse input's entries; rows share those of the whole input
    salt_rows: Tensor | None = None


@dataclass(frozen=True)
class Pass:
    plan: Plan
    vertices: NDArray[np.int64]  # of the output rows, by global number
    products: tuple[Product, ...]
    features: Tensor  # the first layer's input rows, or a sparse input's entries; of selected ones nothing
    dropout: tuple[float, ...]  # of each layer's input
    counters: tuple[
        Tensor, ...
    ]  # for each layer, those of dropout's random numbers (of selected entries in both orders)
    targets: Tensor
    masks: dict[str, Tensor]  # bool: the output rows (and time steps) for train, validation and test
    weights: Tensor | None = None  # of the examples in the loss, shaped as the masks; None: all 1
    positive_weight: Tensor | None = None  # of each label [C] in the loss; None: all 1
    owned: OwnedRows | None = None  # hosted vertices, with secrets for dropout; None: it is drawn from the seed
    salt_rows: tuple[Tensor, ...] = ()  # for each layer, the hosted vertex of each of the counters
    fraction: float = 1.0  # of the training examples' time steps that it holds, for a mini-batch
    own: tuple[OwnInput | None, ...] = ()  # for each layer, where it keeps something of its input
    edge_dropout: tuple[float, ...] = ()  # for each layer
    edge_counters: tuple[EdgeCounters | None, ...] = ()

    def input(self, index: int, x: Tensor, key: tuple[int, int] | None) -> LayerInput:
        """A layer's input x; `key` is the seed and the step that dropout is drawn for, None for none."""
        plan = self.plan.layers[index]
        salt_rows = self.salt_rows[index] if self.owned is not None else None
        drop = self._drop(index, key, self.counters[index], salt_rows)
        return LayerInput(x, self.products[index], drop, plan.input_row, plan.slab, len(plan.gather.powers), index == 0)

    def own_input(self, index: int, x: Tensor, key: tuple[int, int] | None) -> LayerInput:
        """The same input at the layer's output rows, with the same dropout."""
        plan, own = self.plan.layers[index], self.own[index]
        if own is None:
            raise AssertionError(f"layer {index} keeps nothing of its input")
        if own.counters is None:
            salt_rows = self.salt_rows[index] if self.owned is not None else None
            drop = self._drop(index, key, self.counters[index], salt_rows)
        else:
            drop = self._drop(index, key, own.counters, own.salt_rows)
        entries = own.product.values if isinstance(own.product, SparseProduct) else x
        agent = plan.outputs.agent.numpy()
        return LayerInput(entries, own.product, drop, plan.own_row, agent, 1, index == 0)

    def outputs(
        self, index: int, kept: Tensor | None, key: tuple[int, int] | None, links: StepLinks | None = None
    ) -> Outputs:
        """A layer's output rows, with what it has kept of their inputs, and the edges that the `links` of a step leave;
        edges have dropout as the inputs have."""
        at, chosen = self.plan.layers[index].outputs_at(links)
        edges, dropout = self.edge_counters[index], self.edge_dropout[index]
        if edges is not None and chosen is not None:
            edges = edges.select(chosen)
        drop = None
        if edges is not None and key is not None and dropout:
            named = *key, EDGE_STREAMS + index
            salts = None
            if self.owned is not None and edges.salt_row is not None:
                salts = RowSalts(self.owned.draw_salts("edge-dropout", *named), edges.salt_row)
            drop = Drop(edges.counters, dropout, named, salts)
        return at if kept is None and drop is None else replace(at, kept=kept, drop_edges=drop)

    def _drop(self, index: int, key: tuple[int, int] | None, counters: Tensor, salt_rows: Tensor | None) -> Drop | None:
        dropout = self.dropout[index]
        if key is None or not dropout:
            return None
        named = *key, index
        salts = None
        if self.owned is not None and salt_rows is not None:
            salts = RowSalts(self.owned.draw_salts("dropout", *named), salt_rows)
        return Drop(counters, dropout, named, salts)

    @property
    def by_vertex(self) -> Tensor:
        """Positions of the output rows in the order of their vertices."""
        return torch.from_numpy(np.argsort(self.vertices))

    @property
    def has_times(self) -> bool:
        """There is a batch axis."""
        return self.masks["train"].ndim == 2


def make_pass(
    share: Share,
    layout: Layout,
    network: Network,
    dtype: torch.dtype,
    fields: list[list[NDArray[np.bool_]]],
    times: NDArray[np.int64] | None,
    other: Pass | None = None,
    codec: HostedCodec | None = None,
    secrets: Secrets | None = None,
    training: bool = True,
    changing: bool = False,
) -> Pass:
    """The data of a share laid out for the vertices of `fields` and, where there is a batch axis, these time steps.

    A dense input that is laid out as the `other` pass's is not copied. `secrets` of the agents decide dropout, which a
    pass that is not for `training` has not. Its links may be down in a step if they are `changing`.
    """
    gathers = network.gathers
    dropout = tuple(layer.dropout if training else 0.0 for layer in network.layers)
    num_slabs = len(share.agents) * len(gathers[0].powers)
    given = convert_features(share.features, num_slabs)
    forwarded = () if share.routes is None else share.routes.list_forwarded(training)
    agents = share.agents if changing else None
    plan = make_plan(layout, gathers, fields, dtype, not sparse.issparse(given), codec, forwarded, agents)
    columns = np.arange(share.batch) if share.batch is not None and times is None else times
    row = np.cumsum(share.hosted) - 1  # of a vertex among the hosted ones

    def chosen(array: NDArray[Any]) -> Tensor:
        rows = array[row[plan.outputs]]
        return torch.from_numpy(rows if columns is None else rows[:, columns])

    targets = chosen(share.targets)
    features, first = _first_input(given, row, plan.layers[0], num_slabs, columns, dtype, other)
    length = 1 if columns is None else len(columns)
    products: tuple[Product, ...] = (
        first,
        *(plan_dense(p.input_row, p.slab, len(p.inputs), dtype, length) for p in plan.layers[1:]),
    )
    counters = tuple(
        _counters(rate, share.vertices[p.inputs], p.input_row, product, columns)
        for rate, p, product in zip(dropout, plan.layers, products, strict=True)
    )
    salt_rows = tuple(
        _salt_rows(row[p.inputs], p.input_row, product, part)
        for p, product, part in zip(plan.layers, products, counters, strict=True)
        if secrets is not None
    )
    own = tuple(
        _own_input(rate, given, row, share, p, index, columns, dtype, secrets is not None)
        for index, (rate, p) in enumerate(zip(dropout, plan.layers, strict=True))
    )
    edge_counters = tuple(
        make_edge_counters(edge_dropout(layer), p, share.vertices, row, columns, secrets is not None)
        if training
        else None
        for layer, p in zip(network.layers, plan.layers, strict=True)
    )
    width = share.features.shape[-1]
    if isinstance(first, SparseProduct) and has_many_entries(len(first.values), num_slabs, width):
        products, features = (plan_selected(first, width), *products[1:]), features[:0]
        if dropout[0]:
            counters = _add_transposed(counters, first)
            salt_rows = _add_transposed(salt_rows, first)
    return Pass(
        plan=plan,
        vertices=share.vertices[plan.outputs],
        products=products,
        features=features,
        dropout=dropout,
        counters=counters,
        owned=None if secrets is None else own_rows(secrets, share.owner[share.hosted]),
        salt_rows=salt_rows,
        own=own,
        edge_dropout=tuple(map(edge_dropout, network.layers)),
        edge_counters=edge_counters,
        targets=targets.to(dtype) if share.task == "regression" else targets,
        masks={name: chosen(mask) for name, mask in share.masks.items()},
        weights=None if share.example_weights is None else chosen(share.example_weights).to(dtype),
        positive_weight=None if share.positive_weight is None else torch.from_numpy(share.positive_weight).to(dtype),
    )


def _first_input(
    features: Any,
    row: NDArray[np.int64],
    plan: LayerPlan,
    num_slabs: int,
    columns: NDArray[np.int64] | None,
    dtype: torch.dtype,
    other: Pass | None,
) -> tuple[Tensor, Product]:
    if sparse.issparse(features):
        product = plan_sparse(features[row[plan.inputs]], plan.input_row, plan.slab, num_slabs, dtype)
        return product.values, product
    if other is not None and columns is None and np.array_equal(plan.inputs, other.plan.layers[0].inputs):
        dense = other.features
    else:
        rows = features[row[plan.inputs]]
        dense = torch.from_numpy(np.ascontiguousarray(rows if columns is None else rows[:, columns])).to(dtype)
    times = 1 if columns is None else len(columns)
    return dense, plan_dense(plan.input_row, plan.slab, len(plan.inputs), dtype, times)


def _own_input(
    dropout: float,
    features: Any,
    row: NDArray[np.int64],
    share: Share,
    plan: LayerPlan,
    index: int,
    columns: NDArray[np.int64] | None,
    dtype: torch.dtype,
    secret: bool,
) -> OwnInput | None:
    """The input at the output rows of a layer that keeps something of it; `features` are the first layer's."""
    if not plan.gather.own:
        return None
    agent = plan.outputs.agent.numpy()
    if index or not sparse.issparse(features):
        times = 1 if columns is None else len(columns)
        return OwnInput(plan_dense(plan.own_row, agent, len(plan.inputs), dtype, times))
    product = plan_sparse(features[row[plan.inputs]], plan.own_row, agent, len(share.agents), dtype)
    counters = _counters(dropout, share.vertices[plan.inputs], plan.own_row, product, columns)
    salt_rows = _salt_rows(row[plan.inputs], plan.own_row, product, counters) if secret else None
    return OwnInput(product, counters, salt_rows)


def _counters(
    dropout: float,
    vertices: NDArray[np.int64],
    input_row: NDArray[np.int64],
    product: Product,
    columns: NDArray[np.int64] | None,
) -> Tensor:
    """Counters of dropout's random numbers: one for each entry of a sparse input; for a dense one a hash for each row
    (and time step), to which the columns' hashes are added later. Vertices go by their global numbers."""
    if dropout == 0.0:
        return torch.empty(0, dtype=torch.int32)
    counters = hash_rows(torch.from_numpy(vertices))
    if isinstance(product, SparseProduct):
        rows = torch.from_numpy(input_row.astype(np.int32)[product.entry_row])
        return counters.index_select(0, rows).add_(hash_columns(torch.from_numpy(product.entry_feature)))
    if columns is None:
        return counters[:, None]
    return counters[:, None, None] + hash_rows(hash_columns(torch.from_numpy(columns)))[None, :, None]


def _add_transposed(parts: tuple[Tensor, ...], first: SparseProduct) -> tuple[Tensor, ...]:
    """The same with the first layer's entries in both orders, that of X^ and that of X^T."""
    return tuple(
        part if number else torch.stack([part, part.index_select(0, first.to_transposed)])
        for number, part in enumerate(parts)
    )


def _salt_rows(hosted: NDArray[np.int64], input_row: NDArray[np.int64], product: Product, counters: Tensor) -> Tensor:
    """The hosted vertex that each counter belongs to, from that of each input row; broadcasts with the counters."""
    if not counters.numel():
        return counters.long()
    if isinstance(product, SparseProduct):
        return torch.from_numpy(hosted[input_row[product.entry_row]])
    return torch.from_numpy(hosted).view(-1, *[1] * (counters.ndim - 1))
