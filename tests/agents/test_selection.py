"""The weights with the best score are kept in a host's state; of equal ones those with the lowest loss."""

import math

import pytest
import torch
from agents.cases import make_case

from gossamer.agents.selection import find_best_step, has_waited, keep_if_best, restore_best
from gossamer.agents.step import training_step
from gossamer.engines.simulation import run

SCORES = [0.2, 0.5, 0.4, 0.7, 0.7, 0.7 + 1e-9, 0.1]


def test_the_first_of_the_best_is_kept() -> None:
    host = make_case().host(keep_best=True)
    seen = []
    for score in SCORES:
        seen.append({name: part.clone() for name, part in host.params.items()})
        keep_if_best(host, score, 1.0)
        host, _ = run(training_step(host))
    assert find_best_step(host) == 3
    kept = restore_best(host)
    assert kept.step == 3
    for name, part in kept.params.items():
        torch.testing.assert_close(part, seen[3][name], rtol=0, atol=0)
        assert not torch.equal(part, host.params[name])


@pytest.mark.parametrize(
    ("losses", "best"),
    [([0.9, 0.8, 0.7], 2), ([0.9, 0.7, 0.8], 1), ([0.9, 0.7, 0.7 - 1e-9], 1), ([0.9, math.nan, 0.95], 0)],
)
def test_of_equal_scores_the_lowest_loss_is_kept(losses: list[float], best: int) -> None:
    host = make_case().host(keep_best=True)
    for loss in losses:
        keep_if_best(host, 0.5, loss)
        host, _ = run(training_step(host))
    keep_if_best(host, 0.4, 0.1)  # a worse score loses whatever its loss
    assert find_best_step(host) == best


def test_a_score_without_a_loss_leaves_a_state_that_can_be_stored() -> None:
    """All validation examples may have weight 0."""
    host = make_case().host(keep_best=True)
    keep_if_best(host, 0.5, math.nan)
    assert find_best_step(host) == 0
    assert all(bool(part.isfinite().all()) for part in host.state.values())
    host, _ = run(training_step(host))
    keep_if_best(host, 0.5, 2.0)
    assert find_best_step(host) == 1


def test_without_a_score_the_last_weights_are_kept() -> None:
    for host in (make_case().host(keep_best=True), make_case().host()):
        keep_if_best(host, math.nan, math.nan)  # of an empty validation mask
        assert find_best_step(host) is None
        assert restore_best(host) is host
        assert not has_waited(host, 1)
    never = make_case().host()
    keep_if_best(never, 1.0, 1.0)
    assert find_best_step(never) is None


@pytest.mark.parametrize(("patience", "waited"), [(0, False), (1, True), (4, True), (5, False)])
def test_patience_counts_the_steps_since_the_best(patience: int, waited: bool) -> None:
    host = make_case().host(keep_best=True)
    keep_if_best(host, -3.0, 3.0)
    for _ in range(4):
        host, _ = run(training_step(host))
        keep_if_best(host, -3.5, 2.0)
    assert has_waited(host, patience) is waited
