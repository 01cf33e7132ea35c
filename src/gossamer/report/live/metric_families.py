"""Prometheus families of a run's view: names, units and labels follow https://prometheus.io/docs/practices/naming/.

Labels have as many values as the run has agents, links, phases and reasons of refusal, so that the number of series
does not grow with time. Where there are more than MAX_LINK_SERIES links, traffic is summed over an agent's neighbours.
Of an agent's own view others are left out, but for whether they are missing: each agent speaks for itself, and sums
over scraped agents count nothing twice.
"""

from collections import Counter
from collections.abc import Iterator

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, InfoMetricFamily, Metric
from prometheus_client.registry import Collector

from gossamer.report.live.feed import Feed
from gossamer.report.live.view import AgentView, NeighbourView, RunView
from gossamer.runs.run_json import GOSSAMER_VERSION

MAX_LINK_SERIES = (
    1000  # that have series of their own: a run of 200 agents may have 40 000, as 20 MB of text at each scrape
)
AGENT_GAUGES: tuple[tuple[str, str], ...] = (
    ("gossamer_agent_step", "Training step of the agent. It goes back when agents roll back to a checkpoint."),
    ("gossamer_agent_epoch", "Epoch of the agent: a restart of any agent opens the next one."),
    ("gossamer_agent_loss", "Loss of the agent's training vertices at its last evaluation."),
    ("gossamer_agent_waiting_seconds", "Seconds for which the agent has now been waiting for neighbours."),
    ("gossamer_agent_checkpoint_age_seconds", "Age of the agent's last checkpoint."),
    ("gossamer_agent_report_age_seconds", "Seconds since the agent's process has last reported."),
)


class RunCollector(Collector):
    """Families of a feed's latest view, made anew at every scrape."""

    def __init__(self, feed: Feed) -> None:
        self._feed = feed

    def describe(self) -> list[Metric]:
        """Nothing: the registry need not collect to learn names."""
        return []

    def collect(self) -> Iterator[Metric]:
        """Yield families; before the first view, the version and that the run is starting."""
        _, view = self._feed.latest()
        yield InfoMetricFamily("gossamer_build", "Version of Gossamer.", {"version": GOSSAMER_VERSION})
        state = GaugeMetricFamily("gossamer_run_state", "1 for the state that the run is in.", labels=["state"])
        state.add_metric(["starting" if view is None else _clean(view["state"])], 1)
        yield state
        if view is None:
            return
        age = self._feed.age()
        described = [one for one in view["agents"] if view["own"] is None or one["agent"] == view["own"]]
        yield from _describe_run(view, age)
        yield from _describe_evaluation(view)
        yield from _describe_membership(view, described)
        yield from _describe_agents(view, described, age)
        yield from _describe_traffic(described)


def _clean(text: str) -> str:
    """Text without the halves of surrogate pairs that names of files may hold and UTF-8 does not have."""
    return text.encode(errors="replace").decode()


def _describe_run(view: RunView, age: float) -> Iterator[Metric]:
    names = {"title": _clean(view["title"]), "score": _clean(view["score"])}
    yield InfoMetricFamily("gossamer_run", "Title of the run and name of the score that it is validated on.", names)
    missing = sum(one["state"] == "missing" for one in view["agents"])
    for name, help_text, value in (
        ("gossamer_run_step", "Training step of the run.", view["step"]),
        ("gossamer_run_steps", "Training steps of the whole run.", view["steps"]),
        (
            "gossamer_run_elapsed_seconds",
            "Seconds of training. They stand still once it has ended.",
            view["seconds"],
        ),
        ("gossamer_run_agents", "Agents of the run that are known.", len(view["agents"])),
        ("gossamer_run_agents_missing", "Agents that others wait for, or whose processes have ended.", missing),
        ("gossamer_view_age_seconds", "Seconds since the run has last renewed these metrics.", age),
    ):
        yield GaugeMetricFamily(name, help_text, value)


def _describe_evaluation(view: RunView) -> Iterator[Metric]:
    """The last evaluation of the whole network."""
    if not view["evaluations"]:
        return
    last = view["evaluations"][-1]
    for name, help_text, value in (
        ("gossamer_evaluation_step", "Step of the network's last evaluation.", last["step"]),
        ("gossamer_evaluation_loss", "Loss of all agents' training vertices.", last["loss"]),
        ("gossamer_evaluation_disagreement", "Mean distance of two agents' weights.", last["disagreement"]),
    ):
        if value is not None:
            yield GaugeMetricFamily(name, help_text, value)
    scores = GaugeMetricFamily("gossamer_evaluation_score", "Score of all agents' vertices by mask.", labels=["mask"])
    for mask, score in (("train", last["train"]), ("validation", last["validation"]), ("test", last["test"])):
        if score is not None:
            scores.add_metric([mask], score)
    yield scores


def _describe_membership(view: RunView, described: list[AgentView]) -> Iterator[Metric]:
    """The last membership of a run whose agents may leave and join."""
    if not view["memberships"]:
        return
    last = view["memberships"][-1]
    yield GaugeMetricFamily("gossamer_membership_number", "Number of the last membership.", last["number"])
    yield GaugeMetricFamily("gossamer_membership_agents", "Agents of the last membership.", len(last["members"]))
    family = GaugeMetricFamily("gossamer_agent_member", "1 if the agent is in the last membership.", labels=["agent"])
    for agent in sorted({*last["members"], *(one["agent"] for one in described)}):
        family.add_metric([str(agent)], agent in last["members"])
    yield family


def _describe_agents(view: RunView, described: list[AgentView], age: float) -> Iterator[Metric]:
    missing = GaugeMetricFamily(
        "gossamer_agent_missing", "1 if others wait for the agent, or its process has ended.", labels=["agent"]
    )
    for one in view["agents"]:
        missing.add_metric([str(one["agent"])], one["state"] == "missing")
    states = GaugeMetricFamily(
        "gossamer_agent_state", "1 for the state that the agent is in.", labels=["agent", "state"]
    )
    gauges = {name: GaugeMetricFamily(name, help_text, labels=["agent"]) for name, help_text in AGENT_GAUGES}
    waits = GaugeMetricFamily(
        "gossamer_agent_waiting_for", "1 for a neighbour that the agent waits for.", labels=["agent", "neighbour"]
    )
    for one in described:
        agent = str(one["agent"])
        states.add_metric([agent, _clean(one["state"])], 1)
        values = (one["step"], one["epoch"], one["loss"], one["waited"])
        ages = (None if value is None else value + age for value in (one["checkpoint_age"], one["report_age"]))
        for gauge, value in zip(gauges.values(), (*values, *ages), strict=True):
            if value is not None:
                gauge.add_metric([agent], value)
        for neighbour in one["waiting_for"]:
            waits.add_metric([agent, str(neighbour)], 1)
    yield from (missing, states, *gauges.values(), waits)


def _add_links(links: list[NeighbourView]) -> NeighbourView:
    """The traffic of all of an agent's links."""
    sent = Counter[str]()
    for link in links:
        sent.update(link["sent"])
    received, known = (
        sum(link["received"] for link in links),
        [link["waited"] for link in links if link["waited"] is not None],
    )
    waited = sum(known) if known else None
    return {"neighbour": -1, "sent": dict(sent), "received": received, "waited": waited}


def _describe_traffic(described: list[AgentView]) -> Iterator[Metric]:
    between = ["agent", "neighbour"]
    sent = CounterMetricFamily(
        "gossamer_agent_sent_bytes", "Bytes that the agent has sent to a neighbour.", labels=[*between, "phase"]
    )
    received = CounterMetricFamily(
        "gossamer_agent_received_bytes", "Bytes that the agent has received from a neighbour.", labels=between
    )
    waited = CounterMetricFamily(
        "gossamer_agent_waited_seconds",
        "Seconds in which nothing but a neighbour's messages was missing.",
        labels=between,
    )
    refused = CounterMetricFamily(
        "gossamer_agent_refused_messages",
        "Messages and connections that the agent has refused.",
        labels=["agent", "reason"],
    )
    by_link = sum(len(one["neighbours"]) for one in described) <= MAX_LINK_SERIES
    for one in described:
        agent = str(one["agent"])
        links = [(str(link["neighbour"]), link) for link in one["neighbours"]]
        for neighbour, link in links if by_link else [("all", _add_links(one["neighbours"]))]:
            for phase, size in link["sent"].items():
                sent.add_metric([agent, neighbour, _clean(phase)], size)
            received.add_metric([agent, neighbour], link["received"])
            if link["waited"] is not None:
                waited.add_metric([agent, neighbour], link["waited"])
        for reason, count in one["refused"].items():
            refused.add_metric([agent, _clean(reason)], count)
    yield from (sent, received, waited, refused)
