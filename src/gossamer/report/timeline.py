"""Picture of a run whose agents leave and join: how each stands over time, memberships, and the validation score."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

from gossamer.report.score_text import label_score
from gossamer.report.style import COLOURS, agent_colour, save_figure, text_colour, tidy

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from gossamer.peers.rehearsal.timeline import Timeline

# Colours of Okabe and Ito (2008), Color universal design, and fainter shades of them.
STANDINGS = {
    "member": ("#0072B2", "member"),
    "waiting": ("#A9CCE3", "member that waits"),
    "leaving": ("#CC79A7", "about to leave"),
    "split": ("#E69F00", "split from the majority"),
    "starting": ("#FAF3B5", "starts"),
    "joining": ("#F0E442", "asks to join"),
    "gone": ("#DDDDDD", "gone"),
}
SAME = {"finished": "member", "outside": "gone", "left": "gone"}  # drawn alike
EVENT_COLOUR = COLOURS["centralised"]
BAR_HEIGHT = 0.5  # of the height of a row; above it stands what was made to happen
EARLY = 0.05  # of the steps, whose low scores would leave no room for the others


def draw_timeline(path: Path, timeline: "Timeline", title: str) -> None:
    """Draw the validation score above a row for each agent, over the seconds of the run; a line for each membership,
    and a mark for each event."""
    from matplotlib.figure import Figure

    height = 0.8 + 0.4 * timeline.agents
    figure = Figure(figsize=(12, 3.2 + height), layout="constrained")
    score, rows = figure.subplots(2, 1, sharex=True, height_ratios=(2.2, height))
    _draw_score(score, timeline)
    _draw_rows(rows, timeline)
    began = [one for one in timeline.memberships if one["seconds"] is not None and one["number"]]
    for one in began:
        for axes in (score, rows):
            axes.axvline(one["seconds"] or 0.0, color="black", linewidth=1, linestyle="--", zorder=3)
        above: dict[str, Any] = {"xycoords": ("data", "axes fraction"), "textcoords": "offset points", "ha": "center"}
        score.annotate(str(one["number"]), (one["seconds"] or 0.0, 1.0), xytext=(0, 3), fontsize=9, **above)
    tidy(score, rows)
    rows.grid(visible=False, axis="y")
    figure.legend(handles=_list_handles(timeline, bool(began)), loc="outside lower center", ncols=5, frameon=False)
    figure.suptitle(title)
    save_figure(figure, path)


def _draw_score(axes: "Axes", timeline: "Timeline") -> None:
    points = timeline.scores
    for number in sorted({one.membership for one in points}):  # scores of other vertices: no line joins them
        own = [one for one in points if one.membership == number]
        marker = "o" if len(own) == 1 else ""
        given = [one.seconds for one in own], [one.score for one in own]
        axes.plot(*given, color=COLOURS["distributed"], linewidth=2, marker=marker, markersize=3)
    axes.set(ylabel=f"validation {label_score(timeline.score)}", xlim=(0, max(timeline.seconds, 1e-3)))
    later = [one.score for one in points if one.step >= EARLY * timeline.steps]
    if later and max(later) > min(later):
        margin = 0.1 * (max(later) - min(later))
        axes.set_ylim(min(later) - margin, max(later) + margin)


def _draw_rows(axes: "Axes", timeline: "Timeline") -> None:
    """Draw how each agent stands, a bar for each stretch of time, and what was made to happen to it."""
    for agent in range(timeline.agents):
        for name, begin, end in _list_stretches(timeline, agent):
            axes.barh(agent, end - begin, left=begin, height=BAR_HEIGHT, color=STANDINGS[name][0])
    for event in timeline.events:
        for agent in event.agents:
            ends = agent - 0.5 * BAR_HEIGHT, agent + 0.5 * BAR_HEIGHT
            axes.plot([event.seconds] * 2, ends, color=EVENT_COLOUR, linewidth=3, zorder=4, solid_capstyle="butt")
        late = event.seconds > 0.85 * timeline.seconds
        axes.text(
            event.seconds,
            min(event.agents) - 0.5 * BAR_HEIGHT - 0.04,
            f"{event.kind}, step {event.step}",
            ha="right" if late else "left",
            va="bottom",
            fontsize=8,
            zorder=5,
            color=EVENT_COLOUR,
            bbox={"facecolor": "white", "edgecolor": "none", "alpha": 0.8, "pad": 0.5},
        )
    axes.set(xlabel="seconds", yticks=range(timeline.agents), ylim=(timeline.agents - 0.6, -0.7))
    axes.set_ylabel("agent", labelpad=8)  # beside the boxes
    for agent, label in enumerate(axes.get_yticklabels()):
        colour = agent_colour(agent)
        label.set(color=text_colour(colour), bbox={"facecolor": colour, "edgecolor": "none", "pad": 2.5})


def _list_stretches(timeline: "Timeline", agent: int) -> list[tuple[str, float, float]]:
    """The stretches of time in which an agent stands alike: how, from when, until when."""
    found = [one for one in timeline.standings if one.agent == agent]
    ends = [*(one.seconds for one in found[1:]), timeline.seconds]
    named = [(SAME.get(one.standing, one.standing), one.seconds, end) for one, end in zip(found, ends, strict=True)]
    return [(name, begin, end) for name, begin, end in named if name in STANDINGS and end > begin]


def _list_handles(timeline: "Timeline", memberships: bool) -> list[Any]:
    """The entries of the legend, as far as they are drawn."""
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    used = {name for agent in range(timeline.agents) for name, _, _ in _list_stretches(timeline, agent)}
    shown = [look for name, look in STANDINGS.items() if name in used]
    handles: list[Any] = [Patch(color=colour, label=label) for colour, label in shown]
    if memberships:
        handles.append(Line2D([], [], color="black", linestyle="--", linewidth=1, label="new membership"))
    if timeline.events:
        handles.append(Line2D([], [], color=EVENT_COLOUR, linewidth=3, label="event"))
    return handles
