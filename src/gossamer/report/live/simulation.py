"""The source of a run in this process: `gossamer train`, and the rank that leads a `gossamer cluster`.

A step costs the storage of its number. All else is made when a view is published, or once.
"""

import time
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import get_args

import numpy as np

from gossamer.report.live.certificates import view_certificate
from gossamer.report.live.evaluations import name_activity, view_evaluation
from gossamer.report.live.feed import Feed
from gossamer.report.live.layout import Positions, place_agents
from gossamer.report.live.log_lines import LogLines
from gossamer.report.live.publisher import Publisher
from gossamer.report.live.traffic import LinkTraffic, count_mixed, view_links, view_simulated
from gossamer.report.live.view import CertificateView, EvaluationView, RunView, starting_view
from gossamer.runs.checkpoints import NEWEST
from gossamer.runs.observers import Observer
from gossamer.runs.records import Record, Reference
from gossamer.runs.run import Run

REFERENCES: tuple[str, ...] = get_args(Reference)


@dataclass(frozen=True)
class _Followed:
    """A model that is trained, with what is known of it from the start."""

    run: Run
    title: str
    evaluations: list[EvaluationView]
    before: float  # seconds of its training until it was resumed

    @cached_property
    def traffic(self) -> LinkTraffic:
        """Bytes of a step by link."""
        return LinkTraffic(self.run.messages["links"])

    @cached_property
    def certificate(self) -> CertificateView:
        return view_certificate(self.run)

    @cached_property
    def positions(self) -> Positions:
        return place_agents(range(self.run.host.num_agents), self.traffic.links)

    @cached_property
    def sizes(self) -> list[tuple[int | None, int | None]]:
        """Vertices and training vertices of each agent."""
        m, deployment = self.run.host.num_agents, self.run.full_deployment
        if deployment is None:
            return [(None, None)] * m
        train = deployment.graph.train.reshape(len(deployment.assignment), -1).any(axis=1)  # at any time step
        vertices = np.bincount(deployment.assignment, minlength=m)
        labels = np.bincount(deployment.assignment[train], minlength=m)
        return list(zip(vertices.tolist(), labels.tolist(), strict=True))


class SimulationSource:
    """Follows the models that are trained in this process, as a display of `gossamer.train` (`follow`)."""

    def __init__(
        self,
        feed: Feed,
        log: LogLines,
        title: str,
        references: Mapping[str, list[Record]] | None = None,
        folder: Path | None = None,
    ) -> None:
        """`references` are evaluations of those that have been trained before; `folder` is resumed."""
        self._log, self._title, self._state, self._activity = log, title, "starting", ""
        self._began: float | None = None  # while the network trains
        self._followed: _Followed | None = None
        self._step = 0
        self._checkpoint_at = None if folder is None else _find_checkpoint_time(folder)
        self._references = {name: list(map(view_evaluation, found)) for name, found in (references or {}).items()}
        self.publisher = Publisher(feed, log, self._build)

    def follow(self, name: str, first: int, last: int) -> Observer:
        """The observer of a model: the distributed one, a stage before it, or a reference."""
        found: list[EvaluationView] = []
        self._log.add("info", f"{name}: training from step {first} of {last}")
        if name in REFERENCES:
            self._references, self._activity = {**self._references, name: found}, name_activity(name)
            return Observer(on_record=partial(self._add, found))
        return Observer(
            on_start=partial(self._start, name, found),
            on_step=self._note_step,
            on_record=partial(self._add, found),
            on_checkpoint=self._note_checkpoint,
            on_end=self._note_end,
        )

    def end(self, complete: bool) -> None:
        """Note how the run has ended."""
        self._state, self._activity, self._began = "finished" if complete else "stopped", "", None
        self._log.add("info" if complete else "warning", f"the run has {self._state}")

    def _start(self, name: str, found: list[EvaluationView], run: Run) -> None:
        title = f"{run.description['name']}, {run.host.num_agents} agents"
        found += map(view_evaluation, run.history)
        self._step, self._state = run.host.step, "training"
        self._followed = _Followed(run, title if name == "distributed" else f"{title}: {name}", found, run.seconds)
        self._began = time.monotonic()
        self.publisher.hurry()

    def _note_step(self, step: int, loss: float) -> None:
        self._step = step
        self.publisher.note()

    def _note_end(self, run: Run) -> None:
        self._began = None

    def _note_checkpoint(self, run: Run) -> None:
        self._checkpoint_at = time.time()

    def _add(self, found: list[EvaluationView], record: Record) -> None:
        found.append(view_evaluation(record))
        self.publisher.hurry()

    def _build(self) -> RunView:
        followed, step, now, began = self._followed, self._step, time.monotonic(), self._began
        if followed is None:
            return {**starting_view(self._title), "state": self._state, "log": self._log.last()}
        run = followed.run
        trains = self._state == "training" and not run.complete
        state = "training" if trains else "stopped" if self._state == "stopped" else "finished"
        age = None if self._checkpoint_at is None else max(0.0, time.time() - self._checkpoint_at)
        links = view_links(followed.traffic, step, count_mixed(run.settings, step))
        return {
            "title": followed.title,
            "own": None,
            "state": self._state,
            "activity": self._activity,
            "step": step,
            "steps": run.settings.steps,
            "seconds": run.seconds if began is None else followed.before + now - began,
            "score": run.score.key(),
            "agents": [
                view_simulated(agent, state, step, sizes, age, links.get(agent, []))
                for agent, sizes in enumerate(followed.sizes)
            ],
            "positions": followed.positions,
            "evaluations": followed.evaluations,
            "references": self._references,
            "memberships": [],
            "certificate": followed.certificate,
            "log": self._log.last(),
        }


def _find_checkpoint_time(folder: Path) -> float | None:
    """Time of the newest checkpoint of a run directory, in seconds since 1970."""
    try:
        return (folder / NEWEST).stat().st_mtime
    except OSError:
        return None
