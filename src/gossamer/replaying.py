"""A run whose agents left and joined, simulated in one process: each agent on a host of its own, in lockstep.

The same generators run as at the peers, and the agents' secrets decide dropout and noise, so that the weights have the
same bits: on one type of machine, with one version of torch and one number of threads.
"""

from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeVar

import torch

from gossamer.agents import Host, Inbox, Outbox
from gossamer.agents.rules import StateDict
from gossamer.agents.salts import Secrets
from gossamer.agents.selection import restore_best
from gossamer.engines.simulation import run_together
from gossamer.errors import GossamerError
from gossamer.generators import delegate
from gossamer.model import Params
from gossamer.peers.evaluation import PeerEvaluation, make_evaluation
from gossamer.peers.histories import (
    WEIGHTS_FILE,
    AgentFolder,
    TermTraining,
    TrainingHistory,
    find_agents,
    read_agent_weights,
    read_training_history,
)
from gossamer.peers.member_work import prepare_member, select_statistics
from gossamer.peers.program import train_from
from gossamer.peers.protocol.exchanges import PlannedExchange
from gossamer.peers.shard_work import carry_over
from gossamer.peers.shards.restriction import restrict_shard
from gossamer.peers.shards.sites import SiteShard
from gossamer.peers.site_work import Start, plan_share
from gossamer.runs.hosts import build_share_host
from gossamer.runs.tensors import check_tensors, read_tensors, write_tensors

_Value = TypeVar("_Value")
OnStep = Callable[[TermTraining, int], None]  # takes a step that is about to be trained


@dataclass(frozen=True)
class SimulatedMember:
    """An agent at the end of its training in a membership."""

    host: Host  # at the last step
    records: list[PeerEvaluation] = field(default_factory=list)

    @property
    def kept(self) -> Host:
        """The host with the weights that are kept."""
        return restore_best(self.host)


@dataclass(frozen=True)
class ReplayedAgent:
    """An agent's weights at the end of a replay, beside those that it ended with itself."""

    agent: int
    weights: Params
    difference: float | None  # the largest; None: the agent has no weights to compare with
    same: bool  # all bits are the same


@dataclass(frozen=True)
class ReplayedRun:
    """A replayed run."""

    history: TrainingHistory
    members: Mapping[int, SimulatedMember]  # of the last membership, by id
    agents: Sequence[ReplayedAgent]

    @property
    def same(self) -> bool:
        """Return whether no agent has ended with other bits."""
        return all(one.same or one.difference is None for one in self.agents)

    @property
    def summary(self) -> dict[str, Any]:
        """The object of `--json`."""
        member = next(iter(self.members.values()))
        step = member.kept.step
        record = next((one for one in member.records if one.step == step), None)
        return {
            "finished": self.history.finished,
            "same": self.same,
            "memberships": [describe_training(one, self.members) for one in self.history.trainings],
            "agents": [
                {"agent": one.agent, "same": None if one.difference is None else one.same, "difference": one.difference}
                for one in self.agents
            ],
            "step": step,
            **({} if record is None or record.whole is None else {"distributed": record.whole}),
        }


def describe_training(training: TermTraining, members: Mapping[int, SimulatedMember]) -> dict[str, Any]:
    """A membership's members and steps; `members` are those of the last one."""
    last = next(iter(members.values())).host.step
    return {
        "membership": training.term.number,
        "agents": list(training.term.ids),
        "from": training.begin.step,
        "to": last if training.until is None else training.until,
        "took_over_weights": list(training.begin.adopters),
    }


def replay_folders(log: Path, more: Sequence[Path] = (), on_step: OnStep = lambda training, step: None) -> ReplayedRun:
    """Replay the run of an agent's log, and compare with the weights that the agents ended with."""
    agents = find_agents(log, more)
    history = read_training_history(agents)
    torch.set_num_threads(agents[0].shard.settings.threads or 1)
    members = simulate(history, on_step)
    by_id, last = {one.agent: one for one in agents}, history.trainings[-1]
    return ReplayedRun(
        history, members, [_compare(by_id[k], last, one.kept.params) for k, one in sorted(members.items())]
    )


def write_replay(folder: Path, replay: ReplayedRun) -> None:
    """Write the weights of the last members, stacked in the order of their numbers."""
    folder.mkdir(parents=True, exist_ok=True)
    parts = [one.weights for one in replay.agents]
    write_tensors(folder / WEIGHTS_FILE, {name: torch.cat([part[name] for part in parts]) for name in parts[0]})


def simulate(history: TrainingHistory, on_step: OnStep = lambda training, step: None) -> dict[int, SimulatedMember]:
    """Train all memberships of a history, and return the members of the last one by id."""
    members: dict[int, SimulatedMember] = {}
    for training in history.trainings:
        secrets, number = history.secrets, training.term.number
        own = None if secrets is None else {k: secrets[number, k] for k in training.term.ids}
        members = train_members(training, history.shards, own, members, on_step)
    return members


def train_members(
    training: TermTraining,
    shards: Mapping[int, SiteShard],
    secrets: Mapping[int, bytes] | None,
    before: Mapping[int, SimulatedMember],
    on_step: OnStep = lambda training, step: None,
) -> dict[int, SimulatedMember]:
    """Train one membership in lockstep; secrets, and the members of the one that it begins from, by id."""
    ids = training.term.ids
    generators = []
    for k in ids:
        given = before[k].host if k in before and k not in training.begin.adopters else None
        secret = None if secrets is None else secrets[k]
        generators.append(train_member(shards[k], training, given, secret, on_step if k == ids[0] else None))
    return dict(zip(ids, run_together(generators), strict=True))


def train_member(
    shard: SiteShard, training: TermTraining, before: Host | None, secret: bytes | None, on_step: OnStep | None = None
) -> Generator[Outbox, Inbox, SimulatedMember]:
    """Train one member: restrict its shard, plan, and train, as its peer does (peers/member_work.py). `before` is its
    host at the step that the membership begins from, unless it takes over weights."""
    term, begin = training.term, training.begin
    restricted = restrict_shard(shard, term)
    settings = restricted.settings
    given = None
    if begin.membership >= 0 and before is not None:
        given = select_statistics(before.params, before.state, settings)
    restricted, start = yield from prepare_member(restricted, term, begin, given)
    share, _ = yield from plan_share(restricted.site, settings)
    own = None if secret is None else Secrets({restricted.membership.agent: secret})
    host = build_share_host(share, settings, own)
    evaluation = replace(make_evaluation(host, settings, share), measures="none")
    records: list[PeerEvaluation] = []

    def follow(at: Host, saves: bool) -> None:
        if on_step is not None:
            on_step(training, at.step)

    given_steps = host, settings, _Beginning(host, start), begin.step, records.append, evaluation, follow
    last = yield from _send_unlabelled(train_from(*given_steps, training.until))
    if training.until is not None and last.step != training.until:
        raise GossamerError(
            f"membership {term.number} ends at step {last.step} in the replay, and the next one began from step "
            f"{training.until}: the folders are not of one run, or the peers had another version"
        )
    return SimulatedMember(last, records)


@dataclass(frozen=True)
class _Beginning:
    """Storage of checkpoints that has the first one alone."""

    host: Host  # at step 0
    start: Start

    def save(self, step: int, params: Params, state: StateDict) -> None:
        """Nothing is restored in a simulation."""

    def load(self, step: int) -> tuple[Params, StateDict]:
        params = self.host.params if self.start.params is None else self.start.params
        state = carry_over(self.host, self.start.statistics or {})
        return {name: part.clone() for name, part in params.items()}, {n: part.clone() for n, part in state.items()}


def _send_unlabelled(
    exchanges: Generator[PlannedExchange, Inbox, _Value],
) -> Generator[Outbox, Inbox, _Value]:
    """Exchanges without the plan and the step that they belong to."""

    def send(planned: PlannedExchange) -> Generator[Outbox, Inbox, Inbox]:
        return (yield planned.outbox)

    return delegate(exchanges, send)


def _compare(agent: AgentFolder, last: TermTraining, weights: Params) -> ReplayedAgent:
    """Compare an agent's weights with those in its folder, bit by bit."""
    path = read_agent_weights(agent, last.term)
    if path is None:
        return ReplayedAgent(agent.agent, weights, None, False)
    found = read_tensors(path)
    check_tensors(found, {name: (part.dtype, tuple(part.shape)) for name, part in weights.items()}, str(path))
    difference = max(float((part.double() - found[name].double()).abs().max()) for name, part in weights.items())
    return ReplayedAgent(
        agent.agent, weights, difference, all(torch.equal(part, found[name]) for name, part in weights.items())
    )
