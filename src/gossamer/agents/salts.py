"""Salts that a secret of their owner decides: random numbers that no other agent can compute.

Where agents are apart (peers), dropout masks and quantisation noise must not follow from what all agents know, the
seed. Each agent has a secret of 32 random bytes. Every row that it owns, a vertex in dropout or a message row that it
sends, gets a salt of 64 bits for each step and layer or exchange: a piece of the output of SHAKE256 (NIST 2015, "FIPS
202: SHA-3 standard: permutation-based hash and extendable-output functions") of the secret and the key. Salts tell
nothing of each other. The counter hash that spreads a salt over the columns of its row (counter_rng) is fast and no
cryptographic function: who knows much of a row's mask may find the rest of that row's, at that step.

The order of an agent's rows is that of its own vertices or messages, so that a hosting does not change its salts.
"""

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from gossamer.array_types import Ints

SECRET_BYTES = 32
SALT_BYTES = 8  # two words of 32 bits: a single one could be found by trying all


@dataclass(frozen=True)
class Secrets:
    """Secrets of agents, which no description of the value shows."""

    by_agent: Mapping[int, bytes] = field(repr=False)

    def select(self, agents: Iterable[int]) -> "Secrets":
        """The secrets of some of the agents."""
        return Secrets({agent: self.by_agent[agent] for agent in agents})


@dataclass(frozen=True)
class OwnedRows:
    """The rows of hosted agents, with the secrets of their owners."""

    owners: tuple[tuple[bytes, Tensor], ...] = field(repr=False)  # secret and rows [int64] of each agent
    count: int  # rows of all

    def draw_salts(self, purpose: str, *key: int) -> Tensor:
        """Salts of the rows, int32 [2, rows], for a purpose and a key such as seed, step and layer."""
        pairs = np.empty(self.count, "<i8")  # the two words of each row as one
        about = " ".join([purpose, *map(str, key)]).encode()
        for secret, rows in self.owners:
            words = hashlib.shake_256(secret + about).digest(SALT_BYTES * len(rows))
            pairs[rows.numpy()] = np.frombuffer(words, "<i8")
        return torch.from_numpy(pairs.view("<i4").reshape(-1, 2).T.astype(np.int32, order="C"))


class RowSalts(NamedTuple):
    """Salts of rows, and the row that each counter of random numbers belongs to."""

    salts: Tensor  # int32 [2, rows]
    row: Tensor  # int64, shaped so that it broadcasts with the counters

    def select(self, piece: slice | Tensor) -> Tensor:
        """Salts of some of the counters, [2, ...]."""
        return torch.from_numpy(self.salts.numpy().take(self.row[piece].numpy(), axis=1))  # torch takes thrice as long


def own_rows(secrets: Secrets, owner: Ints, order: Ints | None = None) -> OwnedRows:
    """The rows of each agent, `owner` [rows], taken in an order that its hosting does not change; None: as they are."""
    ordered = np.arange(len(owner)) if order is None else order
    agents = np.unique(owner).tolist()
    rows = [torch.from_numpy(ordered[owner[ordered] == agent]) for agent in agents]
    return OwnedRows(tuple(zip([secrets.by_agent[agent] for agent in agents], rows, strict=True)), len(owner))
