"""Consensus without training, for tests: agents that mix again and again, and a single link."""

import numpy as np
import torch
from torch import Tensor

from gossamer.agents.consensus import HostedCombination, parse_method
from gossamer.engines.simulation import run
from gossamer.model import Params

SHAPES = {"weight": (7, 5), "powers": (3, 4, 6), "bias": (5,)}


def link(weight: float) -> np.ndarray:
    """C of two agents."""
    return np.array([[1 - weight, weight], [weight, 1 - weight]])


def drawn(m: int, seed: int = 0) -> Params:
    """Every agent's arrays, random."""
    random = torch.Generator().manual_seed(seed)
    return {name: torch.randn(m, *shape, generator=random, dtype=torch.float64) for name, shape in SHAPES.items()}


def disagreement(params: Params) -> float:
    """How far the agents are from their mean."""
    return float(sum(float((part - part.mean(0)).square().sum()) for part in params.values()) ** 0.5)


class Gossip:
    """All agents on one host; each call is a round."""

    def __init__(self, compress: str, combination: np.ndarray, like: Params, seed: int = 0) -> None:
        C = HostedCombination(combination, range(len(combination)))
        shapes = {name: tuple(part.shape[1:]) for name, part in like.items()}
        self.consensus = parse_method(compress).make(C, shapes, torch.float64, seed)
        self.state, self.step = self.consensus.init(like), 0

    def __call__(self, psi: Params) -> Params:
        into = {name: torch.full_like(part, torch.nan) for name, part in psi.items()}
        self.step += 1
        return run(self.consensus(psi, into, self.state, 0, self.step - 1))


def combine(combination: np.ndarray, psi: Params) -> Params:
    """w_k = sum_z C_kz psi_z."""
    C = torch.tensor(combination)
    return {name: torch.einsum("kz,z...->k...", C, part) for name, part in psi.items()}


def difference(params: Params, name: str = "weight") -> Tensor:
    """X_0 - X_1."""
    return params[name][0] - params[name][1]
