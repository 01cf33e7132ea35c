"""Memberships of a run whose agents may leave and join, read from its agents' folders: which there were, whose folders
hold the end of the run, and the evaluations of those that are over."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from gossamer.errors import GossamerError
from gossamer.peers.agent_folders import EVALUATIONS_FILE, run_folder
from gossamer.peers.evaluation_log import AgentMetrics, read_evaluation_log
from gossamer.peers.progress import join_numbers
from gossamer.peers.protocol.terms import Term
from gossamer.peers.shards.shard import Shard, read_shard
from gossamer.peers.shards.sites import SiteShard, is_site, read_site_shard
from gossamer.peers.term_folders import Begin, list_terms, read_begin, read_log, term_folder
from gossamer.runs.records import MembershipRecord
from gossamer.runs.shares import MANIFEST


@dataclass(frozen=True)
class RunHistory:
    """The memberships of a run, and the folders of its agents."""

    terms: tuple[Term, ...]
    begins: Mapping[int, Begin]  # of each membership that has trained
    finished: bool
    states: Mapping[int, Path]  # the folder of the run of each agent at hand, by id

    @property
    def members(self) -> tuple[int, ...]:
        """Ids of the members of the last membership."""
        return self.terms[-1].ids

    @property
    def others(self) -> tuple[int, ...]:
        """Ids of the agents at hand that are no members at the end."""
        return tuple(sorted(self.states.keys() - {*self.members}))

    @property
    def is_whole(self) -> bool:
        """Return whether the last membership has the agents of the first, and so all data of the run."""
        return self.members == self.terms[0].ids

    @property
    def last_begin(self) -> int:
        """The step from which the last membership has trained."""
        begin = self.begins.get(self.terms[-1].number)
        return 0 if begin is None else begin.step

    def read_last(self) -> list[tuple[Shard, Path]]:
        """The planned shards of the last members, by number, with the folders of their state."""
        missing = [agent for agent in self.members if agent not in self.states]
        number = self.terms[-1].number
        if missing:
            raise GossamerError(
                f"expected the folders of the agents {join_numbers(self.members)}, the members of the run's last "
                f"membership {number}; missing: {join_numbers(missing)}. Copy them here, or use one agent's folder "
                "alone: gossamer export and --initial take it, with the mean of all weights"
            )
        found = []
        for agent in self.members:
            state = term_folder(self.states[agent], number)
            if not (state / "planned" / MANIFEST).is_file():
                raise GossamerError(
                    f"agent {agent} has not planned its share of membership {number} yet; run gossamer peer "
                    f"{self.states[agent].parent}"
                )
            found.append((read_shard(state / "planned"), state))
        return found

    def list_earlier(self) -> list[AgentMetrics]:
        """Evaluations of memberships before the last one, with the scores of all agents, by ascending steps; those that
        the next membership did not build upon are left out."""
        number, found = self.terms[-1].number, list[AgentMetrics]()
        while number in self.begins and self.begins[number].membership >= 0:
            base, limit = self.begins[number].membership, self.begins[number].step
            paths = [term_folder(state, base) / EVALUATIONS_FILE for state in self.states.values()]
            by_step = {
                one["step"]: one
                for path in paths
                if path.is_file()
                for one in read_evaluation_log(path)
                if one["step"] <= limit and "network" in one
            }
            known = {one["step"] for one in found}
            found += [one for step, one in by_step.items() if step not in known]
            number = base
        return sorted(found, key=lambda one: int(one["step"]))


def list_memberships(
    history: RunHistory, went_on: Mapping[int, tuple[float, float]] | None = None
) -> list[MembershipRecord]:
    """The memberships as agents have stored them; `went_on` has the seconds at which each went on, and those without a
    step before that, where they were seen."""
    return [
        {
            "number": term.number,
            "members": list(term.ids),
            "from_step": begin.step if (begin := history.begins.get(term.number)) is not None else None,
            "seconds": seconds,
            "stopped": stopped,
        }
        for term in history.terms
        for seconds, stopped in [(went_on or {}).get(term.number, (None, None))]
    ]


def may_change(folder: Path) -> bool:
    """Return whether an agent's folder is of a run whose agents may leave and join."""
    return is_site(folder) and read_site_shard(folder).settings.evict_after is not None


def read_history(folders: Sequence[Path]) -> RunHistory:
    """The history of a run from the folders of its agents; whichever knows most of it is believed."""
    sites = [(read_site_shard(folder), folder) for folder in folders]
    runs = sorted({site.membership.run for site, _ in sites})
    if len(runs) > 1:
        raise GossamerError(f"expected the agents of one run, got those of {' and '.join(runs[:2])}")
    states: dict[int, Path] = {}
    for site, folder in sites:
        agent = site.membership.agent
        if agent in states:
            raise GossamerError(f"agent {agent} is given twice; give each agent's folder once")
        states[agent] = run_folder(folder, site.membership)
    return _read_states(sites[0][0], states)


def _read_states(site: SiteShard, states: Mapping[int, Path]) -> RunHistory:
    log = max((read_log(state) for state in states.values()), key=len)
    terms = list_terms(site.membership.run, range(site.settings.agents), log)
    begins = {}
    for term in terms:
        found = (read_begin(term_folder(state, term.number)) for agent, state in states.items() if agent in term.ids)
        begin = next((one for one in found if one is not None), None)
        if begin is not None:
            begins[term.number] = begin
    return RunHistory(tuple(terms), begins, bool(log) and log[-1].following is None, dict(states))
