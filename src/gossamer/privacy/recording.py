"""A recorded run: one host for each agent, of which all is kept that the curious agents receive and send.

The program of a host is that of its peer: evaluations (with the sums of scores, where the best weights are kept) and
training steps in the same order, so that what is recorded are the messages of a real peer, number for number; but for
sums that nothing depends on, which no audit reads. What drives the generators is the caller's
(engines.simulation.run_together).
"""

from collections.abc import Callable, Collection, Generator, Sequence
from typing import TypeVar

import torch
from torch import Tensor

from gossamer.agents import Host, Inbox, Outbox, training_step
from gossamer.agents.exchange import Phase
from gossamer.agents.measures import evaluate
from gossamer.agents.salts import Secrets
from gossamer.agents.scores import choose_score, compute_scores
from gossamer.agents.selection import has_waited, keep_if_best
from gossamer.agents.share import MASKS
from gossamer.agents.sums import TreeNode, plan_tree, sum_over_tree
from gossamer.generators import delegate
from gossamer.runs.deployment import Deployment
from gossamer.runs.evaluated_steps import is_evaluated
from gossamer.runs.hosts import build_host
from gossamer.runs.recordings import EVALUATING, TRAINING, Recording
from gossamer.runs.settings import Settings

_Value = TypeVar("_Value")
Programs = Sequence[Generator[Outbox, Inbox, Host]]
Lockstep = Callable[[Programs], list[Host]]  # drives all hosts' programs to their ends
ShouldKeep = Callable[[str, int, Outbox], bool]  # whether the messages of a plan, a step and an exchange are kept


def record_run(
    deployment: Deployment,
    settings: Settings,
    curious: Collection[int],
    steps: int,
    lockstep: Lockstep,
    keep: ShouldKeep = lambda plan, step, outbox: True,
    secrets: Secrets | None = None,
) -> Recording:
    """Train the first `steps` steps of the settings' run with one host an agent, and record the curious ones'.

    With the `secrets` of a launch its messages are those of the launch.
    """
    recording = Recording(steps=steps)
    tree = plan_tree(deployment.links)
    nodes = [None] * deployment.num_agents if tree is None else tree
    programs = [
        _run_program(
            build_host(deployment, settings, (k,), secrets=None if secrets is None else secrets.select([k])),
            settings,
            steps,
            nodes[k],
            _scale(deployment),
            (recording, keep) if k in curious else None,
        )
        for k in range(deployment.num_agents)
    ]
    lockstep(programs)
    return recording


def _run_program(
    host: Host,
    settings: Settings,
    steps: int,
    node: TreeNode | None,
    scale: Tensor | None,
    noted: tuple[Recording, ShouldKeep] | None,
) -> Generator[Outbox, Inbox, Host]:
    while True:
        t, last = host.step, host.step >= steps
        if noted is not None:
            noted[0].own[host.agents[0], t] = {name: part[0].clone() for name, part in host.params.items()}
        if is_evaluated(settings, t):
            yield from _note_exchanges(EVALUATING, t, _evaluate(host, settings, node, scale), noted)
            last = last or has_waited(host, settings.patience)
        if last:
            return host
        host, _ = yield from _note_exchanges(TRAINING, t, training_step(host), noted)


def _evaluate(
    host: Host, settings: Settings, node: TreeNode | None, scale: Tensor | None
) -> Generator[Outbox, Inbox, None]:
    score = choose_score(settings.score, host.task)
    _, own = yield from evaluate(host, score.needs_ranking)
    if host.training.keep_best and node is not None:
        total = yield from sum_over_tree(node, torch.cat([own[name] for name in MASKS]), Phase.SCORES)
        whole = dict(zip(MASKS, total.split([len(own[name]) for name in MASKS]), strict=True))
        found = compute_scores([whole], host.task, host.network.layers[-1].outputs, scale)
        validation = found["validation"]
        keep_if_best(host, score.signed(validation[score.key(binned=True)]), validation["loss"])


def _note_exchanges(
    plan: str, step: int, exchanges: Generator[Outbox, Inbox, _Value], noted: tuple[Recording, ShouldKeep] | None
) -> Generator[Outbox, Inbox, _Value]:
    def note(outbox: Outbox) -> Generator[Outbox, Inbox, Inbox]:
        inbox = yield outbox
        if noted is not None and noted[1](plan, step, outbox):
            noted[0].note(plan, step, outbox, inbox)
        return inbox

    return (yield from delegate(exchanges, note))


def _scale(deployment: Deployment) -> Tensor | None:
    return None if deployment.transform is None else deployment.transform.find_target_scale()
