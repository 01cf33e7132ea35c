"""The agents of a run: a table of what each holds, scores and sends, and their map."""

from collections import Counter

from gossamer.machine import as_size
from gossamer.report.html.facts import RunFacts
from gossamer.report.html.held_out import HeldOut
from gossamer.report.html.markup import (
    Content,
    PageSection,
    concatenate,
    draw,
    name_agent,
    note,
    paragraph,
    show_score,
    tabulate,
)
from gossamer.report.live.layout import place_agents
from gossamer.report.score_text import label_score
from gossamer.runs.stored_results import StoredMessages

MAP_HEIGHT = 440


def show_agents(facts: RunFacts, held_out: HeldOut | None, missing: str | None) -> PageSection:
    """Map and table; `missing` says why there are no scores of agents."""
    m = facts.settings.agents
    if facts.kind == "peer":
        text = f"This is the folder of agent {facts.manifest.agent} of {m}: it knows its own vertices and links alone."
        return PageSection("agents", "Agents", note(text))
    out, back, degree = count_traffic(facts, m)
    vertices = Counter[int]() if facts.assignment is None else Counter(facts.assignment.tolist())
    headings = ["agent", "vertices", "training labels", "neighbours"]
    scored = "" if held_out is None else label_score(held_out.score)
    headings += [f"{mask} {scored}" for mask in ("validation", "test")] if held_out is not None else []
    headings += ["sent", "received"] if facts.messages is not None else []
    rows: list[list[Content]] = []
    for k in range(m):
        own = None if held_out is None else held_out.agents[k]
        row: list[Content] = [name_agent(facts.agent_ids[k]), vertices[k] if facts.assignment is not None else None]
        row += [None if own is None else own.labels, degree[k]]
        if held_out is not None and own is not None:
            row += [show_score(held_out.score, own.scores[mask]) for mask in ("validation", "test")]
        if facts.messages is not None:
            row += [as_size(out[k]), as_size(back[k])]
        rows.append(row)
    span = facts.step_name if facts.changed else f"{facts.steps:,} steps"
    caption = f"Each agent's own vertices, and its bytes of {span}"
    parts = [_map(facts, vertices) if m > 1 else "", tabulate(caption, headings, rows)]
    if held_out is None:
        parts.append(note(f"Agents' scores and labels are missing: {missing}"))
    if m > 1 and facts.messages is not None:
        parts.append(note("Bytes are those of rows and weights while training, without evaluations and framing."))
    return PageSection("agents", "Agents", concatenate(*parts))


def count_traffic(facts: RunFacts, num_agents: int) -> tuple[Counter[int], Counter[int], Counter[int]]:
    """Bytes that each agent sends and receives, as `measure_links` has them, and its number of neighbours."""
    out, back, degree = Counter[int](), Counter[int](), Counter[int]()
    if facts.messages is None:
        for k, z in [] if facts.certificate is None else list_pairs(facts):
            degree.update((k, z))
        return out, back, degree
    for link, sent in measure_links(facts, facts.messages).items():
        sender, receiver = link
        out[sender] += sent
        back[receiver] += sent
        degree[sender] += 1
    return out, back, degree


def measure_links(facts: RunFacts, messages: StoredMessages) -> dict[tuple[int, int], int]:
    """Bytes of the whole run by sender and receiver; of one step with a consensus where agents left or joined."""
    steps, mixed = (1, 1) if facts.changed else (facts.steps, count_consensus_rounds(facts))
    return {
        (one.sender, one.receiver): (one.forward_bytes + one.backward_bytes) * steps + one.consensus_bytes * mixed
        for one in messages.links
    }


def count_consensus_rounds(facts: RunFacts) -> int:
    """Number of consensus rounds of the run."""
    every = facts.settings.consensus_every
    return facts.steps // every if every else 0


def list_pairs(facts: RunFacts) -> list[tuple[int, int]]:
    """Pairs of agents that talk, by the certificate."""
    if facts.certificate is None:
        return []
    return [(k, z) for k, z in (*facts.certificate.needed_links, *facts.certificate.added_links)]


def _map(facts: RunFacts, vertices: "Counter[int]") -> str:
    m = facts.settings.agents
    sent = {} if facts.messages is None else measure_links(facts, facts.messages)
    both: Counter[tuple[int, int]] = Counter()
    for (k, z), count in sent.items():
        both[min(k, z), max(k, z)] += count
    for pair in list_pairs(facts):
        both[min(pair), max(pair)] += 0
    added = {(k, z) for k, z in (facts.certificate.added_links if facts.certificate is not None else [])}
    ids = facts.agent_ids
    agents = [
        {"agent": ids[k], "state": "finished", "facts": [["vertices", f"{vertices[k]:,}"]] if vertices else []}
        for k in range(m)
    ]
    links = [
        {"ends": [ids[k], ids[z]], "bytes": count} | ({"added": True} if (k, z) in added else {})
        for (k, z), count in sorted(both.items())
    ]
    positions = place_agents(ids, [(ids[k], ids[z]) for k, z in both])
    spec = {"title": "Map", "agents": agents, "links": links, "positions": positions, "height": MAP_HEIGHT}
    words = f"{m} agents and {len(both)} links, each as wide as its bytes in both directions"
    words += f" in {facts.step_name}" if facts.changed else ""
    words += f"; {len(added)} dashed ones were added to what the data needs" if added else ""
    return draw("map", spec, words) + paragraph(f"{words[0].upper()}{words[1:]}.", "note")
