"""The certificate of a run's topology, and its messages by phase beside the paper's count."""

from typing import Any

from gossamer.machine import as_size
from gossamer.report.html.agents_part import count_consensus_rounds
from gossamer.report.html.facts import RunFacts
from gossamer.report.html.markup import (
    Content,
    Markup,
    PageSection,
    concatenate,
    draw,
    note,
    show_score,
    tabulate,
    unfold,
)
from gossamer.report.sequence_text import describe_sequence
from gossamer.runs.link_sequences import find_base
from gossamer.topology import TOPOLOGIES

MOST_PAIRS = 60
YES, NO = Markup('<span class="yes">holds</span>'), Markup('<span class="no">does not hold</span>')
PHASE_NAMES = ("forward", "backward", "consensus")


def show_topology(facts: RunFacts) -> PageSection:
    """Proofs and measurements of C."""
    found = facts.certificate
    title = "Topology's certificate"
    if found is None:
        own = "An agent knows its own row of C alone." if facts.kind == "peer" else "It is not in the run directory."
        return PageSection("topology", title, note(own))
    if facts.settings.agents == 1:
        return PageSection("topology", title, note("One agent talks to nobody."))
    holds = {name: YES if yes else NO for name, yes in found.holds.items()}
    gap = facts.settings.gap if found.gap is None and _is_designed(facts) else found.gap
    wanted = "" if gap is None else f", asked for at most {1 - gap:g}"
    needed, added, missing = (len(part) for part in (found.needed_links, found.added_links, found.missing_links))
    rows: list[list[Content]] = [
        [
            "(A1) C is doubly stochastic and symmetric",
            holds.get("A1"),
            f"asymmetry {_short(found.asymmetry)}, row sums differ from 1 by {_short(found.row_error)}",
        ],
        ["(A2) spectral radius of C - 11'/m below 1", holds.get("A2"), f"{_long(found.spectral_radius)}{wanted}"],
        ["(A3) no weight where there is no link", holds.get("A3"), f"largest {_short(found.off_links)}"],
        ["rounds that divide the disagreement by 1000", "", "never" if found.rounds is None else f"{found.rounds}"],
        ["links that the data needs", "", f"{needed}" + (f"; {missing} are missing" if missing else "")],
        ["links added", "", f"{added}"],
        ["data edges kept", "", _percent(facts.summary.edges_kept)],
        ["data edges relayed over agents between", "", _percent(facts.summary.edges_relayed)],
        ["zero entries of C", "", _percent(found.sparsity)],
        ["objective of (29), weight on added links", "", _long(found.objective)],
    ]
    if found.sequence is not None:
        how = describe_sequence(found.sequence.period, found.sequence.contraction, found.sequence.symmetric)
        rows.append(["links that change", "", how])
    if found.lower_bound is not None:
        rows.append(["lower bound, proved", "", _long(found.lower_bound)])
    round_name = "bytes of a consensus round" + (", uncompressed" if facts.settings.compress != "none" else "")
    round_name += ", without trackers" if facts.settings.tracks else ""
    rows.append([round_name, "", as_size(found.bytes_per_round)])
    whose = "of the last membership, as measured before its" if facts.changed else "as measured before the"
    how = f"Topology {facts.settings.topology}, {whose} first step"
    table = tabulate(how, ["certificate", "holds", "measured"], rows, "certificate", (1, 2))
    ids = facts.agent_ids
    pairs = [f"{ids[k]}-{ids[z]}" for k, z in found.added_links]
    shown = " ".join(pairs[:MOST_PAIRS]) + (" ... (all in topology.json)" if len(pairs) > MOST_PAIRS else "")
    return PageSection("topology", title, concatenate(table, unfold("Links added", note(shown)) if pairs else ""))


def _is_designed(facts: RunFacts) -> bool:
    """C was designed for the gap that the settings name, also where the certificate, made anew of a given C, lacks
    it."""
    return TOPOLOGIES[find_base(facts.settings.topology)].design is not None and facts.settings.keep_links == 1.0


def _short(value: float | None) -> str:
    return "unknown" if value is None else f"{value:.1e}"


def _long(value: float | None) -> str:
    return "unknown" if value is None else f"{value:.6g}"


def _percent(value: float | None) -> str:
    return "unknown" if value is None else show_score("accuracy", value)


def show_messages(facts: RunFacts) -> PageSection:
    """Rows and bytes of a step by phase, of the run, as float32 without compression, and as the paper counts."""
    found, title = facts.messages, "Messages"
    if found is None or facts.settings.agents == 1:
        why = "One agent sends none." if facts.settings.agents == 1 else "Messages are counted when the run ends."
        why = "They are counted where all agents' folders are gathered." if facts.kind == "peer" else why
        return PageSection("messages", title, note(why))
    steps, mixed = facts.steps, count_consensus_rounds(facts)
    times = {"forward": steps, "backward": steps, "consensus": mixed}
    rows: list[list[Content]] = []
    for phase in PHASE_NAMES:
        volume = getattr(found, phase)
        plain = getattr(found.plain, phase).bytes
        name = Markup(f'<span class="phase {phase}">{phase}</span>')
        row: list[Content] = [name, volume.rows, as_size(volume.bytes), as_size(plain)]
        row += [found.paper.rows if phase == "forward" else None]
        row += [as_size(found.paper.bytes) if phase == "forward" else None]
        rows.append([*row, *([] if facts.changed else [as_size(volume.bytes * times[phase])])])
    ours = [getattr(found, phase) for phase in PHASE_NAMES]
    whole = sum(volume.bytes * times[phase] for phase, volume in zip(PHASE_NAMES, ours, strict=True))
    plain = sum(getattr(found.plain, phase).bytes for phase in PHASE_NAMES)
    step_bytes = sum(volume.bytes for volume in ours)
    last: list[Content] = ["all", sum(volume.rows for volume in ours), as_size(step_bytes), as_size(plain), None, None]
    rows.append([*last, *([] if facts.changed else [as_size(whole)])])
    plain_name = "float32, no tracker" if facts.settings.tracks else "plain float32"
    headings: list[Content] = ["phase", "rows", "bytes", plain_name, "rows, paper's count", "bytes, paper's count"]
    headings += [] if facts.changed else [f"{steps:,} steps"]
    table = tabulate(f"Messages of {facts.step_name} by phase", headings, rows)
    spec: dict[str, Any] = {
        "title": "Bytes by phase",
        "label": f"of {facts.step_name}, beside the paper's count of the forward phase",
        "rows": [
            {"name": "sent", "values": {phase: getattr(found, phase).bytes for phase in PHASE_NAMES}},
            {"name": plain_name, "values": {phase: getattr(found.plain, phase).bytes for phase in PHASE_NAMES}},
            {"name": "paper's count", "values": {"forward": found.paper.bytes}},
        ],
    }
    remark = note(
        "The paper (Sec. III-B) counts a row for every data edge between two agents, in both directions, in each "
        "propagation of the forward phase. A training step sends less where neighbours share vertices or no training "
        "vertex depends on a row. A row of consensus is one agent's weights"
        f"{', or its tracker' if facts.settings.tracks else ''}, sent to one neighbour. "
        f"{'Float32 without compression is counted without trackers. ' if facts.settings.tracks else ''}"
        f"One evaluation sends {found.evaluation.rows:,} rows ({as_size(found.evaluation.bytes)}) more."
    )
    return PageSection("messages", title, concatenate(draw("bars", spec, "Bytes by phase"), table, remark))
