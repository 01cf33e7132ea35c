"""Consensus without training, for tests: agents that mix again and again, and a single link."""

import numpy as np
import torch
from torch import Tensor

from gossamer.agents.consensus.choco_gossip import Choco
from gossamer.agents.consensus.compression import parse_compression
from gossamer.agents.consensus.neighbour_slots import make_ends
from gossamer.agents.consensus.plain import Consensus, make_mixing
from gossamer.agents.consensus.power_gossip import Power
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
        how, agents = parse_compression(compress), range(len(combination))
        self.mixing: Consensus
        if how.kind == "power":
            self.mixing = Power(make_ends(combination, agents, torch.float64, None, None), how, len(combination), seed)
        else:
            self.mixing = Choco(make_mixing(combination, agents, torch.float64), how, seed)
        self.memory, self.step = self.mixing.init(like), 0

    def __call__(self, psi: Params) -> Params:
        into = {name: torch.full_like(part, torch.nan) for name, part in psi.items()}
        self.step += 1
        return run(self.mixing(psi, into, self.memory, 0, self.step - 1))


def plainly(combination: np.ndarray, psi: Params) -> Params:
    """w_k = sum_z C_kz psi_z."""
    C = torch.tensor(combination)
    return {name: torch.einsum("kz,z...->k...", C, part) for name, part in psi.items()}


def difference(params: Params, name: str = "weight") -> Tensor:
    """X_0 - X_1."""
    return params[name][0] - params[name][1]
