"""Hand-over between the stages of a run with an encoder: a teacher's probabilities, then encodings.

Soft targets are the teacher's probabilities of the classes, centred, and 1 in root mean square if it is sure of all;
of labels likewise; of real values the teacher's outputs.
"""

import math
from collections.abc import Callable, Generator
from dataclasses import replace

import torch
from torch import Tensor

from gossamer.agents.encoding import encode_vertices
from gossamer.agents.exchange import Inbox, Outbox
from gossamer.agents.host import Host
from gossamer.agents.measures import evaluate
from gossamer.agents.noisy_sums import limit_rows, plan_sums, run_hops
from gossamer.agents.salts import Secrets
from gossamer.agents.share import Share
from gossamer.data.tasks import Task
from gossamer.errors import GossamerError
from gossamer.model.encoder import quantise_encodings
from gossamer.runs.hosts import find_secrets
from gossamer.runs.observers import Observer
from gossamer.runs.run import Run
from gossamer.runs.settings import Settings
from gossamer.runs.stages import ENCODER, SCORE_SCALE, TEACHER
from gossamer.runs.training import ShouldStop, measure_scores, run_training

Observe = Callable[[str, int], Observer]  # of a stage's name and number of steps


def hand_over(
    stage: str, host: Host, share: Share, settings: Settings, secrets: Secrets | None
) -> Generator[Outbox, Inbox, Tensor]:
    """What a stage hands over to the next one [hosted, width], by vertex, from the weights of a host that has trained
    it and the agents' share with the edges between them.

    A teacher's soft targets and an encoder's quantised outputs are made without sending anything. A private encoder's
    scores of the classes stand beside those of neighbours, after each noisy hop.
    """
    if stage == TEACHER:
        outputs, _ = yield from evaluate(host)
        return soften(outputs, host.task)[host.full_pass.by_vertex]
    spec = settings.privacy_spec
    if spec is None:
        return quantise_encodings(encode_vertices(host))
    outputs, _ = yield from evaluate(host)
    scores, rows = score_classes(outputs[host.full_pass.by_vertex], share)
    own, context = find_secrets(share, settings, secrets)
    noise = spec.sum_noise(settings.encoder_steps, settings.steps)
    plan = plan_sums(share, weighted=spec.level == "node")
    hops = yield from run_hops(plan, rows, spec.hops, noise, own, settings.seed, context)
    return torch.cat([scores, *hops], dim=1)


def score_classes(logits: Tensor, share: Share) -> tuple[Tensor, Tensor]:
    """Scores of the classes for the vertex itself, of at most unit norm, and the rows that it gives its neighbours:
    centred probabilities, and of a training vertex its class."""
    logs = logits.log_softmax(1)
    scores = limit_rows((logs - logs.mean(1, keepdim=True)) / SCORE_SCALE)
    probabilities, train = logs.exp(), torch.from_numpy(share.masks["train"])
    classes = torch.from_numpy(share.targets).clamp(min=0)
    known = torch.nn.functional.one_hot(classes, logits.shape[1]).to(logits.dtype)
    probabilities = torch.where(train[:, None], known, probabilities)
    return scores, probabilities - 1.0 / logits.shape[1]


def soften(outputs: Tensor, task: Task) -> Tensor:
    """Soft targets from a teacher's outputs [n, outputs]."""
    width = outputs.shape[1]
    if task == "multiclass":
        return (width * outputs.softmax(1) - 1) / math.sqrt(max(width - 1, 1))
    return 2 * outputs.sigmoid() - 1 if task == "multilabel" else outputs


def follow_stage(run: Run) -> Run:
    """The run of the next stage at step 0, after a run of a stage before it. All hosts call it together.

    What is handed over is exchanged between hosts that trust each other, as the hosts of a run do: each gets all of it.
    """
    stage = run.stage
    if stage is None:
        raise AssertionError("no stage follows the graph network's")
    rows, share = run.engine.run(stage.hand_over(run.kept)), stage.share
    whole = rows.new_zeros(share.num_vertices, rows.shape[1])
    whole[torch.from_numpy(share.vertices[share.hosted])] = rows
    after = stage.follow(run.engine.total(whole).numpy())
    if stage.name != ENCODER:
        return after
    weights = {name: part for name, part in run.kept.params.items() if name.startswith("layer.0.")}
    return replace(after, encoder=run.engine.gathered(weights) or None)


def train_stages(run: Run, observe: Observe, should_stop: ShouldStop = lambda: False) -> Run:
    """The graph network's run, after those before it, if there are any. A stop before that keeps nothing.

    `observe` makes the observer of a stage from its name and its number of steps.
    """
    while run.stage is not None:
        name, steps = run.stage.name, run.settings.steps
        run_training(run, [observe(name, steps)], should_stop, measure_scores)
        if not run.complete:
            raise GossamerError(
                f"stopped at step {run.host.step} of {steps} of the {name}, of which nothing is kept; start again"
            )
        run = follow_stage(run)
    return run
