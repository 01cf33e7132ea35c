"""Memberships of a run whose agents left and joined, and what happened to them; what an audit of a run found."""

from base64 import b64encode
from html import escape
from pathlib import Path

from gossamer.files import read_bytes
from gossamer.report.html.facts import MAX_PICTURE_BYTES, RunFacts
from gossamer.report.html.markup import (
    Content,
    PageSection,
    concatenate,
    list_agents_as_text,
    name_agent,
    note,
    tabulate,
)

REVEALED = {
    "exact": "weights",
    "approximate": "weights, nearly",
    "noisy": "weights with noise",
    "hidden": "nothing but its own",
    "none": "nothing",
}


def show_memberships(facts: RunFacts) -> PageSection | None:
    """Memberships and events; None of a run whose agents stayed the same."""
    found = facts.memberships
    if not found:
        return None
    rows: list[list[Content]] = [
        [
            one.number,
            list_agents_as_text(one.members),
            one.from_step,
            None if one.seconds is None else f"{one.seconds:.1f} s",
            None if one.stopped is None else f"{one.stopped:.1f} s",
        ]
        for one in found
    ]
    parts = [
        tabulate(
            "Memberships",
            ["membership", "agents", "from step", "went on after", "nobody stepped for"],
            rows,
            text_columns=(1,),
        )
    ]
    timeline = facts.timeline
    if timeline is not None and timeline.events:
        events: list[list[Content]] = [[f"{one.seconds:.1f} s", one.step, one.text] for one in timeline.events]
        parts.append(tabulate("What happened", ["after", "step", "event"], events, text_columns=(2,)))
    if timeline is not None and timeline.missed:
        parts.append(note(f"Not reached: {'; '.join(timeline.missed)}."))
    picture = facts.pictures.get("memberships")
    if picture is not None:
        text = "Validation score above a row for each agent, over the seconds of the run"
        parts.insert(0, embed_picture(picture, text))
    return PageSection("memberships", "Memberships and timeline", concatenate(*parts))


def show_findings(facts: RunFacts) -> PageSection | None:
    """Results of the last audit of the run directory; None if there was none."""
    found = facts.audit
    if found is None:
        return None
    who = ", ".join(map(str, found.observers))
    one = len(found.observers) == 1
    last = facts.settings.steps
    at = f" Audited at step {found.steps:,} of {last:,}." if found.steps != last else ""
    parts = [
        note(f"What {'agent' if one else 'the coalition of agents'} {who} could learn about the others' vertices.{at}")
    ]
    rows: list[list[Content]] = [
        [
            name_agent(z.agent),
            z.boundary_vertices,
            z.alone,
            z.in_sums,
            f"{z.rank} of {found.features}",
            z.identifiable_vertices,
            z.boundary_labels,
            REVEALED.get(z.weights, z.weights),
        ]
        for z in found.neighbours
    ]
    headings = [
        "about agent",
        "boundary vertices",
        "alone",
        "in sums",
        "rank",
        "identifiable",
        "labels",
        "consensus reveals",
    ]
    parts.append(tabulate("By neighbour", headings, rows, text_columns=(7,)))
    parts.append(f"<ul>{''.join(f'<li>{escape(line)}</li>' for line in found.findings)}</ul>")
    picture = facts.pictures.get("reconstructions")
    if picture is not None:
        parts.append(embed_picture(picture, "Features beside their reconstructions"))
    return PageSection("audit", "What the audit found", concatenate(*parts))


def embed_picture(path: Path, caption: str, most: int = MAX_PICTURE_BYTES) -> str:
    """A PNG inside the page, or its name if it is too large or no PNG."""
    if path.stat().st_size > most:
        return note(f"{caption}: {path.name} in the folder is too large to stand here.")
    content = read_bytes(path, most)
    if not content.startswith(b"\x89PNG\r\n\x1a\n"):
        return note(f"{caption}: {path.name} is no PNG file.")
    data = b64encode(content).decode()
    words = escape(caption)
    image = f'<img alt="{words}" src="data:image/png;base64,{data}">'
    return f'<figure class="picture">{image}<figcaption>{words}</figcaption></figure>'
