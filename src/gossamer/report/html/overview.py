"""The head of a report: what was trained, how well, beside its references, and the numbers that matter."""

from collections.abc import Mapping

from gossamer.machine import as_size
from gossamer.report.html.facts import RunFacts
from gossamer.report.html.held_out import HeldOut
from gossamer.report.html.markup import (
    MINUS,
    Content,
    Markup,
    PageSection,
    concatenate,
    note,
    paragraph,
    render,
    show_code,
    show_score,
    tabulate,
    unfold,
)
from gossamer.report.score_text import label_score
from gossamer.report.style import LABELS
from gossamer.runs.stored_results import MaskTable, StoredSummary

SCORES_IN_POINTS = ("accuracy", "macro_f1", "micro_f1", "roc_auc", "average_precision", "r2")  # differ by points
LOWER_IS_BETTER = ("loss", "mse", "mae", "rmse")
MASK_NAMES = ("train", "validation", "test")
KIND_TEXTS = {
    "train": "a run of gossamer train, cluster or gather",
    "launch": "a run of gossamer launch, one process an agent",
    "cluster": "a run of gossamer cluster on shares that were cut for its ranks",
    "gather": "a run of peers, gathered",
    "peer": "the folder of one agent",
}
NOT_FINISHED = "Not finished"


def summarise_run(facts: RunFacts, held_out: HeldOut | None) -> PageSection:
    """Scores of the three models with their differences, and key numbers."""
    models, score = list_models(facts.summary), facts.score
    body = [_describe_state(facts), *map(note, facts.problems), _tile(facts, held_out)]
    if facts.settings.privacy != "none":
        body.append(note(f"Differential privacy: {facts.settings.privacy}."))
    own = {} if facts.summary.own is None else {"own": facts.summary.own}
    if "distributed" in models:
        body += [
            paragraph(Markup(f"<strong>{_say_result(models, score)}</strong>")),
            _tabulate_scores(models | own, score),
        ]
        body.append(unfold("Other scores on the test set", _tabulate_others(models, score)))
    elif own:
        body.append(_tabulate_scores(own, score))
    else:
        body.append(note("There are no scores yet: they are measured when the run ends."))
    return PageSection("summary", "Summary", concatenate(*body))


def list_models(summary: StoredSummary) -> dict[str, MaskTable]:
    """The models that were scored, by name."""
    found = {name: getattr(summary, name) for name in LABELS}
    return {name: table for name, table in found.items() if table is not None}


def read_score(table: MaskTable, mask: str, score: str) -> float | None:
    """A model's score on a mask; None if it was not measured."""
    found: float | None = getattr(getattr(table, mask), score, None)
    return found


def format_difference(score: str, value: float | None, other: float | None) -> str:
    """The distance of a score from another: in points, or relative to it for errors and losses."""
    if value is None or other is None:
        return "\N{EN DASH}"
    if score in SCORES_IN_POINTS:
        return f"{_sign(100 * (value - other), 2)} points"
    return "\N{EN DASH}" if not other else f"{_sign(100 * (value - other) / abs(other), 1)} %"


def _sign(value: float, digits: int) -> str:
    text = f"{abs(value):.{digits}f}"
    return text if not float(text) else f"{'+' if value > 0 else MINUS}{text}"


def _say_result(models: Mapping[str, MaskTable], score: str) -> str:
    own = read_score(models["distributed"], "test", score)
    if own is None:
        return "The score on the test set was not measured."
    parts = [f"{capitalise(label_score(score))} on the test set: {show_score(score, own)}"]
    others = {"centralised": "the centralised network", "graphless": "the network without the graph"}
    for name, words in others.items():
        other = read_score(models[name], "test", score) if name in models else None
        if other is None:
            continue
        difference = format_difference(score, own, other)
        if not any(digit in "123456789" for digit in difference):
            parts.append(f"the same as {words}")
        else:
            than = f"{'higher' if own > other else 'lower'} than {words}"
            parts.append(f"{difference.lstrip(f'+{MINUS}')} {than}")
    return "; ".join(parts) + "."


def capitalise(text: str) -> str:
    """Text with a capital first letter; others stay as they are."""
    return text[:1].upper() + text[1:]


def _tabulate_scores(models: Mapping[str, MaskTable], score: str) -> str:
    first = next(iter(models))
    rows: list[list[Content]] = []
    for name, table in models.items():
        row: list[Content] = [name_model(name), show_score("loss", table.train.loss)]
        row += [show_score(score, read_score(table, mask, score)) for mask in MASK_NAMES]
        away = format_difference(score, read_score(table, "test", score), read_score(models[first], "test", score))
        row += [] if len(models) == 1 else ["" if name == first else away]
        rows.append(row)
    headings = ["model", "training loss", *(f"{mask} {label_score(score)}" for mask in MASK_NAMES)]
    better = "lower" if score in LOWER_IS_BETTER else "higher"
    return tabulate(
        f"Scores with the weights that were kept ({better} is better)",
        [*headings, *(["test, against distributed"] if len(models) > 1 else [])],
        rows,
    )


def _tabulate_others(models: Mapping[str, MaskTable], score: str) -> str:
    table = next(iter(models.values())).test
    others = [name for name in type(table).model_fields if name not in (score, "loss")]
    others = [name for name in others if any(read_score(one, "test", name) is not None for one in models.values())]
    rows: list[list[Content]] = [
        [name_model(name), *(show_score(other, read_score(one, "test", other)) for other in others)]
        for name, one in models.items()
    ]
    return tabulate("Other scores on the test set", ["model", *map(label_score, others)], rows)


def name_model(name: str) -> Markup:
    """A model's name beside its colour."""
    return Markup(f'<span class="model {name}">{LABELS.get(name, "its own vertices")}</span>')


def _describe_state(facts: RunFacts) -> str:
    if facts.unfinished is None:
        return ""
    done = f"{NOT_FINISHED}: {facts.steps:,} of {facts.settings.steps:,} steps are evaluated or stored."
    return (
        f'<div class="warning" role="status">{paragraph(f"{done} It goes on with")}{show_code(facts.unfinished)}</div>'
    )


def _tile(facts: RunFacts, held_out: HeldOut | None) -> str:
    """Key numbers, large."""
    settings, summary, plan = facts.settings, facts.summary, facts.manifest.plan
    vertices = held_out.num_vertices if held_out is not None else plan.num_vertices if plan is not None else None
    if vertices is None and facts.assignment is not None:
        vertices = len(facts.assignment)
    edges = held_out.num_edges if held_out is not None else plan.num_edges if plan is not None else None
    links = None
    if facts.certificate is not None:
        links = len(facts.certificate.needed_links) + len(facts.certificate.added_links)
    sent = facts.total_bytes
    found = {
        "vertices": None if vertices is None else f"{vertices:,}",
        "data edges": None if edges is None else f"{edges:,}",
        "agents at the end" if facts.changed else "agents": f"{settings.agents:,}",
        "links": None if links is None else f"{links:,}",
        "steps": f"{facts.steps:,}",
        "kept step": None if summary.best_step in (None, facts.steps) else f"{summary.best_step:,}",
        "sent in all": None if sent is None or settings.agents == 1 else as_size(sent),
        "disagreement": None if not summary.disagreement else f"{summary.disagreement:.1e}",
        "time to train": None if not summary.seconds else f"{summary.seconds:.1f} s",
    }
    tiles = [f"<div><dt>{label}</dt><dd>{render(value)}</dd></div>" for label, value in found.items() if value]
    return f'<dl class="tiles">{"".join(tiles)}</dl>'
