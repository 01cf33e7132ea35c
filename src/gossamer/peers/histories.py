"""The history of a run whose agents left and joined, read from the agents' folders: what they trained, from where on.

Of the memberships only those count whose training the end follows from: the last one, the one that it began from, and
so on back to the initial weights.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from gossamer.errors import GossamerError
from gossamer.peers.agent_folders import run_folder
from gossamer.peers.protocol.terms import Term
from gossamer.peers.shards.sites import SiteShard, is_site, read_site_shard
from gossamer.peers.term_folders import (
    BEGINS,
    MEMBERSHIP_LOG,
    Begin,
    LoggedTerm,
    list_terms,
    read_begin,
    read_log,
    term_folder,
)
from gossamer.runs.directory import AGENTS_FOLDER
from gossamer.runs.secret_files import SECRETS_FILE, read_secrets
from gossamer.runs.shares import find_agent_folder

FindBegin = Callable[[int, int], Begin | None]  # what an agent, by id, has noted of a membership
WEIGHTS_FILE = "weights.safetensors"


@dataclass(frozen=True)
class TermTraining:
    """What the members of a membership trained together."""

    term: Term
    begin: Begin
    until: int | None = None  # the step that the next membership began from; None: to the end


@dataclass(frozen=True)
class TrainingHistory:
    """All that a simulation of a run needs."""

    shards: Mapping[int, SiteShard]  # by id
    trainings: tuple[TermTraining, ...]
    secrets: Mapping[tuple[int, int], bytes] | None  # by membership and id; None: randomness is public
    finished: bool = True


@dataclass(frozen=True)
class AgentFolder:
    """An agent's shard and the folder of its run."""

    shard: SiteShard
    state: Path

    @property
    def agent(self) -> int:
        return self.shard.membership.agent


def find_agents(log: Path, more: Sequence[Path] = ()) -> list[AgentFolder]:
    """The agents of a run, by id: the one whose log, folder of the run, or folder is given, those beside it, and `more`
    of them, or folders that hold them."""
    launched = sorted((log / AGENTS_FOLDER).glob("agent-*"))  # in the run directory of a launch
    given = find_agent_folder(launched[0] if launched else log.parent if log.name == MEMBERSHIP_LOG else log)
    if not is_site(given):
        raise GossamerError(
            f"{log}: expected {MEMBERSHIP_LOG} of an agent, the folder of its run, or its own folder, of a run whose "
            "agents may leave and join (--evict-after); of others gossamer train --secrets has the same bits"
        )
    first = _read_agent(given)
    if first.shard.settings.evict_after is None:
        raise GossamerError(
            f"{given}: the agents of this run stay the same; gossamer train --secrets simulates it, gossamer gather "
            "joins its results"
        )
    found = {first.agent: (given.resolve(), first)}
    for folder in [*sorted(given.resolve().parent.glob("agent-*")), *_list_folders(more)]:
        if not is_site(folder):
            continue
        one = _read_agent(folder)
        if one.shard.membership.run != first.shard.membership.run:
            continue
        known, _ = found.setdefault(one.agent, (folder.resolve(), one))
        if known != folder.resolve():
            raise GossamerError(f"agent {one.agent} is given twice, as {known} and {folder}; move one of the two away")
    return [one for _, (_, one) in sorted(found.items())]


def read_training_history(agents: Sequence[AgentFolder]) -> TrainingHistory:
    """The history that the agents' folders tell; the longest log counts, and all others must be its beginnings."""
    by_id = {one.agent: one for one in agents}
    settings, run = agents[0].shard.settings, agents[0].shard.membership.run
    log = _join_logs(agents)
    terms = list_terms(run, range(settings.agents), log)
    finished = bool(log) and log[-1].following is None
    last = terms[-1]
    # Those that finished have noted where this training began; others may have been away when it began anew.
    holders = [k for k in last.ids if k in by_id and (not finished or _find_weights(by_id[k], last).is_file())]
    _require(last.ids if not holders else (), by_id)

    def find_begin(agent: int, number: int) -> Begin | None:
        return read_begin(term_folder(by_id[agent].state, number)) if agent in by_id else None

    trainings = list_trainings(terms, find_begin, holders)
    needed = sorted({k for one in trainings for k in one.term.ids})
    _require(needed, by_id)
    secrets = None
    if not settings.public_randomness:
        secrets = {(one.term.number, k): _read_secret(by_id[k], one.term) for one in trainings for k in one.term.ids}
    return TrainingHistory({k: by_id[k].shard for k in needed}, trainings, secrets, finished)


def list_trainings(terms: Sequence[Term], find_begin: FindBegin, holders: Iterable[int]) -> tuple[TermTraining, ...]:
    """The trainings that the end of the last membership follows from, the first one first.

    Only agents that had a checkpoint of a training surely know where it began (`holders`, of the last one): those that
    took over weights afterwards may have been away.
    """
    found: list[TermTraining] = []
    number, until = terms[-1].number, None
    while True:
        term, noted = terms[number], dict[Begin, int]()
        for k in sorted(holders):
            begin = find_begin(k, number)
            if begin is not None:
                noted.setdefault(begin, k)
        if not noted:
            raise GossamerError(
                f"no agent of membership {number} has noted where its training began ({BEGINS}): it has not begun yet, "
                "or the folders of its members are missing; see gossamer status"
            )
        begin, *others = noted
        if others or begin.membership >= number or not set(begin.adopters) <= set(term.ids):
            raise GossamerError(
                f"membership {number}: agent {noted[begin]} has noted {_describe(begin)}"
                + (f", and agent {noted[others[0]]} {_describe(others[0])}" if others else ", which cannot be")
                + f"; copy the files {BEGINS} of this run again"
            )
        found.append(TermTraining(term, begin, until))
        if begin.membership < 0:
            return tuple(reversed(found))
        holders = set(term.ids) - set(begin.adopters)
        number, until = begin.membership, begin.step


def read_agent_weights(agent: AgentFolder, term: Term) -> Path | None:
    """The file of an agent's weights at the end of a membership, if there is one."""
    path = _find_weights(agent, term)
    return path if path.is_file() else None


def _find_weights(agent: AgentFolder, term: Term) -> Path:
    return term_folder(agent.state, term.number) / WEIGHTS_FILE


def _read_agent(folder: Path) -> AgentFolder:
    shard = read_site_shard(folder)
    return AgentFolder(shard, run_folder(folder, shard.membership))


def _list_folders(given: Sequence[Path]) -> list[Path]:
    """Agents' folders, and those in folders that hold some."""
    found: list[Path] = []
    for path in given:
        inside = [path] if is_site(path) else sorted(path.glob("agent-*"))
        if not inside:
            raise GossamerError(f"{path}: expected an agent's folder, or a folder with folders agent-*")
        found += inside
    return found


def _join_logs(agents: Sequence[AgentFolder]) -> list[LoggedTerm]:
    """The longest log, of which all others are beginnings."""
    logs = {one.agent: read_log(one.state) for one in agents}
    longest = max(logs, key=lambda k: len(logs[k]))
    for agent, log in logs.items():
        for number, (line, other) in enumerate(zip(log, logs[longest], strict=False)):
            if line.following != other.following:
                raise GossamerError(
                    f"agents {agent} and {longest} have logged different memberships after {number}; their folders are "
                    f"not of one run, or {MEMBERSHIP_LOG} was changed: copy it again"
                )
    return logs[longest]


def _require(needed: Iterable[int], known: Iterable[int]) -> None:
    missing = sorted(set(needed) - set(known))
    if missing:
        names = ", ".join(map(str, missing))
        raise GossamerError(
            f"the folders of all agents that took part are needed, and agent {names} is missing; copy it beside the "
            "others, or give it with --agents"
        )


def _read_secret(agent: AgentFolder, term: Term) -> bytes:
    """The secret of an agent in a membership, where it has the number that it has there."""
    number, path = term.ids.index(agent.agent), term_folder(agent.state, term.number) / SECRETS_FILE
    if not path.is_file():
        raise GossamerError(
            f"agent {agent.agent} has no secret of membership {term.number} ({path}), in which it trained: it has "
            "lost its folder since. What it drew at random cannot be drawn again; put the file back from a copy"
        )
    return read_secrets(path, [number]).by_agent[number]


def _describe(begin: Begin) -> str:
    if begin.membership < 0:
        return "the initial weights"
    return f"step {begin.step} of membership {begin.membership}"
