"""`gossamer replay`: a run whose agents left and joined, simulated from the agents' folders to the same bits."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from gossamer.commands import logs
from gossamer.commands.common import err, print_json, report_errors
from gossamer.commands.options import AsJson, LogLevel

if TYPE_CHECKING:
    from gossamer.peers.histories import TermTraining
    from gossamer.replaying import ReplayedAgent, ReplayedRun

DIFFERENT = 1  # exit code: an agent has ended with other bits
EXAMPLES = """[bold]Examples[/]

gossamer replay shards/agent-0

gossamer replay shards/agent-0/run-hospitals/memberships.jsonl --json

gossamer replay agent-0 --agents from-site-1/agent-1 --agents from-site-2/agent-2 --out replayed
"""


@report_errors
def replay(
    log: Annotated[
        Path,
        typer.Argument(
            metavar="LOG", help="memberships.jsonl of an agent, or the agent's own folder.", show_default=False
        ),
    ],
    agents: Annotated[
        list[Path] | None,
        typer.Option(
            "--agents",
            metavar="DIR",
            help="More agents' folders than those beside the log's; may be given several times.",
            show_default=False,
        ),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Write weights.safetensors of the last members.", show_default=False),
    ] = None,
    as_json: AsJson = False,
    log_level: LogLevel = "warning",
) -> None:
    """Simulate a run whose agents left and joined in this process, and compare its end with the agents' weights.

    All agents' folders must be at hand: the simulation takes their shards, secrets and logs of memberships, no
    checkpoints. It has the same bits on the same type of machine. Exit code 1 if an agent has ended with others.
    """
    logs.configure(log_level)
    from gossamer import replaying
    from gossamer.runs.memory import keep_memory

    with keep_memory(), err.status("reading the agents' folders") as status:

        def show(training: "TermTraining", step: int) -> None:
            status.update(f"membership {training.term.number}, step {step}")

        replayed = replaying.replay_folders(log, agents or (), show)
    if out is not None:
        replaying.write_replay(out, replayed)
    if as_json:
        print_json(replayed.summary)
    else:
        _show(Console(), replayed)
    if not replayed.same:
        raise typer.Exit(DIFFERENT)


def _show(console: Console, replayed: "ReplayedRun") -> None:
    """Print what each membership has trained, and whether its agents have ended with the same bits."""
    summary = replayed.summary
    table = Table("membership", "steps", "agents", "took over weights")
    for one in summary["memberships"]:
        agents, took_over = (", ".join(map(str, one[name])) for name in ("agents", "took_over_weights"))
        table.add_row(str(one["membership"]), f"{one['from']} to {one['to']}", agents, took_over)
    console.print(table)
    ends = Table("agent", "at the end")
    for agent in replayed.agents:
        ends.add_row(str(agent.agent), _describe(agent))
    console.print(ends)
    if "distributed" in summary:
        scores = {name: part.get("accuracy", part.get("mse")) for name, part in summary["distributed"].items()}
        found = ", ".join(f"{name} {score:.4f}" for name, score in scores.items() if score is not None)
        console.print(escape(f"all vertices of the last members at step {summary['step']}: {found}"), highlight=False)
    if not summary["finished"]:
        console.print("the agents have not finished: this is how they end if nothing more happens", highlight=False)


def _describe(agent: "ReplayedAgent") -> str:
    if agent.difference is None:
        return "no weights to compare with"
    return "the same bits" if agent.same else f"[bold red]other bits[/], by up to {agent.difference:.2g}"
