"""Lines for the log of those who watch agents from outside: who is missing, who is back, who waits, what is refused."""

from collections.abc import Sequence

from gossamer.peers.progress import LONG_WAIT, join_numbers
from gossamer.report.live.agents import GONE, UNKNOWN
from gossamer.report.live.log_lines import LogLines
from gossamer.report.live.view import AgentView
from gossamer.runs.records import MembershipRecord

RUN_STATES = {
    "starting": "the run has not begun to train",
    "training": "the run goes on",
    "finished": "the run has finished",
    "stopped": "the run has stopped, and goes on when it is started again",
}


class Happenings:
    """Lines of the log about changes from one view to the next."""

    def __init__(self, log: LogLines) -> None:
        self._log = log
        self._states: dict[int, str] = {}
        self._waiting: set[int] = set()
        self._refused: dict[tuple[int, str], int] = {}
        self._membership: int | None = None
        self._run = ""

    def note_run(self, state: str) -> None:
        """Write a line if the run stands otherwise than before."""
        if state != self._run:
            self._log.add("warning" if state == "stopped" else "info", RUN_STATES[state])
        self._run = state

    def note(self, agents: Sequence[AgentView], memberships: Sequence[MembershipRecord]) -> None:
        """Write lines about what has happened since the last call."""
        for one in agents:
            self._note_state(one["agent"], one["state"])
            self._note_waiting(one)
            for reason, count in one["refused"].items():
                key = one["agent"], reason
                if key not in self._refused:
                    self._log.add("warning", f"agent {one['agent']} has refused a message: {reason} ({count} so far)")
                self._refused[key] = count
        if memberships:
            last = memberships[-1]
            if self._membership is not None and last["number"] > self._membership:
                members = join_numbers(last["members"])
                self._log.add("warning", f"membership {last['number']} begins, with the agents {members}")
            self._membership = last["number"]

    def _note_state(self, agent: int, state: str) -> None:
        if state == UNKNOWN:
            return
        before = self._states.get(agent)
        self._states[agent] = state
        if state == before or (before is None and state not in GONE):
            return
        if state == "missing":
            self._log.add("error", f"agent {agent} is missing: its process has ended, or has not reported for long")
        elif state == "stopped":
            self._log.add("warning", f"agent {agent} has stopped")
        elif before in GONE:
            self._log.add("info", f"agent {agent} is back: {state}")
        elif state in ("left", "outside", "finished", "joining", "leaving", "split"):
            self._log.add("info", f"agent {agent}: {state}")

    def _note_waiting(self, one: AgentView) -> None:
        if one["waited"] < LONG_WAIT or not one["waiting_for"]:
            self._waiting.discard(one["agent"])
        elif one["agent"] not in self._waiting:
            self._waiting.add(one["agent"])
            for_whom = join_numbers(one["waiting_for"])
            self._log.add("warning", f"agent {one['agent']} has waited {one['waited']:.0f} s for agent {for_whom}")
