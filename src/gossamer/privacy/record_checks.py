"""Checks of a real run's recorded messages against its plan: every message that an attack reads is there and fits."""

from gossamer.agents.exchange import Phase
from gossamer.agents.links import Link
from gossamer.errors import GossamerError
from gossamer.privacy.seen_rows import SeenPlan
from gossamer.runs.deployment import Deployment
from gossamer.runs.evaluated_steps import is_evaluated
from gossamer.runs.recordings import EVALUATING, RECORD_REMEDY, TRAINING, RecordedMessage, Recording
from gossamer.runs.settings import Settings


def check_fit(recording: Recording, seen: SeenPlan, deployment: Deployment, settings: Settings) -> None:
    """Refuse messages of other shapes than the plan has, and a recording that lacks some."""
    last = sum(gather.powers[-1] for gather in deployment.network.gathers) - 1
    planned = [
        (EVALUATING, Phase.FORWARD, 0, seen.evaluation, range(recording.steps)),
        (TRAINING, Phase.FORWARD, 0, seen.training, range(recording.steps)),
        (TRAINING, Phase.BACKWARD, last, seen.backward, range(min(1, recording.steps))),
    ]
    for plan, phase, index, by_sender, steps in planned:
        found = recording.select(plan, phase, index)
        counts = {link: rows.stop - rows.start for one in by_sender.values() for link, rows in one.links}
        for step in steps:
            if plan == TRAINING or is_evaluated(settings, step):
                _check_rows({link: part.shape for link, part in found.get(step, {}).items()}, counts, plan, step)
    size = deployment.network.num_parameters
    for one in (*recording.received, *recording.sent):
        if one.phase is Phase.CONSENSUS and one.content.numel() != size:
            raise GossamerError(
                f"{_place(one)} should hold {size} weights, found {one.content.numel()}; {RECORD_REMEDY}"
            )
    shapes = deployment.network.shapes()
    for (agent, step), params in recording.own.items():
        if {name: tuple(part.shape) for name, part in params.items()} != shapes:
            raise GossamerError(
                f"the recorded weights of agent {agent} at step {step} are not this run's; {RECORD_REMEDY}"
            )


def _check_rows(found: dict[Link, tuple[int, ...]], counts: dict[Link, int], plan: str, step: int) -> None:
    for link, count in counts.items():
        where = f"the record of agent {link.receiver}, plan {plan}, step {step}"
        if link not in found:
            raise GossamerError(f"{where}, has no message of agent {link.sender}; {RECORD_REMEDY}")
        if found[link][0] != count:
            raise GossamerError(
                f"{where}, should have {count} rows of agent {link.sender}, found {found[link][0]}; {RECORD_REMEDY}"
            )


def _place(one: RecordedMessage) -> str:
    return f"the recorded {one.phase} message of agent {one.link.sender} to {one.link.receiver} at step {one.step}"
