"""Turns the settings into command-line options, one for each field; the command line's half of `Settings`."""

import inspect
import types
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import Annotated, Any, Union, get_args, get_origin

import typer

from gossamer.data import DATASETS
from gossamer.runs.settings import Settings

Dataset = Annotated[
    str | None,
    typer.Argument(
        metavar="DATASET",
        show_default=False,
        help=f"{', '.join(DATASETS)} (generated, as in blocks:vertices=1000000,edges=10000000; docs/data.md), an "
        ".npz file, a folder of CSV tables, or a settings file (.toml). "
        "[dim]\\[default: digits][/]",
    ),
]
RunDirectory = Annotated[
    Path | None,
    typer.Option(help="Run directory to write. [dim]\\[default: runs/NAME-NUMBER][/]", show_default=False),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON object instead of tables.")]

PANELS = {
    "Agents and their links": ("agents", "assignment", "topology", "gap", "nonnegative", "mixing", "keep_links"),
    "Network": ("layers", "order", "hidden", "activation", "bias", "dropout", "input_dropout", "shift"),
    "Training": (
        "update",
        "momentum",
        "step_size",
        "step_decay",
        "weight_decay",
        "batch",
        "steps",
        "consensus_every",
        "mix_first",
        "track",
        "initial_deviation",
        "same_initial",
        "seed",
    ),
    "Compression": ("compress", "boundary_bits"),
    "Run": ("evaluate_every", "checkpoint_every", "dtype", "threads", "baselines"),
}


def with_settings(*only: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Give a command one option for each setting, or only for some; what the user sets arrives as `options`."""
    names = only or tuple(name for name in Settings.model_fields if name != "dataset")
    made = [_parameter(name) for name in names]

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        own = [p for p in inspect.signature(command).parameters.values() if p.name != "options"]

        @wraps(command)
        def wrapped(*args: Any, **kwargs: Any) -> None:
            options = {p.name: kwargs.pop(p.name) for p in made}
            command(*args, **kwargs, options={name: value for name, value in options.items() if value is not None})

        wrapped.__signature__ = inspect.Signature(own + made)  # type: ignore[attr-defined]
        return wrapped

    return decorate


def _parameter(name: str) -> inspect.Parameter:
    """The option of a setting, as a function's parameter."""
    field = Settings.model_fields[name]
    panel = next(title for title, names in PANELS.items() if name in names)
    shown = ",".join(map(str, field.default)) if isinstance(field.default, tuple) else field.default
    default = "" if shown is None else f" [dim]\\[default: {shown}][/]"
    word = name.replace("_", "-")
    flag = f"--{word}"
    if _bare(field.annotation) is bool:
        default, metavar = "", None
        flag = f"{flag}/--no-{word}" if field.default is not False else flag
    else:
        metavar = {int: "N", float: "X", str: "NAME"}.get(
            _bare(field.annotation), "WIDTHS" if get_origin(field.annotation) is tuple else "NAME"
        )
    option = typer.Option(
        flag,
        help=f"{' '.join((field.description or '').split())}{default}",
        metavar=metavar,
        rich_help_panel=panel,
        show_default=False,
    )
    return inspect.Parameter(
        name,
        inspect.Parameter.KEYWORD_ONLY,
        default=None,
        annotation=Annotated[_option_type(field.annotation), option],
    )


def _bare(annotation: Any) -> Any:
    """The type inside `X | None`."""
    return (
        next((part for part in get_args(annotation) if part is not type(None)), annotation)
        if get_origin(annotation) in (Union, types.UnionType)
        else annotation
    )


def _option_type(annotation: Any) -> Any:
    """The type that typer parses: choices stay, a tuple of widths is text, the rest may be left out."""
    if get_origin(annotation) is tuple:
        return str | None
    if get_origin(annotation) in (Union, types.UnionType):
        return annotation
    return annotation | None if isinstance(annotation, type) else Union[annotation, None]  # noqa: UP007
