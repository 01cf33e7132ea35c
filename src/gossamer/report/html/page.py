"""A whole report as one HTML file: its sections, a table of contents, style sheets and scripts, and nothing from
elsewhere."""

from base64 import b64encode
from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import sha256
from html import escape

from gossamer.report.html.markup import PageSection
from gossamer.report.style import AGENT_COLOURS, RUN_COLOURS
from gossamer.report.web.assets import inline_scripts, inline_styles, read_asset


@dataclass(frozen=True)
class PageHead:
    """The head of a page, above its sections."""

    title: str
    lead: str  # a line below the title


def write_page(head: PageHead, sections: Sequence[PageSection]) -> str:
    """The HTML of a report. A browser runs its own scripts alone, and loads nothing."""
    style = "\n".join([inline_styles(), read_asset("report.css"), _colour_classes()])
    script = "\n".join([inline_scripts(), read_asset("report.js")])
    policy = "; ".join(
        [
            "default-src 'none'",
            f"style-src '{_digest(style)}'",
            f"script-src '{_digest(script)}'",
            "img-src data:",
            "base-uri 'none'",
            "form-action 'none'",
        ]
    )
    contents = "".join(f'<li><a href="#{one.id}">{escape(one.title)}</a></li>' for one in sections)
    body = "\n".join(
        f'<section class="card" id="{one.id}" aria-labelledby="{one.id}-title">'
        f'<h2 id="{one.id}-title">{escape(one.title)}</h2>{one.body}</section>'
        for one in sections
    )
    return f"""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{policy}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="referrer" content="no-referrer">
<title>{escape(head.title)}</title>
<link rel="icon" href="data:,">
<style>{style}</style>
</head>
<body>
<a class="skip" href="#main">Skip to the content</a>
<div class="page report">
<header>
<p class="brand">Gossamer report</p><h1>{escape(head.title)}</h1><p class="quiet">{escape(head.lead)}</p>
</header>
<nav class="contents" aria-label="Contents"><ol>{contents}</ol></nav>
<main id="main">
{body}
</main>
</div>
<script>{script}</script>
</body>
</html>
"""


def _digest(text: str) -> str:
    """Name of an inline style or script in a content security policy."""
    return f"sha256-{b64encode(sha256(text.encode()).digest()).decode()}"


def _colour_classes() -> str:
    """Classes of agents and runs by their colours, as a policy without inline styles wants them."""
    agents = [f".a{n} {{ --own: var(--agent-{n}); --on-own: var(--on-agent-{n}); }}" for n in range(len(AGENT_COLOURS))]
    runs = [f".run{n} {{ --own: var(--run-{n}); }}" for n in range(len(RUN_COLOURS))]
    values = [f"  --run-{n}: {colour};" for n, colour in enumerate(RUN_COLOURS)]
    return "\n".join([":root {", *values, "}", *agents, *runs, ""])
