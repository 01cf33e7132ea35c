"""The schedule of evaluations, the same in every engine and at every peer.

By default every one of the first steps is evaluated, then every tenth: few labels with many features are soon learnt by
heart, so that the best weights may be those of the fifth step.
"""

from gossamer.runs.settings import Settings

EARLY_STEPS, DEFAULT_GAP = 20, 10


def find_evaluation(settings: Settings, step: int) -> int:
    """The step of the last evaluation up to `step`, leaving aside the one that ends a run."""
    if settings.evaluate_every is None and step <= EARLY_STEPS:
        return step
    return step - step % evaluation_gap(settings)


def is_evaluated(settings: Settings, step: int) -> bool:
    """Return whether there is an evaluation after `step` steps."""
    return step == settings.steps or find_evaluation(settings, step) == step


def find_measures(settings: Settings) -> str:
    """When peers measure their disagreement, g^t and the mean of their weights: "all", "end" or "none".

    By default not where that would cost more than what is trained, as its sums are not compressed; and not with masked
    consensus, because the mean is one more equation in the weights that masks hide.
    """
    if settings.measure != "auto":
        return settings.measure
    return "none" if settings.masks else "all" if settings.compress == "none" else "end"


def evaluation_gap(settings: Settings) -> int:
    """Most steps between two evaluations."""
    return settings.evaluate_every or DEFAULT_GAP
