"""Tables of agents in the terminal: their shards, and their processes while they train."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from gossamer.report.score_text import format_score, label_score

if TYPE_CHECKING:  # of annotations alone: the network's libraries are not needed for a table
    from gossamer.agents.scores import Scores
    from gossamer.peers.evaluation_log import AgentMetrics
    from gossamer.peers.progress import PeerReport
    from gossamer.peers.shards.shard import Shard
    from gossamer.peers.shards.sites import SiteShard


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


def process_table(
    states: "Mapping[int, PeerReport]",
    num_agents: int,
    steps: int,
    score: str,
    measure: "Callable[[Sequence[AgentMetrics]], Scores]",
) -> Table:
    """Table of the agents' processes and their progress; without lines between columns, to fit in 80 characters.

    `measure` makes scores of an agent's sums, of which the loss and the validation score are shown.
    """
    title = f"{num_agents} agents, {steps} steps"
    table = Table(title=title, title_justify="left", title_style="bold", box=None, padding=(0, 1, 0, 0), pad_edge=False)
    for heading in (
        "agent",
        "step",
        "loss",
        label_score(score, short=True),
        "neighbours",
        "in MB",
        "out MB",
        "refused",
        "waiting for",
    ):
        table.add_column(heading, justify="left" if heading in ("neighbours", "waiting for") else "right")
    for agent in range(num_agents):
        state = states.get(agent)
        if state is None:
            table.add_row(str(agent), *[""] * 7, "(starting)")
            continue
        scores = measure([state["metrics"]]) if state["metrics"] else {"train": {}, "validation": {}}
        waits = ", ".join(map(str, state["waiting_for"]))
        table.add_row(
            str(agent),
            str(state["step"]),
            format_score("loss", scores["train"].get("loss")),
            format_score(score, scores["validation"].get(score)),
            ", ".join(map(str, state["neighbours"])),
            f"{state['bytes_in'] / 1e6:.1f}",
            f"{state['bytes_out'] / 1e6:.1f}",
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
