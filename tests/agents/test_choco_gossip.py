"""CHOCO-Gossip: the recursion of its paper with every agent's copies, and no error that stays."""

from collections.abc import Callable

import numpy as np
import pytest
import torch
from agents.gossip import Gossip, difference, disagreement, drawn, link
from torch import Tensor

from gossamer import topology

RING = topology.metropolis_weights(topology.ring(5))


def rounded(change: np.ndarray, bits: int) -> np.ndarray:
    """Each row's nearest multiples of the smallest power of 2^(1/4) that is large enough."""
    levels = 2 ** (bits - 1) - 1
    scale = 2.0 ** (np.ceil(4 * np.log2(np.abs(change).max(-1, keepdims=True) / levels)) / 4)
    found: np.ndarray = np.round(change / scale) * scale
    return found


def largest(change: np.ndarray, fraction: float) -> np.ndarray:
    flat = change.reshape(-1)
    kept = np.zeros_like(flat)
    positions = np.argsort(-np.abs(flat))[: int(np.ceil(fraction * flat.size))]
    kept[positions] = flat[positions]
    return kept.reshape(change.shape)


@pytest.mark.parametrize(
    ("compress", "compressed", "gamma"),
    [
        ("choco:bits=32,gamma=0.7", lambda change: change, 0.7),
        ("choco:bits=8", lambda change: rounded(change, 8), 1.0),
        ("choco:bits=4", lambda change: rounded(change, 4), 1.0),
        ("choco:topk=0.2", lambda change: largest(change, 0.2), 1 / 3),
        ("choco:topk=0.2,gamma=0.3", lambda change: largest(change, 0.2), 0.3),
    ],
)
def test_rounds_equal_the_papers_recursion(
    compress: str, compressed: Callable[[np.ndarray], np.ndarray], gamma: float
) -> None:
    """x^_k += compress(psi_k - x^_k), w_k = psi_k + gamma sum_z C_kz (x^_z - x^_k), with all copies kept."""
    psi = drawn(5)
    gossip = Gossip(compress, RING, psi)
    copies = {name: np.zeros(part.shape) for name, part in psi.items()}
    random = torch.Generator().manual_seed(1)
    for _ in range(6):
        expected = {}
        for name, part in psi.items():
            x = copies[name]
            x += np.stack([compressed(change) for change in part.numpy() - x])
            expected[name] = part.numpy() + gamma * (np.einsum("kz,z...->k...", RING, x) - x)
        psi = gossip(psi)
        for name, part in psi.items():
            np.testing.assert_allclose(part.numpy(), expected[name], rtol=0, atol=1e-12)
        psi = {name: part + 0.1 * torch.randn(part.shape, generator=random) for name, part in psi.items()}


def test_random_positions_are_the_right_fraction_others_each_time_and_the_same_for_all() -> None:
    psi = drawn(5)
    gossip = Gossip("choco:randk=0.3", RING, psi)
    seen: list[Tensor] = []
    for _ in range(4):
        before = gossip.state["copy.powers"].clone()
        gossip(psi)
        copy = gossip.state["copy.powers"]
        sent = copy != before
        assert torch.equal(copy[sent], psi["powers"][sent])
        assert (sent == sent[0]).all() or len(seen) > 0  # later, an entry may be sent as it was before
        seen.append(sent[0])
    assert int(seen[0].sum()) == 22  # of 72
    assert not torch.equal(seen[0], seen[1])
    again = Gossip("choco:randk=0.3", RING, psi)
    again(psi)
    assert torch.equal(again.state["copy.powers"][0] != 0, seen[0])
    other = Gossip("choco:randk=0.3", RING, psi, seed=1)
    other(psi)
    assert not torch.equal(other.state["copy.powers"][0] != 0, seen[0])


@pytest.mark.parametrize("gamma", [1.0, 0.4])
@pytest.mark.parametrize("weight", [0.5, 0.3, 0.8])
def test_a_links_difference_shrinks_as_the_step_says(gamma: float, weight: float) -> None:
    psi = drawn(2)
    gossip = Gossip(f"choco:bits=32,gamma={gamma}", link(weight), psi)
    for _ in range(5):
        before, psi = psi, gossip(psi)
        for name in psi:
            expected = (1 - 2 * gamma * weight) * difference(before, name)
            torch.testing.assert_close(difference(psi, name), expected, rtol=0, atol=1e-12)


@pytest.mark.parametrize("combination", [RING, link(0.5), link(0.75)], ids=["ring", "half", "eigenvalue -1/2"])
@pytest.mark.parametrize(
    ("compress", "left"),
    [
        ("bits=8", 1e-8),
        ("bits=4", 1e-8),
        ("topk=0.5", 1e-8),
        ("topk=0.2", 1e-8),
        ("topk=0.05", 0.1),
        ("randk=0.5", 1e-8),
        ("randk=0.2", 1e-3),
        ("randk=0.05", 0.5),
    ],
)
def test_what_is_left_out_is_sent_later_and_the_default_step_is_stable(
    compress: str, left: float, combination: np.ndarray
) -> None:
    """The disagreement after 200 rounds, which never rises above the first one."""
    psi = drawn(len(combination))
    means, first = {name: part.mean(0) for name, part in psi.items()}, disagreement(psi)
    gossip = Gossip(f"choco:{compress}", combination, psi)
    for _ in range(200):
        psi = gossip(psi)
        assert disagreement(psi) < 1.01 * first
    assert disagreement(psi) < left * first
    for name, part in psi.items():
        torch.testing.assert_close(part.mean(0), means[name], rtol=0, atol=1e-12)
