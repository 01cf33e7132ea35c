"""Independent references in dense float64: the whole graph at once, no agents' messages, autograd for gradients.

Nothing here imports gossamer; the formulas are re-derived from the paper.
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

MASK32 = 0xFFFFFFFF


@dataclass
class Problem:
    """D [n, n], X [n(, batch), d], targets, the labelled entries, a(i), and one (kind, order, activation) a layer.

    kind "one": D X W (eq. 5); "monomial": eq. (25); "chebyshev"; "none": X W.
    """

    D: Tensor
    X: Tensor
    targets: Tensor
    labelled: Tensor
    owner: Tensor
    layers: list[tuple[str, int, str]]
    dropout: float = 0.0
    seed: int = 0
    weights: Tensor | None = None  # of the examples, on any scale, shaped as the labelled entries
    positive_weight: Tensor | None = None  # of each label


def polynomials(D: Tensor, kind: str, order: int) -> list[Tensor]:
    identity = torch.eye(len(D), dtype=D.dtype)
    if kind == "none":
        return [identity]
    if kind == "one":
        return [D]
    if kind == "monomial":
        return [torch.linalg.matrix_power(D, p) for p in range(order + 1)]
    found = [identity, D]
    for _ in range(2, order + 1):
        found.append(2 * D @ found[-1] - found[-2])
    return found[: order + 1]


def outputs(problem: Problem, weights: list[Tensor], biases: list[Tensor] | None, step: int | None) -> Tensor:
    """Every vertex's output with weights[l] [m(, P+1), in, out]; dropout as in `step`, or none."""
    h = problem.X
    activations: dict[str, Callable[[Tensor], Tensor]] = {
        "relu": torch.relu,
        "tanh": torch.tanh,
        "elu": torch.nn.functional.elu,
        "identity": lambda z: z,
    }
    for index, (kind, order, activation) in enumerate(problem.layers):
        if step is not None and problem.dropout:
            h = h * dropout_mask(h.shape, problem.seed, step, index, problem.dropout) / (1 - problem.dropout)
        powers = polynomials(problem.D, kind, order)
        stack = weights[index] if weights[index].ndim == 4 else weights[index].unsqueeze(1)
        z = torch.zeros((), dtype=h.dtype)
        for p, matrix in enumerate(powers):
            own = stack[problem.owner, p]  # [n, in, out]: every vertex with its own agent's weights
            x = torch.einsum("n...i,nio->n...o", h, own)
            z = z + torch.einsum("ij,j...->i...", matrix, x)
        if biases is not None:
            own_bias = biases[index][problem.owner]
            z = z + (own_bias if z.ndim == 2 else own_bias[:, None])
        h = activations[activation](z)
    return h


def loss(
    problem: Problem, weights: list[Tensor], biases: list[Tensor] | None = None, step: int | None = None
) -> Tensor:
    """L = 1/|T_D| sum over labelled entries, or their weighted mean."""
    return mean_loss(problem, outputs(problem, weights, biases, step))


def mean_loss(problem: Problem, y: Tensor) -> Tensor:
    """The same of outputs y."""
    if problem.targets.dtype == torch.int64:
        log_p = y - torch.logsumexp(y, dim=-1, keepdim=True)
        each = -log_p[torch.arange(len(y)), problem.targets]
    elif problem.targets.dtype == torch.bool:
        negative = torch.logsumexp(torch.stack([torch.zeros_like(y), y]), 0)  # -log(1 - sigmoid(y))
        positive = torch.ones(y.shape[1], dtype=y.dtype) if problem.positive_weight is None else problem.positive_weight
        each = torch.where(problem.targets, positive * (negative - y), negative).mean(-1)
    else:
        each = ((y - problem.targets) ** 2).mean(-1)
    e = torch.ones_like(each) if problem.weights is None else problem.weights
    return (e * each)[problem.labelled].sum() / e[problem.labelled].sum()


def gradients(
    problem: Problem, weights: list[Tensor], biases: list[Tensor] | None = None, step: int | None = None
) -> list[Tensor]:
    """dL/dw_k for all agents, by autograd of the whole graph: weights, then biases."""
    leaves = [w.clone().requires_grad_() for w in (weights + (biases or []))]
    count = len(weights)
    value = loss(problem, leaves[:count], leaves[count:] if biases is not None else None, step)
    return list(torch.autograd.grad(value, leaves))


def recursion(
    problem: Problem,
    weights: list[Tensor],
    C: Tensor,
    rule: str,
    eta: float,
    steps: int,
    *,
    every: int = 1,
    mix_first: bool = False,
    weight_decay: float = 0.0,
    decayed: int | None = None,
    step_decay: float = 0.0,
    track: bool = False,
    beta: float = 0.9,
) -> list[Tensor]:
    """The stacked recursion w^{t+1} = (C x I) psi^t of eq. (14), psi^t by the plain formulas of each rule.

    With `mix_first` the descent starts from (C x I) w^t instead, with the gradient of w^t. With `track` every agent
    descends by m s_k, s^t = (C x I) (s^{t-1} + g^t - g^{t-1}), which is not mixed where the weights are not.
    Weights decay in the first `decayed` layers, or in all.
    """
    m = len(C)
    w = [part.clone() for part in weights]
    first = [torch.zeros_like(part) for part in w]
    second = [torch.zeros_like(part) for part in w]
    s = before = [torch.zeros_like(part) for part in w]
    for t in range(steps):
        g = gradients(problem, w, None, t)
        g[:decayed] = [a + weight_decay / m * b for a, b in zip(g[:decayed], w[:decayed], strict=True)]
        rate = eta / (1 + step_decay * t)
        mix = every and (t + 1) % every == 0
        if track:
            s, before = [a + b - c for a, b, c in zip(s, g, before, strict=True)], g
            if mix:
                s = [torch.einsum("kz,z...->k...", C, part) for part in s]
            g = s if rule != "adam" else [m * part for part in s]
        if mix and mix_first:
            w = [torch.einsum("kz,z...->k...", C, part) for part in w]
        if rule == "gd":
            psi = [a - m * rate * b for a, b in zip(w, g, strict=True)]
        elif rule == "momentum":
            first = [beta * v + b for v, b in zip(first, g, strict=True)]
            psi = [a - m * rate * v for a, v in zip(w, first, strict=True)]
        else:
            first = [beta * v + (1 - beta) * b for v, b in zip(first, g, strict=True)]
            second = [0.999 * u + 0.001 * b * b for u, b in zip(second, g, strict=True)]
            psi = [
                a - rate * (v / (1 - beta ** (t + 1))) / ((u / (1 - 0.999 ** (t + 1))).sqrt() + 1e-8)
                for a, v, u in zip(w, first, second, strict=True)
            ]
        w = [torch.einsum("kz,z...->k...", C, part) for part in psi] if mix and not mix_first else psi
    return w


def dropout_mask(shape: tuple[int, ...], seed: int, step: int, layer: int, dropout: float) -> Tensor:
    """The counter-based dropout mask, one entry at a time in Python integers."""
    mask = torch.empty(shape, dtype=torch.float64)
    key = splitmix(seed, step, layer) >> 32
    for entry in torch.cartesian_prod(*(torch.arange(size) for size in shape)).tolist():
        vertex, column = entry[0], entry[-1]
        word = mixed(vertex, 0x2545F491, 2) + mixed(column, 0x1B873593, 2)
        if len(shape) == 3:
            word += mixed(mixed(entry[1], 0x1B873593, 2), 0x2545F491, 2)
        kept = (mixed(word & MASK32, key, 1) ^ 0x80000000) >= round(dropout * 2**32)
        mask[tuple(entry)] = float(kept)
    return mask


def mixed(word: int, salt: int, rounds: int) -> int:
    """The 32-bit hash: xor with the salt, multiply, then xor-shift and multiply."""
    x = ((word ^ salt) & MASK32) * 0x9E3779B9 & MASK32
    for shift, factor in ((16, 0x7FEB352D), (15, 0x846CA68B))[2 - rounds :]:
        x = (x ^ x >> shift) * factor & MASK32
    return x


def splitmix(*parts: int) -> int:
    word = 2**64 - 1
    state = 0x243F6A8885A308D3
    for part in parts:
        state = ((state ^ (part & word)) + 0x9E3779B97F4A7C15) & word
        state = ((state ^ (state >> 30)) * 0xBF58476D1CE4E5B9) & word
        state = ((state ^ (state >> 27)) * 0x94D049BB133111EB) & word
        state = state ^ (state >> 31)
    return state
