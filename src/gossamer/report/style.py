"""The house style of all pictures, pages and reports: colours of models and agents, plain axes, resolution.

Models have colours of Okabe and Ito (2008), Color universal design; agents those of Tol (2021), Colour schemes (SRON
technical note), "muted". No model shares its colour with an agent, both can be told apart by colour-blind readers, and
an agent's number stands beside its colour, because colours come again.
"""

import io
from pathlib import Path
from typing import TYPE_CHECKING

from gossamer.files import ALL_MAY_READ, write_atomically

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

COLOURS = {"distributed": "#0072B2", "centralised": "#D55E00", "graphless": "#7F7F7F"}
LABELS = {"distributed": "distributed", "centralised": "centralised", "graphless": "graph-less"}
# Of whole runs beside each other, of Okabe and Ito as well.
RUN_COLOURS = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00")
# Of messages by phase, of Okabe and Ito as well; they stand in pictures of bytes, where no model does.
PHASE_COLOURS = {
    "forward": "#56B4E9",
    "backward": "#E69F00",
    "consensus": "#009E73",
    "evaluation": "#CC79A7",
    "protocol": "#999999",
}
AGENT_COLOURS = (
    "#332288",
    "#88CCEE",
    "#44AA99",
    "#117733",
    "#999933",
    "#DDCC77",
    "#CC6677",
    "#882255",
    "#AA4499",
)
DARK = 0.5  # relative luminance below which white text is read better than black
DPI = 150


def agent_colour(agent: int) -> str:
    """The colour of an agent, by its id, in every picture, page and report."""
    return AGENT_COLOURS[agent % len(AGENT_COLOURS)]


def text_colour(background: str) -> str:
    """Black or white, whichever is read better on a colour (luminance weights of ITU-R BT.709)."""
    red, green, blue = (int(background[place : place + 2], 16) / 255 for place in (1, 3, 5))
    return "#ffffff" if 0.2126 * red + 0.7152 * green + 0.0722 * blue < DARK else "#000000"


def tidy(*plots: "Axes") -> None:
    """Give plots a faint grid and no frame."""
    for axes in plots:
        axes.grid(alpha=0.25)
        axes.spines[["top", "right"]].set_visible(False)


def save_figure(figure: "Figure", path: Path, mode: int = ALL_MAY_READ) -> None:
    """Render a figure to a PNG (or PDF, by the suffix) beside `path` and rename it."""
    buffer = io.BytesIO()
    if path.suffix == ".pdf":
        from matplotlib.backends.backend_pdf import FigureCanvasPdf

        FigureCanvasPdf(figure).print_pdf(buffer, metadata={"CreationDate": None})
    else:
        from matplotlib.backends.backend_agg import FigureCanvasAgg

        figure.set_dpi(DPI)
        FigureCanvasAgg(figure).print_png(buffer, metadata={"Software": None})
    write_atomically(path, buffer.getvalue(), mode)
