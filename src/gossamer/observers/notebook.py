"""Progress in a notebook: one table that is updated in place."""

from collections.abc import Callable
from html import escape

from gossamer.observers.plain_lines import describe_record
from gossamer.runs.observers import Observer
from gossamer.runs.records import Record


def make_notebook_display() -> Callable[[str, int, int], Observer]:
    """A display, as `gossamer.train` takes it: a row for each model with its last evaluation.

    Outside of IPython the evaluations are printed line by line.
    """
    try:
        from IPython import get_ipython
        from IPython.display import HTML, display
    except ImportError:
        return _print_lines
    if get_ipython() is None:
        return _print_lines
    rows: dict[str, str] = {}
    handle = display(HTML(""), display_id=True)

    def show(model: str, first: int, last: int) -> Observer:
        def update(record: Record) -> None:
            rows[model] = _make_row(model, record, last)
            handle.update(HTML(f"<table>{''.join(rows.values())}</table>"))

        return Observer(on_record=update)

    return show


def _print_lines(model: str, first: int, last: int) -> Observer:
    return Observer(on_record=lambda record: print(f"{model}: {describe_record(record, last)}"))


def _make_row(model: str, record: Record, last: int) -> str:
    bar = f'<progress value="{record["step"]}" max="{last}"></progress>'
    return f"<tr><td>{escape(model)}</td><td>{bar}</td><td>{escape(describe_record(record, last))}</td></tr>"
