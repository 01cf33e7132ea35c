"""Update rules: psi_k from w_k and agent k's gradient (eq. (15), Sec. V-D), as pairs of functions.

`init(params)` makes a rule's state; `update(gradient, state, params, step_size, step)` returns psi. It consumes its
gradient and state: psi is written where the gradient stood, and the state is brought forward in place, because
fresh memory for every step would cost more time than the arithmetic. Parameters are only read.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch

from gossamer.errors import GossamerError
from gossamer.model import Params

State = dict[str, torch.Tensor]  # `velocity.layer.0.weight` and so on


@dataclass(frozen=True)
class UpdateRule:
    init: Callable[[Params], State]
    update: Callable[[Params, State, Params, float, int], Params]
    scale_free: bool  # if not, the centralised step size is multiplied by m


def gd() -> UpdateRule:
    """psi = w - eta g."""

    def update(gradient: Params, state: State, params: Params, step_size: float, step: int) -> Params:
        for name, g in gradient.items():
            torch.add(params[name], g, alpha=-step_size, out=g)
        return gradient

    return UpdateRule(lambda params: {}, update, scale_free=False)


def momentum(decay: float = 0.9) -> UpdateRule:
    """v <- decay v + g, psi = w - eta v."""

    def init(params: Params) -> State:
        return {f"velocity.{name}": torch.zeros_like(w) for name, w in params.items()}

    def update(gradient: Params, state: State, params: Params, step_size: float, step: int) -> Params:
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

    def init(params: Params) -> State:
        return {f"{kind}.{name}": torch.zeros_like(w) for kind in ("mean", "square") for name, w in params.items()}

    def update(gradient: Params, state: State, params: Params, step_size: float, step: int) -> Params:
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


RULES = ("gd", "momentum", "adam")


def make_rule(name: str, decay: float = 0.9) -> UpdateRule:
    """The rule of a name; `decay` is momentum's and Adam's first."""
    match name:
        case "gd":
            return gd()
        case "momentum":
            return momentum(decay)
        case "adam":
            return adam(decay)
    raise GossamerError(f"expected an update rule among {', '.join(RULES)}, got {name!r}")
