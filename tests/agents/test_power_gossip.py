"""PowerGossip applies a power iteration's projection of each link's difference, and no error stays."""

import numpy as np
import pytest
import torch
from agents.cases import M, make_case
from agents.gossip import Gossip, combine, difference, disagreement, drawn, link
from torch import Tensor

from gossamer import topology
from gossamer.agents.consensus.power_gossip import PowerGossip

RING = topology.metropolis_weights(topology.ring(5))


def matrices(delta: Tensor, seed: int = 0) -> dict[str, Tensor]:
    """Two agents whose matrices differ by delta."""
    middle = torch.randn(delta.shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    return {"weight": torch.stack([middle + delta / 2, middle - delta / 2])}


def with_values(*values: float, shape: tuple[int, int] = (9, 7)) -> Tensor:
    """A matrix with these singular values."""
    random = torch.Generator().manual_seed(1)
    u, v = (torch.linalg.qr(torch.randn(n, n, generator=random, dtype=torch.float64)).Q for n in shape)
    found: Tensor = u[:, : len(values)] * torch.tensor(values, dtype=torch.float64) @ v[:, : len(values)].T
    return found


def close(found: dict[str, Tensor], expected: dict[str, Tensor], tolerance: float = 1e-10) -> None:
    for name, part in expected.items():
        torch.testing.assert_close(found[name], part, rtol=0, atol=tolerance)


@pytest.mark.parametrize(("compress", "whole"), [("power:1", ["bias"]), ("power:9", ["weight", "powers", "bias"])])
def test_arrays_that_go_whole_are_mixed_as_in_plain_consensus(compress: str, whole: list[str]) -> None:
    psi = drawn(5)
    gossip = Gossip(compress, RING, psi)
    for _ in range(3):
        expected, psi = combine(RING, psi), gossip(psi)
        for name, part in psi.items():
            assert ((part - expected[name]).abs().max() < 1e-12) == (name in whole)


@pytest.mark.parametrize("rank", [2, 3])
def test_differences_of_no_more_than_the_rank_are_mixed_as_in_plain_consensus(rank: int) -> None:
    """From the first round on: a random start meets every direction."""
    random = torch.Generator().manual_seed(0)
    common, left, right = (torch.randn(n, generator=random, dtype=torch.float64) for n in ((12, 9), (12, 2), (2, 9)))
    psi = {"weight": common + torch.einsum("kr,ir,rj->kij", torch.randn(5, 2, generator=random).double(), left, right)}
    gossip = Gossip(f"power:{rank}", RING, psi)
    for _ in range(6):
        expected, psi = combine(RING, psi), gossip(psi)
        close(psi, expected)


@pytest.mark.parametrize("weight", [0.5, 0.3, -0.1])
@pytest.mark.parametrize("rank", [1, 2])
def test_a_round_takes_a_projection_of_the_difference(weight: float, rank: int) -> None:
    """Delta <- (I - 2 w P^ P^^T) Delta with P^ from the power iteration, for rounds on end."""
    psi = matrices(with_values(8, 4, 2, 1, 0.5))
    gossip = Gossip(f"power:{rank}", link(weight), psi)
    q = gossip.state["start.weight"][0, 0].T.clone()
    assert torch.equal(gossip.state["start.weight"][1, 0].T, q)
    for _ in range(5):
        delta = difference(psi)
        basis, _ = np.linalg.qr((delta @ q).numpy())
        projection = torch.tensor(basis @ basis.T)
        psi = gossip(psi)
        torch.testing.assert_close(difference(psi), delta - 2 * weight * projection @ delta, rtol=0, atol=1e-10)
        q = delta.T @ torch.tensor(basis)


def test_with_half_the_weight_a_round_takes_a_rank() -> None:
    """P^ lies in Delta's columns, so that one dimension goes with every round, and never more than the best could."""
    values = [8.0, 4.0, 2.0, 1.0]
    psi = matrices(with_values(*values))
    gossip = Gossip("power:1", link(0.5), psi)
    for left in (3, 2, 1, 0):
        psi = gossip(psi)
        found = torch.linalg.svdvals(difference(psi))
        assert int((found > 1e-10).sum()) == left
        assert found.norm() >= torch.tensor(values[4 - left :]).norm() - 1e-10


def test_the_largest_differences_go_first() -> None:
    """The power iteration turns to them, so that after a few rounds a round takes what the best direction would."""
    psi, weight = matrices(with_values(9, 1, 0.5, 0.2)), 0.1
    gossip = Gossip("power:1", link(weight), psi)
    for step in range(6):
        before, psi = torch.linalg.svdvals(difference(psi)), gossip(psi)
        taken = before.square().sum() - torch.linalg.svdvals(difference(psi)).square().sum()
        best = 4 * weight * (1 - weight) * before[0] ** 2
        assert taken <= best * (1 + 1e-10)
        assert step < 2 or taken > 0.999 * best


def test_what_eight_bits_leave_out_is_sent_later() -> None:
    """The disagreement goes on falling, far below the 1/127 of one message."""
    psi = drawn(2)
    gossip, first = Gossip("power:1,bits=8", link(0.4), psi), disagreement(psi)
    for _ in range(150):
        psi = gossip(psi)
    assert disagreement(psi) < 1e-6 * first


@pytest.mark.parametrize(
    ("compress", "left"), [("power:1", 1e-8), ("power:2", 1e-8), ("power:1,bits=8", 1e-4), ("power:2,bits=8", 1e-4)]
)
def test_agents_on_a_ring_agree_on_their_mean(compress: str, left: float) -> None:
    psi = drawn(5)
    means, first = {name: part.mean(0) for name, part in psi.items()}, disagreement(psi)
    gossip = Gossip(compress, RING, psi)
    for _ in range(250):
        psi = gossip(psi)
    assert disagreement(psi) < left * first
    close({name: part.mean(0) for name, part in psi.items()}, means, 1e-12)


@pytest.mark.parametrize("compress", ["power:1", "power:2", "power:1,bits=8"])
def test_a_link_without_a_difference_finds_the_next_one(compress: str) -> None:
    """Even one that the unit vectors do not meet, which stand where there is no direction."""
    psi = {"weight": torch.ones(2, 9, 7, dtype=torch.float64)}
    gossip = Gossip(compress, link(0.5), psi)
    psi = gossip(psi)
    delta = with_values(8, 4, 2, 1)
    delta[:3] = 0
    psi = matrices(delta)
    for _ in range(40):
        psi = gossip(psi)
    assert disagreement(psi) < 1e-3 * float(delta.norm())


def test_rounding_does_not_decide_where_a_link_without_a_difference_goes_on() -> None:
    """Directions that differ by rounding alone are drawn anew, so that they are the same at every hosting."""
    random = torch.Generator().manual_seed(4)
    same = torch.randn(9, 7, generator=random, dtype=torch.float64)
    starts = []
    for noise in (0.0, 1e-16, 1e-15):
        psi = matrices(noise * torch.randn(9, 7, generator=random, dtype=torch.float64))
        psi["weight"] += same
        gossip = Gossip("power:2", link(0.3), psi)
        gossip(psi)
        starts.append(gossip.state["start.weight"])
    assert torch.equal(starts[0], starts[1])
    assert torch.equal(starts[0], starts[2])


def test_all_hosts_keep_room_for_as_many_links_as_any_agent_has() -> None:
    """Agent 0, which has the most, gives its own weights none: a row of C with a zero on the diagonal."""
    C = np.zeros((M, M))
    C[0, 1:4] = 1 / 3
    C[1, 4] = 0.1
    C += C.T
    np.fill_diagonal(C, 1 - C.sum(1))
    C[0, 0] = 0
    hosting = np.array([0, 0, 1, 1, 1])
    case = make_case()
    hosts = [case.host(group, combination=C, hosting=hosting, compress="power:1") for group in ([0, 1], [2, 3, 4])]
    assert [host.state["weights.start.layer.0.weight"].shape[1] for host in hosts] == [3, 3]


def test_both_endpoints_see_the_same_zeros() -> None:
    """A difference of 0 has no sign, which some LAPACKs' qr would follow."""
    consensus = Gossip("power:2", RING, drawn(5)).consensus
    assert isinstance(consensus, PowerGossip)
    own = torch.full((*consensus.slots.weight.shape, 6), 1.5, dtype=torch.float64)
    across = consensus._across(own, own.clone())
    assert not torch.signbit(across).any()
