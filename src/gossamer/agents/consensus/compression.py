"""How weights are compressed on their way to neighbours, as a value, and how many bytes that takes.

none                       the weights themselves (eq. (16))
power:RANK[,bits=8]        the difference across a link, as a product of two factors (power.py)
choco:bits=32|8|4          every number's change since the last time, in so few bits (choco.py)
choco:topk=SHARE           the largest changes; choco:randk=SHARE: changes at random places
choco:...,gamma=STEP       with another mixing step than the default
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace

from gossamer.agents.quantisation import Rounding
from gossamer.errors import GossamerError

EXPECTED = "none, power:RANK, power:RANK,bits=8, choco:bits=32|8|4, choco:topk=SHARE or choco:randk=SHARE"
Shape = tuple[int, ...]


@dataclass(frozen=True)
class Compression:
    kind: str = "none"  # or power, choco
    rank: int = 0
    bits: int = 32
    topk: float = 0.0
    randk: float = 0.0
    gamma: float = 1.0  # choco's mixing step

    @property
    def rounding(self) -> Rounding | None:
        return Rounding(self.bits) if self.bits < 32 else None

    def chosen(self, size: int) -> int:
        """How many numbers of so many topk and randk send."""
        return min(size, math.ceil((self.topk or self.randk) * size))

    def factors(self, shape: Shape) -> int:
        """The rank in which an array goes as two factors; 0 where it is cheaper to send it whole."""
        d, h = matrix(shape)
        return self.rank if self.rank * (d + h) < d * h else 0

    def payload(self, shapes: Mapping[str, Shape], itemsize: int) -> int:
        """Bytes that an agent sends a neighbour in one round, headers not counted."""
        total = 0
        for shape in shapes.values():
            d, h = matrix(shape)
            rounding = self.rounding
            if self.kind == "power":
                rank = self.factors(shape)
                rows = [d] * rank + [h] * rank if rank else [d * h]
                total += sum(rounding.length(n) if rounding else n * itemsize for n in rows)
            elif self.topk:
                total += 2 * self.chosen(d * h) * itemsize
            elif self.randk:
                total += self.chosen(d * h) * itemsize
            else:
                total += d * rounding.length(h) if rounding else d * h * itemsize
        return total


PLAIN = Compression()


def matrix(shape: Shape) -> tuple[int, int]:
    """An agent's array as a matrix: vectors are one row, several powers' weights stand one above the other."""
    return math.prod(shape[:-1]), shape[-1]


def parse_compression(text: str) -> Compression:
    """A Compression from its words."""
    kind, _, rest = text.partition(":")
    words = rest.split(",") if rest else []
    try:
        if kind == "none" and not words:
            return PLAIN
        if kind == "power" and words:
            named = _named(words[1:], {"bits"})
            found = Compression("power", rank=int(words[0]), bits=int(named.get("bits", 32)))
            if found.rank >= 1 and found.bits in (32, 8):
                return found
        if kind == "choco" and words:
            named = _named(words, {"bits", "topk", "randk", "gamma"})
            methods = [name for name in ("bits", "topk", "randk") if name in named]
            if len(methods) == 1:
                found = Compression(
                    "choco",
                    bits=int(named.get("bits", 32)),
                    topk=float(named.get("topk", 0)),
                    randk=float(named.get("randk", 0)),
                )
                gamma = float(named["gamma"]) if "gamma" in named else safe_gamma(found)
                share = float(named.get("topk", named.get("randk", 1)))
                if found.bits in (32, 8, 4) and 0 < share <= 1 and 0 < gamma <= 1:
                    return replace(found, gamma=gamma)
    except ValueError:
        pass
    raise GossamerError(
        f"expected a compression among {EXPECTED} (with a share and gamma above 0 and at most 1), got {text!r}"
    )


def safe_gamma(compression: Compression) -> float:
    """A mixing step at which choco is stable.

    A place that is sent with probability p keeps for T steps, geometric, the value that it had: its disagreement along
    an eigenvector of C with eigenvalue 1 - mu is multiplied by 1 - gamma mu T. The mean square of that is below 1 for
    all mu < 2 up to gamma = p / (2 - p), and there least for mu = 1. The largest changes bear nearly twice their share,
    by measurement; four times is unstable. Rounding leaves out less than a tenth of a row's largest change: gamma is 1.
    """
    if compression.randk:
        return compression.randk / (2 - compression.randk)
    if compression.topk:
        return 2 * compression.topk / (1 + compression.topk)
    return 1.0


def _named(words: list[str], known: set[str]) -> dict[str, str]:
    named = dict(word.split("=", 1) for word in words)
    if set(named) - known or len(named) < len(words):
        raise ValueError
    return named
