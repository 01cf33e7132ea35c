"""Privacy budgets: against the exact Gaussian mechanism, and against simple bounds; the noise for an epsilon."""

import math

import pytest
from scipy.optimize import brentq
from scipy.stats import norm

from gossamer.errors import GossamerError
from gossamer.runs.budgets import check_budget, find_noise, measure_epsilon
from gossamer.runs.privacy_spec import PrivacySpec, parse_privacy
from gossamer.runs.settings import make_settings


def spec(text: str) -> PrivacySpec:
    found = parse_privacy(text)
    assert found is not None
    return found


def exact_epsilon(mu: float, delta: float) -> float:
    """Epsilon of a Gaussian mechanism with sensitivity over deviation mu (Balle and Wang 2018, Theorem 8)."""

    def excess(epsilon: float) -> float:
        a, b = mu / 2 - epsilon / mu, -mu / 2 - epsilon / mu
        return float(norm.cdf(a) - math.exp(epsilon + norm.logcdf(b))) - delta

    return float(brentq(excess, 0, 200))


@pytest.mark.parametrize(("hops", "noise"), [(1, 1.0), (2, 2.5), (3, 0.8), (8, 10.0)])
def test_the_noise_is_that_of_one_release_with_the_whole_budget(hops: int, noise: float) -> None:
    exact = exact_epsilon(1 / noise, 1e-5)
    for level in ("edge", "node"):
        found = measure_epsilon(spec(f"{level}:epsilon=1,delta=1e-5,hops={hops},noise={noise}"), 60, 40)
        assert exact <= found <= 1.02 * exact


def test_shares_of_the_budget_add_up() -> None:
    for noise in (0.3, 1.0, 4.0):
        for hops in (0, 1, 3):
            found = spec(f"node:epsilon=1,delta=1e-5,hops={hops},noise={noise}").split(60, 40)
            spent = [60 / found.encoder**2, 40 / found.classifier**2, hops / found.sums**2 if hops else 0.0]
            assert sum(spent) == pytest.approx(noise**-2)
            assert all(part > 0 for part in spent) == (hops > 0)


def test_samples_cost_less() -> None:
    def epsilon(rate: float, steps: int) -> float:
        return measure_epsilon(spec(f"node:epsilon=1,delta=1e-5,rate={rate},noise=2"), 100, steps)

    assert epsilon(0.05, 100) < epsilon(0.2, 100) < epsilon(1.0, 100)
    hop = spec("node:epsilon=1,delta=1e-5,noise=2").split(100, 100).sums
    assert epsilon(0.05, 100) > exact_epsilon(1 / hop, 1e-5)  # the hop alone


@pytest.mark.parametrize(
    "text", ["node:epsilon=2,delta=1e-5", "node:epsilon=30,delta=1e-6,hops=0", "edge:epsilon=0.5,delta=1e-5"]
)
def test_noise_is_the_least_that_keeps_the_budget(text: str) -> None:
    wanted = spec(text)
    noise = find_noise(wanted, 50, 70)
    assert measure_epsilon(wanted.with_noise(noise), 50, 70) <= wanted.epsilon
    assert measure_epsilon(wanted.with_noise(0.99 * noise), 50, 70) > wanted.epsilon
    check_budget(wanted.with_noise(noise), 50, 70)
    with pytest.raises(GossamerError, match="spends epsilon"):
        check_budget(wanted.with_noise(0.9 * noise), 50, 70)


def test_large_budgets_are_found_at_once() -> None:
    noise = find_noise(spec("node:epsilon=5000,delta=1e-5"), 100, 50)
    assert 0 < noise < 0.1


def test_no_budget_needs_no_noise() -> None:
    assert find_noise(spec("node:epsilon=inf,delta=1e-5"), 50, 70) == 0.0
    assert measure_epsilon(spec("node:epsilon=inf,delta=1e-5,noise=0"), 50, 70) == math.inf


def test_a_specification_is_read_as_it_is_written() -> None:
    for text in ("node:epsilon=8.0,delta=1e-05", "edge:epsilon=0.5,delta=1e-06,hops=2,noise=2.5"):
        assert str(spec(text)) == text
    assert parse_privacy("none") is None
    assert spec("node:epsilon=4,delta=1e-5").sensitivity == 1.0
    assert spec("edge:epsilon=4,delta=1e-5").sensitivity == math.sqrt(2)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("vertex:epsilon=8,delta=1e-5", "expected none, or node or edge"),
        ("node", "no epsilon"),
        ("node:epsilon=8", "no delta"),
        ("node:epsilon=8,delta=1e-5,epsilon=9", "once each"),
        ("node:epsilon=8,delta=1e-5,size=3", "expected epsilon, delta"),
        ("node:epsilon=eight,delta=1e-5", "a number for epsilon"),
        ("node:epsilon=-1,delta=1e-5", "epsilon above 0"),
        ("node:epsilon=8,delta=2", "delta between 0 and 1"),
        ("node:epsilon=8,delta=1e-5,hops=1.5", "a number for hops"),
        ("node:epsilon=8,delta=1e-5,hops=99", "hops 0 to"),
        ("node:epsilon=nan,delta=1e-5", "epsilon above 0"),
    ],
)
def test_mistakes_in_a_specification(text: str, message: str) -> None:
    with pytest.raises(GossamerError, match=message):
        make_settings({"privacy": text})


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"public_randomness": True}, "noise that others do not know"),
        ({"class_weights": "balanced"}, "class_weights would release"),
        ({"standardise": True}, "standardise would release"),
        ({"keep": "best"}, "keep = 'best' would release"),
        ({"initial": "w.safetensors"}, "initial weights"),
        ({"encoder": 4}, "an encoder of its own"),
        ({"consensus_every": 0}, "which others cannot read"),
    ],
)
def test_what_no_budget_counts_is_refused(options: dict[str, object], message: str) -> None:
    with pytest.raises(GossamerError, match=message):
        make_settings({"privacy": "node:epsilon=8,delta=1e-5", **options})
    if {"class_weights", "standardise", "keep"} & set(options):
        make_settings({"privacy": "edge:epsilon=8,delta=1e-5", **options})  # no edge takes part in it
