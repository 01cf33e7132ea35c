"""Links that change: C^t, its mean, and certificates of contraction against brute force and Monte Carlo."""

import numpy as np
import pytest
from numpy.typing import NDArray

from gossamer.topology import (
    Failing,
    LinkSequence,
    Matchings,
    OnePeer,
    Switching,
    certify,
    complete,
    links_of,
    measure_contraction,
    metropolis_weights,
    needed_links,
    random_connected,
    ring,
)

RING = metropolis_weights(ring(6))
SWITCHES = np.stack([random_connected(6, seed) for seed in range(3)])
SEQUENCES: dict[str, LinkSequence] = {
    "one-peer of 8": OnePeer(8),
    "one-peer of 6": OnePeer(6),
    "matchings of 6": Matchings(6, 3),
    "matchings of 7": Matchings(7, 3),
    "failing": Failing(RING, 0.4, 5),
    "switching": Switching(metropolis_weights(np.asarray(SWITCHES.any(0))), SWITCHES),
}


def averaging(m: int) -> NDArray[np.float64]:
    return np.full((m, m), 1.0 / m)


@pytest.mark.parametrize("name", SEQUENCES)
def test_every_matrix_is_doubly_stochastic_on_the_links_of_its_step(name: str) -> None:
    sequence = SEQUENCES[name]
    for step in range(20):
        C, up = sequence.combination(step), sequence.up(step)
        np.testing.assert_allclose(C.sum(0), 1.0, atol=1e-14)
        np.testing.assert_allclose(C.sum(1), 1.0, atol=1e-14)
        assert ((links_of(C)) == up).all()
        assert not (up & ~sequence.links).any()
        assert (C == C.T).all() or not sequence.symmetric
        np.testing.assert_array_equal(C, sequence.combination(step))


def test_the_weight_of_a_missing_link_is_on_both_diagonals() -> None:
    sequence = Failing(RING, 0.4, 5)
    step = next(step for step in range(50) if (sequence.up(step) != sequence.links).sum() == 2)
    k, z = np.argwhere(sequence.links & ~sequence.up(step))[0]
    moved = RING.copy()
    moved[k, k] += moved[k, z]
    moved[z, z] += moved[z, k]
    moved[k, z] = moved[z, k] = 0.0
    np.testing.assert_allclose(sequence.combination(step), moved, atol=1e-15)


@pytest.mark.parametrize("m", [2, 4, 8, 16])
def test_a_period_of_hypercube_pairs_averages_exactly(m: int) -> None:
    assert OnePeer(m).symmetric
    assert measure_contraction(OnePeer(m)) < 1e-15


def test_without_a_power_of_two_every_agent_hears_one_and_is_heard_by_one() -> None:
    sequence = OnePeer(6)
    assert not sequence.symmetric
    assert sequence.period == 3
    for step, stride in enumerate([1, 2, 4, 1]):
        assert [int(z) for z in sequence.up(step).argmax(1)] == [(k + stride) % 6 for k in range(6)]
        assert (sequence.up(step).sum(0) == 1).all()


@pytest.mark.parametrize("name", ["one-peer of 6", "switching"])
def test_the_contraction_of_a_period_is_the_most_that_any_disagreement_keeps(name: str) -> None:
    sequence = SEQUENCES[name]
    factor, period = measure_contraction(sequence), sequence.period
    assert period is not None
    assert 0 < factor < 1
    product = np.eye(6)
    for step in range(period):
        product = sequence.combination(step) @ product
    apart = np.random.default_rng(0).standard_normal((6, 2000))
    apart -= apart.mean(0)
    kept = np.linalg.norm(product @ apart, axis=0) / np.linalg.norm(apart, axis=0)
    assert kept.max() <= factor + 1e-12
    assert kept.max() > 0.95 * factor
    two = np.linalg.matrix_power(product, 2) @ apart
    assert (np.linalg.norm(two, axis=0) <= factor**2 * np.linalg.norm(apart, axis=0) + 1e-12).all()


@pytest.mark.parametrize("name", ["matchings of 6", "matchings of 7", "failing"])
def test_the_closed_form_is_the_mean_over_many_steps(name: str) -> None:
    sequence = SEQUENCES[name]
    matrices = np.stack([sequence.combination(step) for step in range(20_000)])
    found = np.einsum("tki,tkj->ij", matrices, matrices) / len(matrices)
    np.testing.assert_allclose(found, sequence.mean_square(), atol=0.01)
    assert np.isclose(np.linalg.norm(found - averaging(len(found)), 2), measure_contraction(sequence), atol=0.01)
    sent = float(np.mean([sequence.up(step).sum() for step in range(20_000)]))
    assert np.isclose(sent, sequence.mean_sent, rtol=0.01)


def test_the_closed_form_is_exact_for_every_subset_of_links() -> None:
    """Sum over all 2^6 subsets of a weighted graph's links with their probabilities."""
    C = np.array([[0.5, 0.3, -0.1, 0.3], [0.3, 0.2, 0.4, 0.1], [-0.1, 0.4, 0.6, 0.1], [0.3, 0.1, 0.1, 0.5]])
    k, z = np.nonzero(np.triu(complete(4), 1))
    expected = np.zeros((4, 4))
    for subset in range(1 << len(k)):
        C_t, probability = C.copy(), 1.0
        for link, (a, b) in enumerate(zip(k, z, strict=True)):
            down = bool(subset >> link & 1)
            probability *= 0.3 if down else 0.7
            if down:
                C_t[[a, b], [a, b]] += C[a, b]
                C_t[a, b] = C_t[b, a] = 0.0
        expected += probability * C_t.T @ C_t
    np.testing.assert_allclose(Failing(C, 0.3, 0).mean_square(), expected, atol=1e-14)


def test_steps_and_seeds_have_links_of_their_own() -> None:
    for one, other in ((Failing(RING, 0.4, 5), Failing(RING, 0.4, 6)), (Matchings(8, 5), Matchings(8, 6))):
        assert len({one.up(step).tobytes() for step in range(20)}) > 5
        assert any((one.up(step) != other.up(step)).any() for step in range(5))


@pytest.mark.parametrize("name", SEQUENCES)
def test_the_predicted_rounds_make_the_disagreement_a_thousandth(name: str) -> None:
    sequence = SEQUENCES[name]
    m = len(sequence.links)
    found = certify(averaging(m), complete(m), needed_links(ring(m)), sequence=sequence)
    rounds = found.rounds
    assert rounds is not None
    apart = np.random.default_rng(1).standard_normal((m, 50))
    apart -= apart.mean(0)
    began = np.sqrt((apart**2).sum())
    for step in range(rounds):
        apart = sequence.combination(step) @ apart
    assert np.sqrt((apart**2).sum()) <= 2e-3 * began
    document = found.to_dict(100)
    assert document["sequence"]["contraction"] == measure_contraction(sequence)
    assert document["bytes_per_round"] == round(sequence.mean_sent * 400)


def test_links_that_never_join_all_agents_have_no_rounds() -> None:
    steps = np.zeros((2, 4, 4), dtype=bool)
    steps[0, 0, 1] = steps[0, 1, 0] = steps[1, 2, 3] = steps[1, 3, 2] = True
    sequence = Switching(metropolis_weights(np.asarray(steps.any(0))), steps)
    assert certify(averaging(4), complete(4), complete(4), sequence=sequence).rounds is None
