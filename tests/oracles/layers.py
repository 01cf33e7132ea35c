"""Independent reference of the message-passing layers: the whole graph at once in dense float64, vertex by vertex.

Nothing here imports gossamer; the equations are those of the papers, with a(i) the agent that holds vertex i and its
own weights: Velickovic et al. (2018) for gat, Brody et al. (2022) for gatv2, Hamilton et al. (2017) for sage, Xu et al.
(2019) for gin, Bresson and Laurent (2017) for gated, Wu et al. (2019) for sgc, Gasteiger et al. (2019) for appnp.

A network is a list of mappings, one a layer: `kind`, `activation`, `dropout`, the kind's own options, and those of a
block around it, `norm`, `residual`, `jump` and `last`. Parameters are `layer.0.weight` and so on, stacked over agents.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from oracles.whole_graph import MASK32, Problem, dropout_mask, mean_loss, mixed, splitmix
from torch import Tensor

Described = Mapping[str, Any]
EDGE_KEYS = 65536  # added to a layer's number in the key of its attention's dropout
ROW, COLUMN = 0x2545F491, 0x1B873593


def gradients(
    problem: Problem, adjacency: Tensor, layers: Sequence[Described], params: Mapping[str, Tensor], step: int | None
) -> tuple[Tensor, dict[str, Tensor]]:
    """L and dL/dw_k for all agents, by autograd of the whole graph; `problem` has the data, adjacency A [n, n]."""
    leaves = {name: part.clone().requires_grad_() for name, part in params.items()}
    value = mean_loss(problem, outputs(problem, adjacency, layers, leaves, step))
    found = torch.autograd.grad(value, list(leaves.values()), allow_unused=True, materialize_grads=True)
    return value.detach(), dict(zip(leaves, found, strict=True))


def outputs(
    problem: Problem, adjacency: Tensor, layers: Sequence[Described], params: Mapping[str, Tensor], step: int | None
) -> Tensor:
    """Every vertex's output; dropout as in `step`, or none."""
    timed = problem.X.ndim == 3
    h = problem.X if timed else problem.X[:, None]  # [n, times, width]
    jumped: Tensor | None = None
    for index, layer in enumerate(layers):
        own = {name.split(".", 2)[2]: part for name, part in params.items() if name.startswith(f"layer.{index}.")}
        at = {name: part[problem.owner] for name, part in own.items()}  # every vertex with its own agent's parameters
        x = h
        if step is not None and layer["dropout"]:
            shape = tuple(h.shape) if timed else (len(h), h.shape[-1])
            mask = dropout_mask(shape, problem.seed, step, index, layer["dropout"]).reshape(h.shape)
            x = h * mask / (1 - layer["dropout"])
        drop = None
        if step is not None and layer.get("attention_dropout"):
            key = splitmix(problem.seed, step, EDGE_KEYS + index) >> 32
            drop = _attention_dropout(key, layer["attention_dropout"], timed)
        u = KINDS[layer["kind"]](layer, x, at, adjacency, drop)
        if layer.get("norm"):
            apart = u - u.mean(-1, keepdim=True)
            u = apart / ((apart**2).mean(-1, keepdim=True) + 1e-5) ** 0.5
            u = u * at["norm_weight"][:, None] + at["norm_bias"][:, None]
        u = ACTIVATIONS[layer["activation"]](u)
        if layer.get("residual"):
            u = u + (linear(x, at["residual"]) if "residual" in at else h)
        h = u
        if layer.get("jump"):
            if jumped is None:
                jumped = u
            else:
                jumped = torch.cat([jumped, u], -1) if layer["jump"] == "cat" else torch.maximum(jumped, u)
            if layer["last"]:
                h, jumped = jumped, None
    return h if timed else h[:, 0]


def linear(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """W_{a(i)}^T x_i + b_{a(i)} of every vertex; x [n, times, in], weight [n, in, out], bias [n, out]."""
    y = torch.einsum("nti,nio->nto", x, weight)
    return y if bias is None else y + bias[:, None]


def _neighbours(adjacency: Tensor, i: int) -> list[int]:
    return [j for j in range(len(adjacency)) if j != i and adjacency[i, j] != 0]


AttentionDropout = Callable[[int, int, int, int], float]


def _attention_dropout(key: int, dropout: float, timed: bool) -> AttentionDropout:
    """Factors of attention by target, source, time step and head, one at a time in Python integers."""

    def factor(i: int, j: int, t: int, head: int) -> float:
        ends = (mixed(i, ROW, 2) + mixed(j, COLUMN, 2)) & MASK32
        word = mixed(ends, ROW, 2) + mixed(head, COLUMN, 2)
        if timed:
            word += mixed(mixed(t, COLUMN, 2), ROW, 2)
        kept = (mixed(word & MASK32, key, 1) ^ 0x80000000) >= round(dropout * 2**32)
        return 1 / (1 - dropout) if kept else 0.0

    return factor


def _attend(
    layer: Described,
    u: Tensor,
    score: Callable[[int, int], Tensor],
    at: Mapping[str, Tensor],
    adjacency: Tensor,
    drop: AttentionDropout | None,
) -> Tensor:
    """sum_j alpha_ij u_j by head; u [n, times, heads, C], score(i, j) [times, heads]."""
    n, times, heads, _ = u.shape
    found = []
    for i in range(n):
        near = [*_neighbours(adjacency, i), i]
        weights = torch.stack([score(i, j) for j in near]).exp()
        alpha = weights / weights.sum(0)
        if drop is not None:
            factors = [[[drop(i, j, t, head) for head in range(heads)] for t in range(times)] for j in near]
            alpha = alpha * torch.tensor(factors, dtype=u.dtype)
        found.append((alpha[..., None] * u[near]).sum(0))
    summed = torch.stack(found)
    y = summed.reshape(n, times, -1) if layer["concat"] else summed.mean(2)
    return y + at["bias"][:, None] if "bias" in at else y


def _leaky(x: Tensor, slope: float) -> Tensor:
    return torch.where(x > 0, x, slope * x)


def _gat(
    layer: Described, x: Tensor, at: Mapping[str, Tensor], adjacency: Tensor, drop: AttentionDropout | None
) -> Tensor:
    u = linear(x, at["weight"]).unflatten(-1, (layer["heads"], -1))

    def score(i: int, j: int) -> Tensor:
        both = (at["source"][i] * u[j]).sum(-1) + (at["target"][i] * u[i]).sum(-1)
        return _leaky(both, layer["negative_slope"])

    return _attend(layer, u, score, at, adjacency, drop)


def _gatv2(
    layer: Described, x: Tensor, at: Mapping[str, Tensor], adjacency: Tensor, drop: AttentionDropout | None
) -> Tensor:
    u = linear(x, at["weight"], at.get("source_bias")).unflatten(-1, (layer["heads"], -1))
    v = linear(x, at["target"], at.get("target_bias")).unflatten(-1, (layer["heads"], -1))

    def score(i: int, j: int) -> Tensor:
        return (at["attention"][i] * _leaky(v[i] + u[j], layer["negative_slope"])).sum(-1)

    return _attend(layer, u, score, at, adjacency, drop)


def _sage(layer: Described, x: Tensor, at: Mapping[str, Tensor], adjacency: Tensor, drop: Any) -> Tensor:
    u = linear(x, at["weight"])
    found = []
    for i in range(len(u)):
        near = u[_neighbours(adjacency, i)]
        if not len(near):
            found.append(torch.zeros_like(u[i]))
        elif layer["aggregate"] == "max":
            found.append(near.amax(0))
        else:
            found.append(near.sum(0) / (len(near) if layer["aggregate"] == "mean" else 1))
    y = torch.stack(found)
    if "root" in at:
        y = y + linear(x, at["root"])
    if "bias" in at:
        y = y + at["bias"][:, None]
    if layer["normalise"]:
        y = y / (y**2).sum(-1, keepdim=True).sqrt()
    return y


def _gin(layer: Described, x: Tensor, at: Mapping[str, Tensor], adjacency: Tensor, drop: Any) -> Tensor:
    u = linear(x, at["weight"])
    epsilon = at["epsilon"][:, None] if "epsilon" in at else layer["epsilon"]
    summed = torch.stack([u[_neighbours(adjacency, i)].sum(0) for i in range(len(u))]) + (1 + epsilon) * u
    if "inner_bias" in at:
        summed = summed + at["inner_bias"][:, None]
    return linear(ACTIVATIONS[layer["inner_activation"]](summed), at["second"], at.get("bias"))


def _gated(layer: Described, x: Tensor, at: Mapping[str, Tensor], adjacency: Tensor, drop: Any) -> Tensor:
    q, v, k = (linear(x, at[name], at.get(f"{name}_bias")) for name in ("query", "value", "key"))
    found = []
    for i in range(len(x)):
        near = _neighbours(adjacency, i)
        found.append((v[near] / (1 + (-(k[i] + q[near])).exp())).sum(0))
    y = torch.stack(found)
    if "skip" in at:
        y = y + linear(x, at["skip"])
    return y + at["bias"][:, None] if "bias" in at else y


def _filter(layer: Described, x: Tensor, at: Mapping[str, Tensor], adjacency: Tensor, drop: Any) -> Tensor:
    """gcn, sgc: D^P; mlp: D^0; appnp: (1 - alpha) D y + alpha x, P times, x with its bias. D is Kipf and Welling's, of
    edge weights."""
    looped = adjacency + torch.eye(len(adjacency), dtype=adjacency.dtype)
    scale = looped.sum(1) ** -0.5
    D = scale[:, None] * looped * scale
    early = layer["early_bias"]
    u = y = linear(x, at["weight"], at.get("bias") if early else None)
    teleport = layer.get("teleport", 0.0)
    for _ in range(layer["order"]):
        y = (1 - teleport) * torch.einsum("ij,jtc->itc", D, y) + teleport * u
    return y + at["bias"][:, None] if "bias" in at and not early else y


KINDS: dict[str, Callable[..., Tensor]] = {
    "gat": _gat,
    "gatv2": _gatv2,
    "sage": _sage,
    "gin": _gin,
    "gated": _gated,
    "filter": _filter,
}
ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "relu": torch.relu,
    "tanh": torch.tanh,
    "elu": lambda z: torch.where(z > 0, z, z.exp() - 1),
    "identity": lambda z: z,
}
