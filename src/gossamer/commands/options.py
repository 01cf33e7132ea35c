"""Command-line options: one for each setting, and those that several commands share."""

import inspect
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import Annotated, Any, Literal, get_args, get_origin

import typer

from gossamer.choices import ASSIGNMENT_NAMES, DATASET_NAMES, LAYER_NAMES, NORM_NAMES, TOPOLOGY_NAMES, Choices
from gossamer.runs.settings import Settings

Complete = Callable[[str], list[str]]


def complete_names(names: Choices[Any]) -> Complete:
    """Make a shell complete the names that a setting takes, as far as they begin with what is typed."""

    def complete(incomplete: str) -> list[str]:
        return [str(name) for name in names.names if str(name).startswith(incomplete)]

    return complete


Dataset = Annotated[
    str | None,
    typer.Argument(
        metavar="DATASET",
        autocompletion=complete_names(DATASET_NAMES),
        show_default=False,
        help=f"{', '.join(DATASET_NAMES.describe())}, an .npz file, a folder of CSV tables, or a settings file "
        "(.toml). [dim]\\[default: digits][/]",
    ),
]
RunDirectory = Annotated[
    Path | None,
    typer.Option(help="Run directory to write. [dim]\\[default: runs/NAME-NUMBER][/]", show_default=False),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON object instead of tables.")]
TensorBoard = Annotated[
    Path | None,
    typer.Option(
        "--tensorboard",
        metavar="DIR",
        help="Write losses and evaluations for TensorBoard (pip install 'gossamer\\[tensorboard]').",
        show_default=False,
    ),
]
RecordMessages = Annotated[
    bool,
    typer.Option(
        "--record",
        help="Keep what each agent receives, as far as gossamer audit reads it, in the folder of its run (at most 256 "
        "MB an agent).",
    ),
]
Page = Annotated[
    str | None,
    typer.Option(
        "--page",
        metavar="HOST:PORT",
        help="Show the run live in a browser at this address, such as 127.0.0.1:8080. Beyond this machine the page "
        "asks for a token.",
        show_default=False,
    ),
]
PageTokenFile = Annotated[
    Path | None,
    typer.Option(
        "--page-token-file",
        metavar="FILE",
        help="File with the token that the page asks for. [dim]\\[default: $GOSSAMER_PAGE_TOKEN, or a new one][/]",
        show_default=False,
    ),
]
Metrics = Annotated[
    str | None,
    typer.Option(
        "--metrics",
        metavar="HOST:PORT",
        help="Serve Prometheus metrics of the run at this address (pip install 'gossamer\\[metrics]').",
        show_default=False,
    ),
]
Level = Literal["debug", "info", "warning", "error"]
LogLevel = Annotated[
    Level,
    typer.Option(metavar="LEVEL", help=f"Least level of the log on standard error: {', '.join(get_args(Level))}."),
]

PANELS = {  # of --help, by their first setting: the others follow as in Settings
    "symmetrise": "Data",
    "agents": "Agents and their links",
    "layers": "Network",
    "preset": "Training",
    "compress": "Compression",
    "evaluate_every": "Run",
}
MORE_NAMES: dict[str, Choices[Any]] = {  # of settings whose checks know more than names
    "assignment": ASSIGNMENT_NAMES,
    "topology": TOPOLOGY_NAMES,
    "layers": LAYER_NAMES,
    "norm": NORM_NAMES,
}


def with_settings(*only: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Give a command one option for each setting, or only for some; those that the user sets arrive as `options`."""
    names = only or tuple(name for name in Settings.model_fields if name != "dataset")
    made = [_make_parameter(name) for name in names]

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        own = [p for p in inspect.signature(command).parameters.values() if p.name != "options"]

        @wraps(command)
        def wrapped(*args: Any, **kwargs: Any) -> None:
            options = {p.name: kwargs.pop(p.name) for p in made}
            command(*args, **kwargs, options={name: value for name, value in options.items() if value is not None})

        wrapped.__signature__ = inspect.Signature(own + made)  # type: ignore[attr-defined]
        return wrapped

    return decorate


def _make_parameter(name: str) -> inspect.Parameter:
    """The option of a setting, as a function's parameter."""
    field = Settings.model_fields[name]
    shown = ",".join(map(str, field.default)) if isinstance(field.default, tuple) else field.default
    default = "" if shown is None else f" [dim]\\[default: {shown}][/]"
    word = name.replace("_", "-")
    flag = f"--{word}"
    kind: Any = field.annotation
    metavar = None
    if get_origin(kind) is tuple:
        kind, metavar = str, "WIDTHS"
    elif _unwrap_optional(kind) is bool:
        default = ""
        flag = f"{flag}/--no-{word}" if field.default is not False else flag
    else:
        metavar = {int: "N", float: "X", str: "NAME"}[_unwrap_optional(kind)]
    names = _find_names(name)
    option = typer.Option(
        flag,
        autocompletion=None if names is None else complete_names(names),
        help=f"{' '.join((field.description or '').split())}{default}",
        metavar=metavar,
        rich_help_panel=_find_panel(name),
        show_default=False,
    )
    return inspect.Parameter(
        name,
        inspect.Parameter.KEYWORD_ONLY,
        default=None,
        annotation=Annotated[kind | None, option],
    )


def _find_names(name: str) -> Choices[Any] | None:
    """The names that a setting takes, by the check that it has; others than these are files or forms with numbers."""
    checks = (getattr(part, "func", None) for part in Settings.model_fields[name].metadata)
    known = [owner for check in checks if isinstance(owner := getattr(check, "__self__", None), Choices)]
    return known[0] if known else MORE_NAMES.get(name)


def _find_panel(name: str) -> str:
    """Title of a setting's panel: the last that begins before it."""
    names = list(Settings.model_fields)
    return [PANELS[first] for first in names[: names.index(name) + 1] if first in PANELS][-1]


def _unwrap_optional(annotation: Any) -> Any:
    """The type inside `X | None`."""
    return next((part for part in get_args(annotation) if part is not type(None)), annotation)
