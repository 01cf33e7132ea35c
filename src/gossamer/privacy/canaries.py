"""Canaries: lower bounds on epsilon from what a mechanism really releases.

A canary is a vertex that an auditor takes in or leaves out by a coin, and whose presence it then guesses from the
releases. Under (epsilon, delta)-differential privacy no guesser is right too often. One run with many canaries gives a
bound (Steinke, Nasr and Jagielski 2023, "Privacy auditing with one (1) training run"), and so do many draws of one
release with one canary. A bound above the proved epsilon shows an error in the mechanism: too little noise, a larger
change by one vertex than was counted, or noise that is used twice.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.optimize import brentq
from scipy.stats import beta, binom, norm

from gossamer.array_types import Floats
from gossamer.errors import GossamerError

CONFIDENCE = 0.95
MOST_EPSILON = 50.0


@dataclass(frozen=True)
class CanaryAudit:
    """Guesses about canaries and the epsilon that they prove to be exceeded, with CONFIDENCE."""

    canaries: int
    guesses: int
    right: int
    epsilon: float  # lower bound


def bound_epsilon(canaries: int, guesses: int, right: int, delta: float, confidence: float = CONFIDENCE) -> float:
    """The largest epsilon under which so many right guesses would be as unlikely as 1 - confidence; 0 if none is.

    `canaries` were each taken in with probability 1/2, and about `guesses` of them a guess was made. Under
    (epsilon, delta) the number of right guesses is not above a binomial one of probability e^epsilon / (1 + e^epsilon),
    but with a probability of the order of delta (Steinke, Nasr and Jagielski, Theorem 5.2).
    """

    def unlikely(epsilon: float) -> float:
        p = 1 / (1 + math.exp(-epsilon))
        tail = binom.sf(right - 1, guesses, p)
        below = np.cumsum(binom.pmf(np.arange(right - 1, -1, -1), guesses, p)) if right else np.zeros(1)
        alpha = float((below / np.arange(1, len(below) + 1)).max())
        return float(tail + 2 * canaries * delta * alpha) - (1 - confidence)

    if unlikely(0.0) >= 0:
        return 0.0
    return MOST_EPSILON if unlikely(MOST_EPSILON) < 0 else float(brentq(unlikely, 0.0, MOST_EPSILON))


def audit_scores(scores: Floats, taken: Sequence[bool], delta: float, share: float = 0.3) -> CanaryAudit:
    """Guess of the canaries with the highest scores that they were taken in, and of those with the lowest that they
    were not; of a `share` of all on each side."""
    count = len(scores)
    if count < 2:
        raise GossamerError(f"expected at least 2 canaries, got {count}")
    side = max(1, int(share * count))
    order = np.argsort(scores, kind="stable")
    inside = np.asarray(taken, dtype=bool)
    right = int((~inside[order[:side]]).sum() + inside[order[-side:]].sum())
    return CanaryAudit(count, 2 * side, right, bound_epsilon(count, 2 * side, right, delta))


def bound_gaussian(inside: Floats, outside: Floats, delta: float, confidence: float = CONFIDENCE) -> float:
    """Epsilon that a mechanism with Gaussian noise exceeds, from scores of draws with the canary and without it.

    A test at the middle of all scores has a rate of false alarms and one of misses, each bounded from above by Clopper
    and Pearson (1934). They bound mu = quantile(1 - alarms) - quantile(misses) from below, and mu gives epsilon at
    delta (Dong, Roth and Su 2022, "Gaussian differential privacy"; Nasr et al. 2023, "Tight auditing of differentially
    private machine learning").
    """
    middle = float(np.median(np.concatenate([inside, outside])))
    alarms, misses = (
        1.0 if wrong.all() else float(beta.ppf(1 - (1 - confidence) / 2, wrong.sum() + 1, (~wrong).sum()))
        for wrong in (outside > middle, inside <= middle)
    )
    mu = float(norm.ppf(1 - alarms) - norm.ppf(misses))
    return 0.0 if mu <= 0 else convert_to_epsilon(mu, delta)


def convert_to_epsilon(mu: float, delta: float) -> float:
    """Epsilon at delta of a mechanism that is exactly mu-GDP (Balle and Wang 2018, "Improving the Gaussian mechanism
    for differential privacy")."""

    def excess(epsilon: float) -> float:
        return float(norm.cdf(mu / 2 - epsilon / mu) - math.exp(epsilon + norm.logcdf(-mu / 2 - epsilon / mu))) - delta

    return 0.0 if excess(0.0) <= 0 else float(brentq(excess, 0.0, 1e4))
