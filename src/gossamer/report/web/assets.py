"""Style sheets and scripts of pages and reports, with the colours of the house style (report/style.py).

Scripts define `window.gossamer`; each function is described at its head in its file:
    core.js      gossamer.node, gossamer.shape: HTML and SVG elements; gossamer.bytes, .number, .percent, .seconds: text
    charts.js    gossamer.chart(element, spec): lines with a read-out by mouse, touch and keyboard
    map.js       gossamer.map(element, spec): agents and their links; gossamer.mapOf(view): the spec of a RunView
    bars.js      gossamer.bars(element, spec): stacked bars, such as bytes by phase
    report.js    draws what a report asks for by the functions above; report.css lays reports out
They insert what they are given as text, never as HTML. `house.css` has light and dark mode.

A page that is one file has `inline_styles()` in a <style> and `inline_scripts()` in a <script> at the end of its
<body>, before scripts of its own; data goes there through `as_script_json`.
"""

import json
import math
from pathlib import Path
from typing import Any

from gossamer.report.style import AGENT_COLOURS, COLOURS, PHASE_COLOURS, text_colour

FOLDER = Path(__file__).parent
STYLES = ("colours.css", "house.css")
SCRIPTS = ("core.js", "charts.js", "map.js", "bars.js")


def read_asset(name: str) -> str:
    """A style sheet, script or page by its file name; colours.css is generated."""
    return write_colours() if name == "colours.css" else (FOLDER / name).read_text(encoding="utf-8")


def write_colours() -> str:
    """Colours of the house style as CSS variables, such as --distributed, --forward, --agent-3 and --on-agent-3, the
    colour of text on it."""
    named = COLOURS | PHASE_COLOURS
    lines = [f"  --{name}: {colour};" for name, colour in named.items()]
    for place, colour in enumerate(AGENT_COLOURS):
        lines += [f"  --agent-{place}: {colour};", f"  --on-agent-{place}: {text_colour(colour)};"]
    return "\n".join([":root {", f"  --agent-colours: {len(AGENT_COLOURS)};", *lines, "}", ""])


def inline_styles() -> str:
    """All style sheets, for a <style> element."""
    return "\n".join(read_asset(name) for name in STYLES)


def inline_scripts() -> str:
    """All scripts that draw, for a <script> element."""
    return "\n".join(read_asset(name) for name in SCRIPTS)


def as_json(content: Any) -> str:
    """JSON that browsers read: null in the place of numbers that are not finite."""
    try:
        return json.dumps(content, allow_nan=False, separators=(",", ":"))
    except ValueError:
        return json.dumps(_clear(content), allow_nan=False, separators=(",", ":"))


def as_script_json(content: Any) -> str:
    """The same inside a <script> element, which no text in it can end."""
    return as_json(content).replace("<", "\\u003c").replace("&", "\\u0026")


def _clear(content: Any) -> Any:
    if isinstance(content, float):
        return content if math.isfinite(content) else None
    if isinstance(content, dict):
        return {key: _clear(value) for key, value in content.items()}
    return [_clear(value) for value in content] if isinstance(content, (list, tuple)) else content
