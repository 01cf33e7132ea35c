"""Hook of the site: tables of all settings and all commands, and the names of data sets, made from the program itself.

A page says where: `<!-- settings -->`, `<!-- commands -->` or `<!-- data sets -->`.
"""

import re
from collections.abc import Callable, Iterator
from typing import Any

from mkdocs.structure.pages import Page

from gossamer.cli import COMMANDS, load_command
from gossamer.commands.options import PANELS
from gossamer.data import DATASETS
from gossamer.runs.settings import Settings


def escape(text: str) -> str:
    """Text as a cell of a table: rich's markup and line breaks gone, HTML and bars harmless."""
    plain = re.sub(r"(?<!\\)\[/?[a-z]*\]", "", text).replace("\\[", "[")
    plain = re.sub(r"(gossamer docs \w+)", r"`\1`", plain)
    return escape_html(" ".join(plain.split())).replace("|", "&#124;").replace("*", "\\*")


def escape_html(text: str) -> str:
    return text.replace("&", "&amp;").replace("<", "&lt;")


def list_settings() -> Iterator[str]:
    """A table for each panel of `gossamer train --help`."""
    for name, field in Settings.model_fields.items():
        if name in PANELS or name == "dataset":
            yield f"\n## {PANELS.get(name, 'Data set')}\n"
            yield "| setting | default | what |\n| --- | --- | --- |"
        default = field.default if field.default_factory is None else field.default_factory()  # type: ignore[call-arg]
        shown = "" if default is None else f"`{default}`"
        yield f"| `{name}` | {escape(shown)} | {escape(field.description or '')} |"


def list_commands() -> Iterator[str]:
    """Each command with what it says of itself, its examples, its arguments and its own options."""
    for name, summary in COMMANDS.items():
        command = load_command(name)
        text = (command.help or summary).replace("\f", "").strip()
        examples = [line for line in (command.epilog or "").splitlines() if line.startswith(("gossamer", "torchrun"))]
        yield f"\n## gossamer {name}\n\n{escape_html(text)}\n"
        yield "\n".join(["```text", *examples, "```\n"])
        rows = [row for param in command.params if (row := describe_parameter(param))]
        if rows:
            yield "\n".join(["| argument, option | what |", "| --- | --- |", *rows])
        if any(param.name == "step_size" for param in command.params):
            yield "\nAnd an option for each of the [settings](settings.md)."


def describe_parameter(param: Any) -> str | None:
    """A row for an argument or an option that is no setting."""
    if param.param_type_name == "option" and (param.hidden or param.name in (*Settings.model_fields, "help")):
        return None
    if param.param_type_name == "argument":
        shown = param.metavar or param.name.upper()
    else:
        value = "" if param.is_flag else f" {param.metavar or 'PATH'}"  # what takes anything else says so
        shown = ", ".join([*param.opts, *param.secondary_opts]) + value
    return f"| `{shown}` | {escape(param.help or '')} |"


def list_data_sets() -> Iterator[str]:
    """The names that `gossamer.load` takes."""
    yield ", ".join(f"`{name}`" for name in DATASETS)


TABLES: dict[str, Callable[[], Iterator[str]]] = {
    "settings": list_settings,
    "commands": list_commands,
    "data sets": list_data_sets,
}


def on_page_markdown(markdown: str, page: Page, **rest: Any) -> str:
    """Put the tables in the place of their marks."""
    for name, lines in TABLES.items():
        mark = f"<!-- {name} -->"
        if mark in markdown:
            markdown = markdown.replace(mark, "\n".join(lines()))
    return markdown
