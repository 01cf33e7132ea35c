"""The setting `privacy`: a level of differential privacy, its budget, and the mechanism's numbers.

node:epsilon=8,delta=1e-5                       the defaults for all else
edge:epsilon=4,delta=1e-5,hops=1,noise=2.5      with the noise multiplier, as a run that has started stores it
"""

import math
from dataclasses import dataclass, fields, replace
from typing import Any

from gossamer.errors import GossamerError, shown

PRIVACY_LEVELS = ("node", "edge")
LARGEST_EPSILON, MOST_HOPS = 1e4, 8
MOST_FOR_HOPS, LEAST_FOR_CLASSIFIER = 0.4, 0.02  # shares of a budget


@dataclass(frozen=True)
class Releases:
    """Noise multipliers of a run's releases: standard deviation over the largest change by one vertex, or edge."""

    encoder: float  # of each private gradient of the encoder's stage
    sums: float  # of each hop
    classifier: float  # of each private gradient of the graph network's stage


@dataclass(frozen=True)
class PrivacySpec:
    """Budget and mechanism. `noise` (None: found from epsilon, budgets.py) is that of a single release that would spend
    the whole budget; `split` divides it."""

    level: str
    epsilon: float
    delta: float
    hops: int = 1
    rate: float = 1.0  # q, probability of a training example to be in a step's sample
    clip: float = 0.3  # bound on the norm of an example's gradient
    noise: float | None = None

    @property
    def sensitivity(self) -> float:
        """Largest change of all sums of a hop: of a vertex that gives nothing any more, or of an edge that is not
        there (agents/noisy_sums.py)."""
        return 1.0 if self.level == "node" else math.sqrt(2.0)

    def split(self, encoder_steps: int, steps: int) -> Releases:
        """Divide the budget. Of n releases with a share f of it each has the multiplier noise sqrt(n / f): their sum of
        1 / multiplier^2 is f / noise^2. Hops get the more, the larger the budget is: little noise is left to average in
        a sum of a few neighbours."""
        if self.noise is None:
            raise AssertionError("a budget whose noise has not been found")
        hop = MOST_FOR_HOPS / (1 + self.noise**2) if self.hops else 0.0
        classifier = LEAST_FOR_CLASSIFIER + hop / 5
        if self.level == "edge":
            return Releases(0.0, self.noise * math.sqrt(max(self.hops, 1)), 0.0)
        return Releases(
            self.noise * math.sqrt(encoder_steps / (1 - hop - classifier)),
            self.noise * math.sqrt(self.hops / hop) if hop else 0.0,
            self.noise * math.sqrt(steps / classifier),
        )

    def sum_noise(self, encoder_steps: int, steps: int) -> float:
        """Standard deviation of the noise in each sum."""
        return self.split(encoder_steps, steps).sums * self.sensitivity

    def with_noise(self, noise: float) -> "PrivacySpec":
        return replace(self, noise=noise)

    def __str__(self) -> str:
        default = {one.name: one.default for one in fields(self)}
        values = {one.name: getattr(self, one.name) for one in fields(self) if one.name != "level"}
        return f"{self.level}:" + ",".join(
            f"{name}={value!r}" for name, value in values.items() if value is not None and value != default[name]
        )


def parse_privacy(text: str) -> PrivacySpec | None:
    """The specification of a text; None for none."""
    if text == "none":
        return None
    level, _, rest = text.partition(":")
    if level not in PRIVACY_LEVELS:
        raise GossamerError(
            f"expected none, or node or edge with a budget as in node:epsilon=8,delta=1e-5; got {shown(text)}"
        )
    types: dict[str, Any] = {"hops": int}
    known = [one.name for one in fields(PrivacySpec) if one.name != "level"]
    values: dict[str, Any] = {}
    for part in filter(None, rest.split(",")):
        name, equals, value = part.partition("=")
        if name not in known or not equals or name in values:
            raise GossamerError(f"expected {', '.join(known)} once each, as in epsilon=8, got {shown(part)}")
        try:
            values[name] = types.get(name, float)(value)
        except ValueError:
            raise GossamerError(f"expected a number for {name}, got {shown(value)}") from None
    for name in ("epsilon", "delta"):
        if name not in values:
            raise GossamerError(f"{level}: expected epsilon and delta, as in {level}:epsilon=8,delta=1e-5; no {name}")
    spec = PrivacySpec(level, **values)
    _check(spec)
    return spec


def _check(spec: PrivacySpec) -> None:
    checks = {
        "epsilon": (0 < spec.epsilon <= LARGEST_EPSILON or spec.epsilon == math.inf, "above 0, or inf"),
        "delta": (0 < spec.delta < 1, "between 0 and 1; below one over the number of vertices"),
        "hops": (0 <= spec.hops <= MOST_HOPS, f"0 to {MOST_HOPS}"),
        "rate": (0 < spec.rate <= 1, "above 0, at most 1"),
        "clip": (0 < spec.clip < math.inf, "above 0"),
        "noise": (spec.noise is None or 0 <= spec.noise < math.inf, "0 or more"),
    }
    for name, (right, expected) in checks.items():
        if not right:
            raise GossamerError(f"expected {name} {expected}, got {getattr(spec, name)!r}")
