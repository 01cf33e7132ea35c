"""Pictures of a topology: the agents' graph beside the spectrum of C, and sparsity against 1 - gamma (Fig. 2)."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from gossamer.report.style import COLOURS, agent_colour, save_figure, text_colour, tidy
from gossamer.topology import Certificate, Sweep

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

NEEDED, ADDED, DROPPED = COLOURS["distributed"], COLOURS["centralised"], COLOURS["graphless"]


def draw_topology(
    path: Path, certificate: Certificate, shared_edges: NDArray[np.float64], title: str, relays: bool = False
) -> None:
    """Draw the agents on a circle with their links, wider for more shared edges, beside the spectrum of C; edges of
    agents without a link are relayed or dropped."""
    from matplotlib.figure import Figure

    m = certificate.num_agents
    figure = Figure(figsize=(11, 5.4), layout="constrained")
    graph, spectrum = figure.subplots(1, 2, width_ratios=(1.15, 1))
    _draw_links(graph, certificate, shared_edges, "relayed" if relays else "needed, but missing")
    found = certificate.assumptions.spectral_radius
    spectrum.plot(range(1, m + 1), certificate.spectrum, "o", color=NEEDED, markersize=max(2.0, 6 - m / 100))
    spectrum.axhspan(-found, found, color=NEEDED, alpha=0.12, label=f"spectral radius {found:.3f}")
    if certificate.design is not None:
        gap = certificate.design.gap
        radius = 1 - gap
        for value in (-radius, radius):
            line = spectrum.axhline(value, color=ADDED, linestyle="--", linewidth=1.2)
        line.set_label(rf"$\pm(1 - \gamma)$, $\gamma$ = {gap:g}")
    spectrum.set(
        title="Spectrum of C",
        xlabel="eigenvalues in ascending order",
        ylabel="eigenvalue",
        ylim=(min(-1.05, certificate.spectrum[0] - 0.05), 1.1),
    )
    spectrum.xaxis.get_major_locator().set_params(integer=True)
    spectrum.legend(frameon=False, loc="lower right")
    tidy(spectrum)
    figure.suptitle(f"{title}, {m} agents")
    save_figure(figure, path)


def _draw_links(axes: "Axes", certificate: Certificate, shared_edges: NDArray[np.float64], absent: str) -> None:
    from matplotlib.collections import LineCollection
    from matplotlib.lines import Line2D

    m = certificate.num_agents
    angle = np.pi / 2 - 2 * np.pi * np.argsort(_circle_order(certificate.links)) / m
    places = np.stack([np.cos(angle), np.sin(angle)], axis=1)
    links, needed = certificate.links, certificate.needed_links
    weight = abs(certificate.combination)
    kinds = (
        (needed & ~links, DROPPED, ":", np.full((m, m), 1.0), absent),
        (
            certificate.added_links,
            ADDED,
            (0, (4, 2)),
            0.6 + 2.4 * weight / max(weight[links].max(initial=0.0), 1e-300),
            "added",
        ),
        (links & needed, NEEDED, "-", 0.8 + 5.2 * np.sqrt(shared_edges / max(shared_edges.max(), 1e-300)), "needed"),
    )
    crowd = min(1.0, 150 / max(1, links.sum() / 2))  # many links are drawn fainter and thinner
    for chosen, colour, style, width, _ in kinds:
        k, z = np.nonzero(np.triu(chosen, 1))
        axes.add_collection(
            LineCollection(
                np.stack([places[k], places[z]], axis=1).tolist(),
                colors=colour,
                linestyles=[style],
                linewidths=width[k, z] * max(0.25, crowd),
                alpha=0.35 + 0.4 * crowd,
            )
        )
    paint = [agent_colour(agent) for agent in range(m)]
    axes.scatter(places[:, 0], places[:, 1], s=max(12, 420 - 9 * m), color=paint, edgecolors="white", zorder=3)
    if m <= 40:
        look: dict[str, Any] = {"ha": "center", "va": "center", "fontsize": 9 if m <= 25 else 6, "zorder": 4}
        for agent, (x, y) in enumerate(places):
            axes.annotate(str(agent), (x, y), color=text_colour(paint[agent]), **look)
    handles = [
        Line2D([], [], color=colour, linestyle=style, linewidth=2, label=f"{label} ({int(chosen.sum()) // 2})")
        for chosen, colour, style, _, label in reversed(kinds)
        if chosen.any()
    ]
    axes.set(
        title="Links (width: shared data edges; if added, weight)",
        xlim=(-1.15, 1.15),
        ylim=(-1.2, 1.15),
        aspect="equal",
    )
    axes.axis("off")
    axes.legend(handles=handles, frameon=False, loc="upper center", bbox_to_anchor=(0.5, 0.03), ncols=3)


def _circle_order(links: NDArray[np.bool_]) -> NDArray[np.int64]:
    """Order of the agents on the circle, neighbours near each other: by angle in the two smoothest nonconstant
    eigenvectors of the Laplacian (spectral layout)."""
    m = len(links)
    if m < 4 or links.sum() == m * (m - 1):
        return np.arange(m)
    laplacian = np.diag(links.sum(1)) - links.astype(np.float64)
    _, vectors = np.linalg.eigh(laplacian)
    return np.asarray(np.argsort(np.arctan2(vectors[:, 2], vectors[:, 1]), kind="stable"))


def draw_sweep(path: Path, sweep: Sweep) -> None:
    """Draw Fig. 2: the fraction of zero entries of C against 1 - gamma, with the minimally connected limit."""
    figure, axes = _sparsity_axes()
    axes.axhline(
        100 * sweep.limit_sparsity, color=ADDED, linestyle="--", linewidth=1.2, label="minimally connected network"
    )
    if sweep.limit_radius is not None:
        axes.axvline(
            sweep.limit_radius,
            color=DROPPED,
            linestyle=":",
            linewidth=1.2,
            label="the needed links suffice from here on",
        )
    axes.plot(
        [point.radius for point in sweep.points],
        [100 * point.sparsity for point in sweep.points],
        "o-",
        color=NEEDED,
        label="designed by Algorithm 2",
    )
    axes.set_title(f"{sweep.name}, {sweep.agents} agents")
    axes.set_ylim(bottom=0)
    axes.legend(frameon=False, loc="upper left", bbox_to_anchor=(0.0, 0.9))
    save_figure(figure, path)


def _sparsity_axes() -> "tuple[Figure, Axes]":
    """Empty plot of sparsity against 1 - gamma."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(6.4, 4.2), layout="constrained")
    axes = figure.subplots()
    axes.set(xlabel=r"$1 - \gamma$", ylabel="zero entries of C [%]", xlim=(0, 1))
    tidy(axes)
    return figure, axes


def draw_sweeps(out: Path, sweeps: Sequence[Sweep]) -> None:
    """Draw Fig. 2 over several random A: the mean, and the standard deviation as a band."""
    radii = [point.radius for point in sweeps[0].points]
    sparsity = 100 * np.array([[point.sparsity for point in made.points] for made in sweeps])
    mean, deviation = sparsity.mean(0), sparsity.std(0)
    limit = 100 * float(np.mean([made.limit_sparsity for made in sweeps]))
    figure, axes = _sparsity_axes()
    axes.axhline(limit, color=ADDED, linestyle="--", linewidth=1.2, label="minimally connected network, mean")
    axes.fill_between(radii, mean - deviation, mean + deviation, color=NEEDED, alpha=0.2, linewidth=0)
    axes.plot(radii, mean, "o-", color=NEEDED, label=f"designed by Algorithm 2, {len(sweeps)} random A")
    axes.set_ylim(bottom=0)
    axes.legend(frameon=False, loc="lower right")
    for suffix in ("png", "pdf"):
        save_figure(figure, out / f"fig2.{suffix}")
