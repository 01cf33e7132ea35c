"""Privacy budgets: epsilon from the noise of a run's releases, and the noise from epsilon (docs/privacy.md).

At node level a run releases `encoder_steps` and `steps` private gradients (Gaussian noise on Poisson samples) and the
sums of `hops` hops (Gaussian noise); at edge level the sums alone. Their noise multipliers are those of
PrivacySpec.split: one number decides all. Their composition is bounded by Renyi
differential privacy (Mironov 2017, "Renyi differential privacy"; Mironov, Talwar and Zhang 2019, "Renyi differential
privacy of the sampled Gaussian mechanism") and by privacy loss distributions (Koskela, Jalkoe and Honkela 2020,
"Computing tight differential privacy guarantees using FFT"), whichever is tighter. The arithmetic is dp-accounting's.
"""

import math
from functools import lru_cache
from typing import Any

from gossamer.errors import GossamerError
from gossamer.runs.privacy_spec import PrivacySpec

NOISE_TOLERANCE = 1e-3  # relative, of a noise multiplier
ROUGH, ROUGH_GAIN = 0.02, 1.15  # tolerance of a first search, and the gain of a tighter bound over it, about
TIGHT_EPSILON = 64.0  # above which privacy loss distributions take minutes
RENYI_ORDERS = [*range(2, 65), 80, 128, 256, 512, 1024]  # of Renyi divergences
LEAST_NOISE, MOST_NOISE = 1e-2, 1e6


def find_noise(spec: PrivacySpec, encoder_steps: int, steps: int) -> float:
    """The least noise multiplier, up to NOISE_TOLERANCE, with which a run keeps within its budget."""
    if spec.epsilon == math.inf:
        return 0.0
    return _find_noise(spec, encoder_steps, steps)


@lru_cache(maxsize=64)
def _find_noise(spec: PrivacySpec, encoder_steps: int, steps: int) -> float:
    def fits(noise: float, tight: bool) -> bool:
        return _compose(spec.with_noise(noise), encoder_steps, steps, tight) <= spec.epsilon

    low, high = LEAST_NOISE, 1.0
    while not fits(high, False):
        low, high = high, 2 * high
        if high > MOST_NOISE:
            raise GossamerError(
                f"no noise below {MOST_NOISE:g} keeps {spec} over {encoder_steps} + {steps} steps; give a larger "
                "epsilon, or fewer steps"
            )
    if spec.epsilon > TIGHT_EPSILON:
        return _bisect(low, high, lambda noise: fits(noise, False), NOISE_TOLERANCE)
    high = _bisect(low, high, lambda noise: fits(noise, False), ROUGH)
    low = high / ROUGH_GAIN
    while low > LEAST_NOISE and fits(low, True):
        high, low = low, low / ROUGH_GAIN
    return _bisect(low, high, lambda noise: fits(noise, True), NOISE_TOLERANCE)


def _bisect(low: float, high: float, fits: Any, tolerance: float) -> float:
    """The least number in (low, high], up to a relative tolerance, that fits; `high` does."""
    while high > low * (1 + tolerance):
        middle = math.sqrt(low * high)
        low, high = (low, middle) if fits(middle) else (middle, high)
    return high


def measure_epsilon(spec: PrivacySpec, encoder_steps: int, steps: int) -> float:
    """Epsilon of a run with the specification's noise, at its delta."""
    if spec.noise is None:
        raise AssertionError("a specification without noise")
    if spec.noise == 0:
        return math.inf
    found = _compose(spec, encoder_steps, steps, tight=False)
    return found if found > TIGHT_EPSILON else min(found, _compose(spec, encoder_steps, steps, tight=True))


def check_budget(spec: PrivacySpec, encoder_steps: int, steps: int) -> None:
    """Refuse noise that spends more than the budget, as in settings that another one has written."""
    found = measure_epsilon(spec, encoder_steps, steps)
    if found > spec.epsilon * (1 + NOISE_TOLERANCE):
        raise GossamerError(
            f"noise={spec.noise:g} over {encoder_steps} + {steps} steps spends epsilon {found:.4g}, and the budget is "
            f"{spec.epsilon:g}; leave noise out to have it found"
        )


def _compose(spec: PrivacySpec, encoder_steps: int, steps: int, tight: bool) -> float:
    """Epsilon by Renyi differential privacy, or tighter and slower by privacy loss distributions."""
    accounting = _import_accounting()
    if tight:
        accountant = accounting.pld.PLDAccountant(value_discretization_interval=1e-3)
    else:
        accountant = accounting.rdp.RdpAccountant(orders=RENYI_ORDERS)
    releases = spec.split(encoder_steps, steps)
    if spec.level == "node":
        for multiplier, count in ((releases.encoder, encoder_steps), (releases.classifier, steps)):
            gaussian = accounting.GaussianDpEvent(multiplier)
            sampled = gaussian if spec.rate == 1 else accounting.PoissonSampledDpEvent(spec.rate, gaussian)
            if count:
                accountant.compose(sampled, count)
    if spec.hops:
        accountant.compose(accounting.GaussianDpEvent(releases.sums), spec.hops)
    return float(accountant.get_epsilon(spec.delta))


def _import_accounting() -> Any:
    try:
        import dp_accounting
        from dp_accounting import pld, rdp
    except ImportError:
        raise GossamerError(
            "privacy budgets need dp-accounting; install it with: pip install 'gossamer[privacy]'"
        ) from None
    dp_accounting.pld, dp_accounting.rdp = pld, rdp
    return dp_accounting
