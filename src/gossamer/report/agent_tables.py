"""Tables of agents in the terminal: their shards, and their processes while they train."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console, Group, RenderableType
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from gossamer.report.score_text import format_score, label_score

if TYPE_CHECKING:  # of annotations alone: the network's libraries are not needed for a table
    from gossamer.agents.scores import Scores
    from gossamer.peers.evaluation_log import AgentMetrics
    from gossamer.peers.progress import PeerReport
    from gossamer.peers.shards.shard import Shard
    from gossamer.peers.shards.sites import SiteShard
    from gossamer.peers.status import AgentStatus
    from gossamer.report.live.metrics_client import UnreadMetrics
    from gossamer.runs.manifests import RunManifest


def show_shards(console: Console, shards: "Sequence[Shard | SiteShard]", folder: Path) -> None:
    """Print the size, the neighbours and the address of each shard."""
    table = Table(
        title=f"{len(shards)} shard{'s' * (len(shards) != 1)} in {escape(str(folder))}",
        title_justify="left",
        title_style="bold",
    )
    for heading in ("agent", "vertices", "labels", "neighbours", "address"):
        table.add_column(heading, justify="left" if heading in ("neighbours", "address") else "right")
    for shard in shards:
        table.add_row(
            str(shard.membership.agent),
            str(len(shard.local_data.targets)),
            str(int(shard.local_data.masks["train"].sum())),
            ", ".join(map(str, shard.membership.neighbours)),
            shard.membership.contact.address,
        )
    console.print(table)


def status_table(agents: "Sequence[AgentStatus]", unread: "Sequence[UnreadMetrics]" = ()) -> RenderableType:
    """Table of agents with what each waits for, and of addresses that none was read from, with the reasons and links
    that are down below it; without lines between columns, to fit in 80 characters."""
    table = Table(box=None, padding=(0, 1, 0, 0), pad_edge=False)
    changing = any(one["membership"] is not None for one in agents)
    numbered = "membership" if changing else "epoch"  # both at once would take more than 80 characters
    for heading in ("agent", "state", "step", "loss", "score", "waits for", numbered, "refused", "checkpoint"):
        table.add_column(heading, justify="left" if heading in ("state", "waits for") else "right", no_wrap=True)
    for one in agents:
        waits = ", ".join(map(str, one["waiting_for"]))
        waited = one["waited"] or 0.0
        table.add_row(
            str(one["agent"]),
            escape(one["state"]),
            f"{'-' if one['step'] is None else one['step']} of {one['steps']}",
            format_score("loss", one["loss"]),
            format_score("loss", one["score"]),
            f"{waits} for {format_age(waited)}" if waits and waited >= 1 else waits,
            "-" if (number := one["membership"] if changing else one["epoch"]) is None else str(number),
            str(one["refused"]),
            "-" if one["checkpoint_age"] is None else f"{format_age(one['checkpoint_age'])} ago",
        )
    for lost in unread:
        table.add_row("-", f"[red]{lost['state']}[/]" if lost["error"] else lost["state"])
    down = [
        Text(f"The link of agents {one['agent']} and {z} is down; agent {one['agent']} sends over {_join(over)}.")
        for one in agents
        for z, over in one["detours"].items()
    ]
    return Group(table, *down, *(Text(f"{lost['metrics']}: {lost['error'] or lost['state']}") for lost in unread))


def _join(agents: "Sequence[int]") -> str:
    return "agent " + ", ".join(map(str, agents))


def format_age(seconds: float) -> str:
    """Seconds in the unit that suits them."""
    for size, unit in ((86400, "d"), (3600, "h"), (60, "min")):
        if seconds >= 2 * size:
            return f"{seconds / size:.0f} {unit}"
    return f"{seconds:.0f} s"


def show_agent_result(console: Console, agent: int, folder: Path, manifest: "RunManifest") -> None:
    """Print the result of one agent: the scores of the whole network, as far as it knows them, and of its own."""
    summary, main = manifest.summary, manifest.summary["score"]
    title = f"Agent {agent} of {manifest.settings['agents']}, {summary['steps']} steps"
    table = Table(title=title, title_justify="left", title_style="bold")
    for heading in ("vertices", "training loss", "train", "validation", "test"):
        table.add_column(heading, justify="left" if heading == "vertices" else "right")
    for key, name in (("distributed", "of all agents"), ("own", "of this agent")):
        scores = summary.get(key)
        if scores is not None:
            shown = (format_score(main, scores[mask].get(main)) for mask in ("train", "validation", "test"))
            table.add_row(name, format_score("loss", scores["train"].get("loss")), *shown)
    table.caption = f"train, validation, test: {label_score(main)}"
    console.print(table)
    if "distributed" not in summary:
        console.print("The run is private: no scores are summed over agents.", highlight=False)
    known = [
        f"{name} {summary[key]:.2e}"
        for key, name in (("disagreement", "disagreement between agents"), ("stationarity", "g^t at the mean weights"))
        if summary.get(key) is not None
    ]
    if known:
        console.print(f"At the end: {', '.join(known)}.", highlight=False)
    if summary["best_step"] != summary["steps"]:
        console.print(f"Kept: the weights of step {summary['best_step']}.", highlight=False)
    console.print(
        f"Run directory: [bold]{escape(str(folder))}[/] (this agent's weights in weights.safetensors, the mean of all "
        "agents' in mean.safetensors)",
        highlight=False,
        soft_wrap=True,
    )


def process_table(
    states: "Mapping[int, PeerReport]",
    num_agents: int,
    steps: int,
    score: str,
    measure: "Callable[[Sequence[AgentMetrics]], Scores]",
    standings: "Mapping[int, str] | None" = None,
) -> Table:
    """Table of the agents' processes and their progress; without lines between columns, to fit in 80 characters.

    `measure` makes scores of an agent's sums, of which the loss and the validation score are shown. Where agents may
    leave and join, their `standings` and memberships take the place of bytes.
    """
    title = f"{num_agents} agents, {steps} steps"
    table = Table(title=title, title_justify="left", title_style="bold", box=None, padding=(0, 1, 0, 0), pad_edge=False)
    middle = ("in MB", "out MB") if standings is None else ("standing", "membership")
    for heading in (
        "agent",
        "step",
        "loss",
        label_score(score, short=True),
        "neighbours",
        *middle,
        "refused",
        "waiting for",
    ):
        left = heading in ("neighbours", "waiting for", "standing")
        table.add_column(heading, justify="left" if left else "right")
    for agent in range(num_agents):
        state, standing = states.get(agent), "" if standings is None else standings[agent]
        if state is None or standing in ("gone", "left", "not started"):
            between = ["", ""] if standings is None else [standing, ""]
            starting = "(starting)" if standing in ("", "starting") else ""
            table.add_row(str(agent), *[""] * 4, *between, "", starting, style="dim" if standing else None)
            continue
        scores = measure([state["metrics"]]) if state["metrics"] else {"train": {}, "validation": {}}
        waits = ", ".join(map(str, state["waiting_for"]))
        traffic = [f"{state['bytes_in'] / 1e6:.1f}", f"{state['bytes_out'] / 1e6:.1f}"]
        table.add_row(
            str(agent),
            str(state["step"]),
            format_score("loss", scores["train"].get("loss")),
            format_score(score, scores["validation"].get(score)),
            ", ".join(map(str, state["neighbours"])),
            *(traffic if standings is None else [standing, str(state.get("membership", 0))]),
            str(
                sum(
                    state["refused"].get(name, 0)
                    for name in state["refused"]
                    if name not in ("old", "early", "duplicate")
                )
            ),
            "done" if state["finished"] else f"{waits} ({state['waited']:.0f} s)" if state["waited"] > 1 else waits,
        )
    return table
