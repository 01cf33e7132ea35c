"""Update rules: psi_k from w_k and agent k's gradient (eq. (15), Sec. V-D), as pairs of functions, joined by name.

`init(params)` makes a rule's state; `update(gradient, state, params, step_size, step)` returns psi. It consumes its
gradient and state: psi is written where the gradient stood, and the state is brought forward in place, because
fresh memory for every step would cost more time than the arithmetic. Parameters are only read.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.optim import Optimizer

from gossamer.errors import GossamerError
from gossamer.model import Params

StateDict = dict[str, Tensor]  # `velocity.layer.0.weight` and so on, stacked over the hosted agents
STATISTIC, SCALAR = "statistic.", "scalar."  # names of a wrapped optimiser's state


@dataclass(frozen=True)
class UpdateRule:
    init: Callable[[Params], StateDict]
    update: Callable[[Params, StateDict, Params, float, int], Params]
    scale_free: bool  # if not, the centralised step size is multiplied by m


def gd() -> UpdateRule:
    """psi = w - eta g."""

    def update(gradient: Params, state: StateDict, params: Params, step_size: float, step: int) -> Params:
        for name, g in gradient.items():
            torch.add(params[name], g, alpha=-step_size, out=g)
        return gradient

    return UpdateRule(lambda params: {}, update, scale_free=False)


def momentum(decay: float = 0.9) -> UpdateRule:
    """v <- decay v + g, psi = w - eta v."""

    def init(params: Params) -> StateDict:
        return {f"velocity.{name}": torch.zeros_like(w) for name, w in params.items()}

    def update(gradient: Params, state: StateDict, params: Params, step_size: float, step: int) -> Params:
        for name, g in gradient.items():
            v = state[f"velocity.{name}"]
            torch.add(g, v, alpha=decay, out=v)
            torch.add(params[name], v, alpha=-step_size, out=g)
        return gradient

    return UpdateRule(init, update, scale_free=False)


def adam(decay: float = 0.9, square_decay: float = 0.999, epsilon: float = 1e-8) -> UpdateRule:
    """m <- b1 m + (1 - b1) g, s <- b2 s + (1 - b2) g^2, psi = w - eta m^ / (sqrt(s^) + epsilon).

    m^ = m / (1 - b1^t) and s^ = s / (1 - b2^t), t = step + 1. The statistics stay with their agent.
    """

    def init(params: Params) -> StateDict:
        return {f"{kind}.{name}": torch.zeros_like(w) for kind in ("mean", "square") for name, w in params.items()}

    def update(gradient: Params, state: StateDict, params: Params, step_size: float, step: int) -> Params:
        rate = step_size / (1 - decay ** (step + 1))
        spread = math.sqrt(1 - square_decay ** (step + 1))
        for name, g in gradient.items():
            mean, square = state[f"mean.{name}"], state[f"square.{name}"]
            mean.lerp_(g, 1 - decay)
            square.mul_(square_decay).addcmul_(g, g, value=1 - square_decay)
            torch.sqrt(square, out=g).div_(spread).add_(epsilon)
            torch.addcdiv(params[name], mean, g, value=-rate, out=g)
        return gradient

    return UpdateRule(init, update, scale_free=True)


def wrap_optimiser(make: Callable[[list[Tensor]], Optimizer], scale_free: bool) -> UpdateRule:
    """The rule of an element-wise optimiser of torch.optim: `make` builds it for a list of parameters.

    Its state is kept as tensors stacked over agents, so that checkpoints and every hosting work: statistics have the
    shape of their parameter, and a scalar such as a number of steps is repeated for each agent. The step size takes the
    place of the optimiser's own `lr`.
    """

    def init(params: Params) -> StateDict:
        """Zeros of the shapes that the state has after a step; the optimiser fills them at step 0."""
        state: StateDict = {}
        for name, w in params.items():
            for kind, part in _step(make, torch.zeros_like(w), torch.zeros_like(w), {}, 0.0)[1].items():
                if part.ndim == 0:
                    state[f"{SCALAR}{kind}.{name}"] = part.new_zeros(len(w))
                elif part.shape == w.shape:
                    state[f"{STATISTIC}{kind}.{name}"] = torch.zeros_like(part)
                else:
                    raise GossamerError(
                        f"expected an element-wise optimiser, whose statistics have the shape of their parameter, "
                        f"{tuple(w.shape)}, or none; got {kind!r} of shape {tuple(part.shape)}"
                    )
        return state

    def update(gradient: Params, state: StateDict, params: Params, step_size: float, step: int) -> Params:
        for name, g in gradient.items():
            statistics, scalars = _named(state, STATISTIC, name), _named(state, SCALAR, name)
            before = statistics | {kind: part[0].clone() for kind, part in scalars.items()} if step else {}
            psi, after = _step(make, params[name].clone(), g, before, step_size)
            for kind, part in (statistics | scalars).items():
                part.copy_(after[kind])
            g.copy_(psi)
        return gradient

    return UpdateRule(init, update, scale_free)


def _named(state: StateDict, prefix: str, name: str) -> StateDict:
    """The parts of a parameter's state by kind, among those of other parameters and of consensus."""
    return {
        key.removeprefix(prefix).removesuffix(f".{name}"): part
        for key, part in state.items()
        if key.startswith(prefix) and key.endswith(f".{name}")
    }


def _step(
    make: Callable[[list[Tensor]], Optimizer], w: Tensor, g: Tensor, state: StateDict, step_size: float
) -> tuple[Tensor, StateDict]:
    """w after one step of a new optimiser that continues from `state`, and the state after it."""
    w.grad = g
    optimiser = make([w])
    for group in optimiser.param_groups:
        group["lr"] = step_size
    optimiser.state[w].update(state)
    optimiser.step()
    w.grad = None
    return w, {kind: part for kind, part in optimiser.state[w].items() if isinstance(part, Tensor)}


UPDATE_RULES: dict[str, Callable[[float], UpdateRule]] = {  # by the decay of momentum and of Adam's first statistic
    "gd": lambda decay: gd(),
    "momentum": momentum,
    "adam": adam,
}


def make_rule(name: str, decay: float = 0.9) -> UpdateRule:
    """The rule of a name in UPDATE_RULES."""
    if name not in UPDATE_RULES:
        raise GossamerError(f"expected an update rule among {', '.join(UPDATE_RULES)}, got {name!r}")
    return UPDATE_RULES[name](decay)


def num_statistics(rule: UpdateRule) -> int:
    """Number of arrays like the weights that a rule keeps."""
    like = torch.zeros(1, 2)
    return sum(part.shape == like.shape for part in rule.init({"weight": like}).values())
