"""A training run whose hosts move in step: Algorithm 1 with evaluations, stops and resumption (docs/scaling.md)."""

import hashlib
import math
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from gossamer.agents.host import Host
from gossamer.agents.measures import Scores, disagreement, evaluate, scores
from gossamer.agents.step import loss_gradient, training_step
from gossamer.data import DataGraph
from gossamer.errors import GossamerError
from gossamer.model import Params
from gossamer.runs.advice import warn_of_agents_apart
from gossamer.runs.deployment import Deployment
from gossamer.runs.engine import Engine
from gossamer.runs.memory import kept_memory
from gossamer.runs.message_counts import Facts, count_messages, facts_of
from gossamer.runs.records import MessageCounts, Record, Reference
from gossamer.runs.settings import Settings
from gossamer.runs.tensors import check_tensors


@dataclass
class Run:
    """A run and where it stands. `host` holds the weights; `history` the evaluations so far."""

    settings: Settings
    planned: Deployment | None  # None where each host has read its own share alone
    host: Host
    fingerprint: str  # of the data graph, and of a shift operator that the user gave
    engine: Engine
    own_shift: bool = False
    history: list[Record] = field(default_factory=list)
    seconds: float = 0.0
    stored: Facts = field(default_factory=dict)  # what was known of the deployment when the shares were cut

    @property
    def deployment(self) -> Deployment:
        if self.planned is None:
            raise AssertionError("this run knows its shares only")
        return self.planned

    @property
    def facts(self) -> Facts:
        """What is told of data and topology."""
        return self.stored or facts_of(self.deployment)

    @property
    def messages(self) -> MessageCounts:
        """What a step sends."""
        stored: MessageCounts | None = self.stored.get("messages")
        return stored if stored is not None else count_messages(self.deployment, self.settings)

    @property
    def complete(self) -> bool:
        return self.host.step >= self.settings.steps

    def scores(self) -> Scores:
        """Loss and accuracy or mean squared error on each mask, every vertex with its own agent's weights."""
        _, sums = self.engine.run(evaluate(self.host))
        whole = {name: self.engine.total(part.double()) for name, part in sums.items()}
        return scores([whole], self.host.full_pass.targets.dtype == torch.int64)

    def predict(self) -> Tensor:
        """Distributed inference (eq. (5)-(7)): the network's output for every vertex, in vertex order."""
        outputs, _ = self.engine.run(evaluate(self.host))
        ordered = outputs.new_zeros(self.facts["num_vertices"], *outputs.shape[1:])
        ordered[torch.from_numpy(self.host.full_pass.vertices)] = outputs
        return self.engine.total(ordered)


@dataclass(frozen=True)
class Hooks:
    """What a caller may follow or decide while a run goes on; nothing here changes its numbers."""

    on_step: Callable[[int, float], None] = lambda step, loss: None
    on_record: Callable[[Record], None] = lambda record: None
    on_checkpoint: Callable[[Run], None] = lambda run: None
    should_stop: Callable[[], bool] = lambda: False


def fingerprint_of(graph: DataGraph, shift: Any = None) -> str:
    """Fingerprint of the data graph, and of a shift operator that the user gave."""
    return graph.fingerprint() + (f" with the shift {_hash(shift)}" if shift is not None else "")


def _hash(shift: Any) -> str:
    entries = shift.tocsr().sorted_indices()
    parts = (entries.indptr.astype(np.int64), entries.indices.astype(np.int64), entries.data.astype(np.float64))
    return hashlib.sha256(b"".join(part.tobytes() for part in parts)).hexdigest()


@contextmanager
def threads_for(state: Run) -> Iterator[None]:
    """Run with the settings' number of threads, and put back what was there.

    With 0, one thread below 4 million weights and input entries of a step on all agents: there two are little faster
    on an idle machine and, since they wait for each other in busy loops, many times slower on a busy one.
    """
    before = torch.get_num_threads()
    inputs, times = state.host.train_pass.features.numel(), state.host.num_times
    if times is not None and state.settings.batch:
        inputs = inputs * state.settings.batch // times
    size = sum(part.numel() for part in state.host.params.values()) + inputs
    torch.set_num_threads(state.settings.threads or (1 if size < 4_000_000 else before))
    try:
        yield
    finally:
        torch.set_num_threads(before)


def go_on(state: Run, hooks: Hooks | None = None, measure: Callable[[Run], Record] | None = None) -> Run:
    """Train until the settings' number of steps, or until told to stop between two steps.

    `measure` makes the record of an evaluation; without it, everything is measured.
    """
    with threads_for(state), kept_memory():
        return _go_on(state, hooks or Hooks(), measure or _record)


def _go_on(state: Run, hooks: Hooks, measure: Callable[[Run], Record]) -> Run:
    settings, began, before = state.settings, time.perf_counter(), state.seconds
    warned = False
    while True:
        step = state.host.step
        due = step % settings.evaluate_every == 0 or step == settings.steps
        if due and (not state.history or state.history[-1]["step"] < step):
            state.history.append(measure(state))
            hooks.on_record(state.history[-1])
            _check_loss(state.history[-1]["train"]["loss"], state)
            if state.engine.leads and not warned:
                apart = [record["disagreement"] for record in state.history]
                warned = warn_of_agents_apart(state.host, settings, apart)
        state.seconds = before + time.perf_counter() - began
        stop = state.engine.total(torch.tensor(float(hooks.should_stop())))  # all hosts end after the same step
        if step >= settings.steps or stop:
            return state
        if step and step % settings.checkpoint_every == 0:
            hooks.on_checkpoint(state)
        state.host, loss = state.engine.run(training_step(state.host))
        hooks.on_step(state.host.step, float(state.engine.total(loss)))


def stationarity(host: Host, engine: Engine) -> float:
    """g^t = |sum_k g_k|^2 / m at the mean of all agents' weights, g^T Pi g of eq. (19)."""
    total = engine.total
    mean = {name: total(part.sum(0, keepdim=True)) / host.num_agents for name, part in host.params.items()}
    centre = {name: mean[name].expand_as(part).contiguous() for name, part in host.params.items()}
    gradient = whole_gradient(host, centre, engine)
    return sum(float(total(g.double().sum(0)).square().sum()) for g in gradient.values()) / host.num_agents


def whole_gradient(host: Host, params: Params, engine: Engine) -> Params:
    """The hosted agents' gradients of L on all training examples at these weights, weight decay included and dropout
    off."""
    _, gradient = engine.run(loss_gradient(host.with_params(params), dropout=False))
    for name, g in gradient.items():
        g.add_(params[name], alpha=host.training.weight_decay / host.num_agents)
    return gradient


def _record(state: Run) -> Record:
    """One line of metrics: scores, disagreement, g^t at the mean weights and the best so far (eq. (19)-(20))."""
    now = stationarity(state.host, state.engine)
    before = [record["stationarity"] for record in state.history if record["step"] > 0]
    best = min([now, *before]) if state.host.step > 0 else math.nan  # eq. (20) begins at n = 1
    return {**short_record(state), "stationarity": now, "best_stationarity": best}


def short_record(state: Run) -> Record:
    """Scores and disagreement alone, which cost no gradient."""
    found = state.scores()
    return {
        "step": state.host.step,
        "train": found["train"],
        "validation": found["validation"],
        "test": found["test"],
        "disagreement": disagreement_of(state),
    }


def disagreement_of(state: Run) -> float:
    """Between all agents' weights, where the process leads."""
    everyone = state.engine.gathered(state.host.params)
    return disagreement(everyone) if everyone else math.nan


def _check_loss(loss: float, state: Run) -> None:
    if not math.isfinite(loss):
        remedy = state.settings.consensus_method.advice.divergence
        raise GossamerError(
            f"the training loss is {loss} at step {state.host.step}: the run has diverged; try a smaller --step-size"
            f"{f' or {remedy}' if remedy else ''}"
        )


def baseline_settings(settings: Settings) -> dict[Reference, Settings]:
    """The comparison models, trained the same way: the centralised network, and the same without the graph."""
    alone = {"agents": 1, "assignment": "bfs", "topology": "complete"}
    plain = {"layers": "mlp", "shift": "auto", "hidden": () if settings.layers == "linear" else settings.hidden}
    return {"centralised": settings.model_copy(update=alone), "graphless": settings.model_copy(update=alone | plain)}


def with_weights(
    state: Run, params: dict[str, Tensor], update_state: dict[str, Tensor], step: int, source: str = "the weights"
) -> Run:
    """The run with stored weights in place of its own, copied so that they lie as fresh ones would."""

    def adopted(mine: dict[str, Tensor], stored: dict[str, Tensor], what: str) -> dict[str, Tensor]:
        expected = {name: (t.dtype, (state.host.num_agents, *t.shape[1:])) for name, t in mine.items()}
        check_tensors(stored, expected, f"{source} ({what})")
        wrong = [name for name, part in stored.items() if not bool(part.isfinite().all())]
        if wrong:
            raise GossamerError(f"{source} ({what}): {wrong[0]} holds NaN or infinite numbers")
        agents = list(state.host.agents)
        return {name: stored[name][agents] for name in mine}

    host = replace(
        state.host,
        params=adopted(state.host.params, params, "weights"),
        state=adopted(state.host.state, update_state, "update statistics"),
        step=step,
    )
    return replace(state, host=host)
