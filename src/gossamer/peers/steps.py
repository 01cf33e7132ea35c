"""Numbers of the protocol's steps in a run whose membership changes.

A checkpoint belongs to the membership that it was trained in, and to a step t. In the protocol both are one number, so
that of two checkpoints the one of the later membership is the later one; among equal memberships it is the step. The
initial weights have the number 0. A membership v plans at the number before that of the step it begins from.

    code(v, t) = v (T + 3) + 1 + t        t = 0, ..., T; T + 1 closes the run
"""

from dataclasses import dataclass

PLANNING_STEPS = 1  # steps of the protocol before a site's training


@dataclass(frozen=True)
class StepCodes:
    """The numbers of a membership's steps in a run of `steps` steps."""

    number: int
    steps: int

    @property
    def first(self) -> int:
        """The number of step 0 in this membership."""
        return self.number * (self.steps + 3) + PLANNING_STEPS

    @property
    def last(self) -> int:
        """The number of the last step in this membership."""
        return self.first + self.steps

    def encode(self, number: int, step: int) -> int:
        return StepCodes(number, self.steps).first + step

    def decode(self, code: int) -> tuple[int, int] | None:
        """The membership and the step of a checkpoint; None: the initial weights."""
        if code == 0:
            return None
        number, rest = divmod(code - PLANNING_STEPS, self.steps + 3)
        return number, rest
