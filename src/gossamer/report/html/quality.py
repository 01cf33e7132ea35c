"""Quality of the predictions: a confusion matrix, counts of each label, or errors of real values."""

from html import escape

from gossamer.array_types import Ints
from gossamer.report.html.held_out import Errors, HeldOut
from gossamer.report.html.markup import (
    MINUS,
    Content,
    Markup,
    PageSection,
    concatenate,
    draw,
    note,
    render,
    show_score,
    tabulate,
    unfold,
)

MOST_CLASS_COLUMNS = 40  # of a confusion matrix; of more classes each has a row of counts only
SHADES = 10


def show_quality(held_out: HeldOut | None, missing: str | None) -> PageSection:
    """The section of the run's task; `missing` says why there are no predictions."""
    task = None if held_out is None else held_out.task
    title = {"multiclass": "Confusion matrix", "multilabel": "Labels", "regression": "Errors"}.get(
        task or "", "Predictions"
    )
    if held_out is None:
        return PageSection("predictions", title, note(f"Missing, because there are no predictions: {missing}"))
    parts: list[str] = []
    for mask, counts in held_out.confusions.items():
        parts.append(unfold(f"{mask.capitalize()} vertices", _confusion(counts, held_out.classes, mask), not parts))
    for mask, counts in held_out.labels.items():
        parts.append(unfold(f"{mask.capitalize()} vertices", _labels(counts, held_out.classes, mask), not parts))
    for mask, errors in held_out.errors.items():
        parts.append(unfold(f"{mask.capitalize()} examples", _errors(errors, mask), not parts))
    how = note("Predicted now with the weights of the run directory, each vertex with its own agent's.")
    return PageSection("predictions", title, concatenate(how, *parts) if parts else note("No mask holds vertices out."))


def _confusion(counts: Ints, classes: list[str], mask: str) -> str:
    """Counts with a shade by the share of the row, then recall and precision of each class."""
    actual, found, right = counts.sum(1), counts.sum(0), counts.diagonal()
    rows: list[list[Content]] = []
    for c, name in enumerate(classes):
        recall = right[c] / actual[c] if actual[c] else None
        precision = right[c] / found[c] if found[c] else None
        row: list[Content] = [name]
        if len(classes) <= MOST_CLASS_COLUMNS:
            row += [_shade(int(count), int(actual[c]), c == other) for other, count in enumerate(counts[c])]
        row += [int(actual[c])]
        row += [None if share is None else show_score("accuracy", float(share)) for share in (recall, precision)]
        rows.append(row)
    columns = list(map(_name_column, classes)) if len(classes) <= MOST_CLASS_COLUMNS else []
    caption = f"{mask.capitalize()} vertices: rows are actual classes, columns predicted ones"
    table = tabulate(caption, ["actual \\ predicted", *columns, "vertices", "recall", "precision"], rows, "confusion")
    return table if columns else note(f"{len(classes)} classes are too many for a matrix.") + table


def _name_column(name: str) -> Markup:
    """A class above its column, cut off where it is long."""
    return Markup(f'<span class="class" title="{escape(name)}">{escape(name)}</span>')


def _shade(count: int, whole: int, right: bool) -> Markup:
    share = count / whole if whole else 0.0
    shade = f"s{round(share * SHADES)}" if count else "s0"
    title = f"{show_score('accuracy', share)} of the row"
    return Markup(f'<span class="{shade}{" right" * right}" title="{title}">{render(count)}</span>')


def _labels(counts: Ints, classes: list[str], mask: str) -> str:
    rows: list[list[Content]] = []
    for name, (both, alarm, miss, neither) in zip(classes, counts.tolist(), strict=True):
        whole = 2 * both + alarm + miss
        rows.append([name, both, alarm, miss, neither, show_score("f1", 2 * both / whole) if whole else None])
    headings = ["label", "found", "false alarms", "missed", "rightly left out", "F1"]
    return tabulate(f"{mask.capitalize()} vertices with each label", headings, rows)


def _errors(errors: Errors, mask: str) -> str:
    rows: list[list[Content]] = [
        [mask, errors.count, f"{errors.mae:.4g}", f"{errors.rmse:.4g}", f"{errors.bias:+.3g}".replace("-", MINUS)]
    ]
    table = tabulate(
        "Errors: prediction minus target, in the units of the targets",
        ["examples", "numbers", "mean absolute", "root mean square", "mean (bias)"],
        rows,
    )
    ends = [*map(float, errors.heights), 0.0]
    steps = [(float(f"{x:.5g}"), y) for x, y in zip(errors.edges, ends, strict=True)]
    reach = max(errors.edges)
    histogram = {
        "title": "Errors",
        "label": "how many predictions miss by how much",
        "series": [{"name": "predictions", "colour": "var(--distributed)", "points": steps, "steps": True}],
        "yRange": [0, max(errors.heights)],
        "xRange": [-reach, reach],
        "xName": "error",
        "xFormat": "number",
        "format": "count",
        "height": 230,
    }
    points = sorted((float(f"{y:.5g}"), float(f"{z:.5g}")) for y, z in errors.points)
    low, high = min(y for y, _ in points), max(y for y, _ in points)
    scatter = {
        "title": "Predictions",
        "label": "against targets",
        "series": [
            {"name": "prediction", "colour": "var(--distributed)", "points": points, "marks": True},
            {"name": "exact", "colour": "var(--graphless)", "points": [(low, low), (high, high)], "dash": "5 4"},
        ],
        "xName": "target",
        "xFormat": "number",
        "height": 230,
    }
    charts = draw("chart", histogram, "Histogram of the errors", "distribution")
    charts += draw("chart", scatter, "Predictions against targets", "distribution")
    few = len(points) < errors.count
    some = note("The outermost bars hold all errors beyond them.")
    some += note(f"The scatter plot has {len(points)} of {errors.count:,} numbers.") if few else ""
    return table + f'<div class="charts">{charts}</div>' + some
