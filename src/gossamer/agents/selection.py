"""Selection: the weights of the best validation score so far, in a host's state beside the update rule's.

All agents select by the same score, the whole network's, so that all keep the weights of the same step. Of equal scores
the one with the lower validation loss counts, then the earlier one: where most vertices have one class, the first
weights and those that have learnt something may decide equally well.
"""

import math
from dataclasses import replace

from gossamer.agents.host import BEST_LOSS, BEST_SCORE, BEST_STEP, BEST_WEIGHTS, NO_SCORE, Host, select_state

DIGITS = 6  # at which scores are compared: rounding, which differs with the hosting, seldom decides


def keep_if_best(host: Host, score: float, loss: float) -> None:
    """Keep the weights as they are if their score (higher is better) is above all before, or equal to the best with a
    lower loss; NaN never is."""
    if BEST_SCORE not in host.state:
        return
    found = float(f"{score:.{DIGITS}g}")
    lost = float(f"{loss:.{DIGITS}g}") if math.isfinite(loss) else -NO_SCORE  # above every loss, and finite
    best = float(host.state[BEST_SCORE][0])
    if not (found > best or (found == best and lost < float(host.state[BEST_LOSS][0]))):
        return
    host.state[BEST_SCORE].fill_(found)
    host.state[BEST_LOSS].fill_(lost)
    host.state[BEST_STEP].fill_(host.step)
    for name, kept in select_state(host.state, BEST_WEIGHTS).items():
        kept.copy_(host.params[name])


def find_best_step(host: Host) -> int | None:
    """The step whose weights are kept; None if those of the last step are."""
    if BEST_SCORE not in host.state or float(host.state[BEST_SCORE][0]) == NO_SCORE:
        return None
    return int(host.state[BEST_STEP][0])


def restore_best(host: Host) -> Host:
    """The host at the step, and with the weights, that are kept."""
    step = find_best_step(host)
    if step is None:
        return host
    return replace(host, params=select_state(host.state, BEST_WEIGHTS), step=step)


def has_waited(host: Host, patience: int) -> bool:
    """Return whether the best score is `patience` steps old, if that is a limit."""
    best = find_best_step(host)
    return bool(patience) and best is not None and host.step - best >= patience
