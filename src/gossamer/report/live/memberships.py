"""Memberships of a run whose agents leave and join, read from their folders while it goes on."""

import contextlib
from collections.abc import Mapping, Sequence

from gossamer.errors import GossamerError
from gossamer.peers.term_folders import BEGINS, list_terms, read_begin, read_log, term_folder
from gossamer.report.live.agents import WatchedAgent
from gossamer.runs.records import MembershipRecord


class WatchedMemberships:
    """The memberships that the agents at hand know of; read anew when one of them knows of another."""

    def __init__(self) -> None:
        self.went_on: Mapping[int, tuple[float, float]] = {}  # seconds of memberships, as Timeline has seen them
        self.found: list[MembershipRecord] = []
        self._whole = False

    def read(self, agents: Sequence[WatchedAgent], began: float | None = None) -> list[MembershipRecord]:
        """All memberships; `began` is the start of the run, in seconds since 1970 (None: that of its training)."""
        changing = [one for one in agents if one.changes]
        last = max((one.membership for one in changing), default=0)
        known = self.found[-1]["number"] if self.found else -1
        if changing and (last > known or not self._whole):
            with contextlib.suppress(GossamerError, OSError):  # a file that is being replaced is read the next time
                self.found = _read_memberships(changing, began)
                self._whole = bool(self.found) and self.found[-1]["from_step"] is not None
        if not self.went_on:
            return self.found
        return [self._add_seconds(one) for one in self.found]

    def _add_seconds(self, one: MembershipRecord) -> MembershipRecord:
        seconds, stopped = self.went_on.get(one["number"], (one["seconds"], one["stopped"]))
        return {**one, "seconds": seconds, "stopped": stopped}


def _read_memberships(agents: Sequence[WatchedAgent], began: float | None) -> list[MembershipRecord]:
    log = max((read_log(one.state_folder) for one in agents), key=len)
    found: list[MembershipRecord] = []
    for term in list_terms(agents[0].run, range(agents[0].num_agents), log):
        step = seconds = None
        for one in agents:
            folder = term_folder(one.state_folder, term.number)
            begin = read_begin(folder) if one.agent in term.ids else None
            if begin is not None:
                at = (folder / BEGINS).stat().st_mtime
                began = at if began is None else began
                step, seconds = begin.step, max(0.0, at - began)
                break
        found.append(
            {"number": term.number, "members": list(term.ids), "from_step": step, "seconds": seconds, "stopped": None}
        )
    return found
