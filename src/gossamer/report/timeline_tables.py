"""Table in the terminal of what happened in a run whose agents left and joined."""

from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from gossamer.report.score_text import format_score, label_score

if TYPE_CHECKING:
    from gossamer.peers.rehearsal.timeline import Timeline


def show_timeline(console: Console, timeline: "Timeline", folder: Path) -> None:
    """Print events and memberships in their order: for how long nobody had made a step before a membership went on, and
    its last validation score."""
    if len(timeline.memberships) < 2 and not timeline.events:
        return
    table = Table(title="What happened", title_justify="left", title_style="bold")
    for heading in ("seconds", "step", "event or membership", "members", "stopped", label_score(timeline.score, True)):
        table.add_column(heading, justify="left" if heading in ("event or membership", "members") else "right")
    rows = [
        (one.seconds, 0, [f"{one.seconds:.1f}", str(one.step), one.text, "", "", ""], "yellow")
        for one in timeline.events
    ]
    began = timeline.seconds
    described = zip(timeline.memberships, timeline.describe_memberships(), strict=True)
    for one, text in reversed(list(described)):
        seen = one["seconds"] is not None  # else the next one followed before it could train
        began = one["seconds"] if one["seconds"] is not None else began
        members = " ".join(map(str, one["members"]))
        stopped = f"{one['stopped']:.1f} s" if one["stopped"] and one["number"] else ""
        score = format_score(timeline.score, timeline.find_score(one["number"]))
        step = "-" if one["from_step"] is None else str(one["from_step"])
        cells = [f"{began:.1f}" if seen else "-", step, text, members, stopped, score]
        rows.append((began, 1 + one["number"], cells, "bold"))
    for _, _, cells, style in sorted(rows, key=lambda row: row[:2]):
        table.add_row(*map(escape, cells), style=style)
    console.print(table)
    for event in timeline.missed:
        console.print(f"[yellow]not reached:[/] {event.describe()} at step {event.at}", highlight=False)
    console.print(
        f"Memberships: [bold]{escape(str(folder / 'memberships.png'))}[/]  (timeline.json)",
        highlight=False,
        soft_wrap=True,
    )
