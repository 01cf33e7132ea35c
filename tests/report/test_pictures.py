"""Pictures say what their axes are, tell lines apart, and give each agent its colour."""

from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from matplotlib.colors import to_hex, to_rgb
from matplotlib.figure import Figure

from gossamer import topology
from gossamer.agents.scores import SCORES
from gossamer.experiments import fig4
from gossamer.experiments.trials import Curve
from gossamer.peers.rehearsal.timeline import Timeline
from gossamer.privacy.features import FeatureAttack, Reconstruction
from gossamer.report import agent_graph, curves, panels, reconstructions, timeline
from gossamer.report.style import AGENT_COLOURS, COLOURS, DPI, agent_colour, save_figure
from gossamer.runs.records import Record

Drawn = Callable[[ModuleType], list[Figure]]


@pytest.fixture
def drawn(monkeypatch: pytest.MonkeyPatch) -> Drawn:
    """Keep the figures that a module draws, saved all the same."""

    def watch(module: ModuleType) -> list[Figure]:
        figures: list[Figure] = []

        def keep(figure: Figure, path: Path, *rest: Any) -> None:
            save_figure(figure, path, *rest)
            if path.suffix == ".png":
                assert path.stat().st_size > 1000
                assert figure.get_dpi() == DPI
                figures.append(figure)

        monkeypatch.setattr(module, "save_figure", keep)
        return figures

    return watch


@pytest.fixture
def benchmark_named(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], Any]:
    """Import a module of the benchmarks, whose folder is on the path no longer than a test takes."""
    monkeypatch.syspath_prepend(Path(__file__).parents[2] / "benchmarks")
    return import_module


def history(steps: int, validation: float) -> list[Record]:
    return [
        {
            "step": step,
            "score": "accuracy",
            "train": {"loss": 2.0 / (1 + step), "accuracy": 1.0},
            "validation": {"loss": 3.0 / (1 + step), "accuracy": validation},
            "test": {"loss": 2.5 / (1 + step), "accuracy": 0.8},
            "disagreement": 0.0 if step == 0 else 1e-3,
        }
        for step in range(steps)
    ]


def test_curves_of_a_run_have_labels_and_validation(tmp_path: Path, drawn: Drawn) -> None:
    figures = drawn(curves)
    models = {"distributed": history(5, 0.7), "centralised": history(4, 0.6)}
    curves.draw_curves(tmp_path / "curves.png", models, SCORES["accuracy"], "digits")
    loss, score, apart = figures[0].axes
    assert all(axes.get_xlabel() == "step" and axes.get_ylabel() for axes in (loss, score, apart))
    for axes, through, what in ((loss, "train", "loss"), (score, "test", "accuracy")):
        found = {(to_hex(line.get_color()), line.get_linestyle()): list(line.get_ydata()) for line in axes.lines}  # type: ignore[arg-type]
        for name, records in models.items():
            colour = COLOURS[name].lower()
            assert found[colour, "-"] == [record[through][what] for record in records]  # type: ignore[literal-required]
            assert found[colour, "--"] == [record["validation"][what] for record in records]
        legend = axes.get_legend()
        assert legend is not None
        assert "validation" in [text.get_text() for text in legend.get_texts()]
    assert [text.get_text() for text in figures[0].legends[0].get_texts()] == ["distributed", "centralised"]


def test_a_topology_shows_its_spectrum_and_colours_its_agents(tmp_path: Path, drawn: Drawn) -> None:
    figures = drawn(agent_graph)
    B = np.ones((12, 12)) - np.eye(12)
    certificate = topology.certify_design(topology.design(B, gap=0.4))
    agent_graph.draw_topology(tmp_path / "topology.png", certificate, B, "complete")
    graph, spectrum = figures[0].axes
    assert spectrum.get_ylabel() == "eigenvalue"
    assert spectrum.get_xlabel()
    filled = [to_hex(colour) for colour in np.asarray(graph.collections[-1].get_facecolor())]
    assert filled == [agent_colour(agent).lower() for agent in range(12)]
    assert [text.get_text() for text in graph.texts] == [str(agent) for agent in range(12)]
    assert filled[0] == filled[len(AGENT_COLOURS)]  # which is why a number stands beside it


@pytest.mark.parametrize(("relays", "label"), [(True, "relayed (1)"), (False, "needed, but missing (1)")])
def test_a_topology_shows_what_it_relays(tmp_path: Path, drawn: Drawn, relays: bool, label: str) -> None:
    figures, links = drawn(agent_graph), topology.line(3)
    B = np.ones((3, 3)) - np.eye(3)
    certificate = topology.certify(topology.metropolis_weights(links), links, topology.needed_links(B))
    agent_graph.draw_topology(tmp_path / "topology.png", certificate, B, "line", relays)
    legend = figures[0].axes[0].get_legend()
    assert legend is not None
    assert label in [text.get_text() for text in legend.get_texts()]


def test_rows_of_a_timeline_have_their_agents_colours(tmp_path: Path, drawn: Drawn) -> None:
    figures = drawn(timeline)
    found = Timeline("accuracy", 100, 3, began=0.0, on_membership=lambda line: None)
    found.follow({}, dict.fromkeys(range(3), "starting"), 1.0)
    found.follow({}, dict.fromkeys(range(3), "member"), 2.0)
    timeline.draw_timeline(tmp_path / "memberships.png", found, "digits")
    labels = figures[0].axes[1].get_yticklabels()
    boxes = [label.get_bbox_patch() for label in labels]
    assert [label.get_text() for label in labels] == ["0", "1", "2"]
    assert [to_hex(box.get_facecolor()) for box in boxes if box] == [agent_colour(k).lower() for k in range(3)]


def test_reconstructed_vertices_name_their_agents_by_colour(tmp_path: Path, drawn: Drawn) -> None:
    figures = drawn(reconstructions)
    features = np.array([0.0, 1.0, 2.0])
    attack = FeatureAttack(tuple(Reconstruction(5, k, features, features, None) for k in (0, 4)), {}, "span")
    reconstructions.draw_reconstructions(tmp_path / "reconstructions.png", attack, "digits", None)
    titles = [axes.title for axes in figures[0].axes if axes.get_title()]
    assert [title.get_text() for title in titles] == ["agent 0\nvertex 5", "agent 4\nvertex 5"]
    boxes = [title.get_bbox_patch() for title in titles]
    assert [to_hex(box.get_facecolor()) for box in boxes if box] == [agent_colour(k).lower() for k in (0, 4)]


def curve(seed: int) -> Curve:
    steps = list(range(0, 60, 10))
    score = [0.2 + 0.01 * step + 0.01 * seed for step in steps]
    sent = [1e6 * step for step in steps]
    loss = [1.0 / (1 + step) for step in steps]
    return {"step": steps, "test": score, "loss": loss, "sent": sent, "diverged": False, "edges_kept": 0.9}


def test_no_two_panels_of_few_links_share_a_letter(tmp_path: Path, drawn: Drawn) -> None:
    figures = drawn(panels)
    for name, datasets, letters in (("fig4", ("cora",), "abc"), ("fig4_others", ("citeseer", "pubmed"), "defghi")):
        found = {dataset: {name: [curve(0), curve(1)] for name in fig4.LINKS} for dataset in datasets}
        fig4._draw(tmp_path / name, found, letters)
    titles = [axes.get_title() for figure in figures for axes in figure.axes]
    assert len(titles) == 9
    assert [title[1] for title in titles] == list("abcdefghi")
    assert all(axes.get_ylabel() for figure in figures for axes in figure.axes)


def distance(one: str, other: str) -> float:
    return float(np.linalg.norm(np.subtract(to_rgb(one), to_rgb(other))))


def test_lines_of_compressed_runs_are_told_apart(
    tmp_path: Path, drawn: Drawn, benchmark_named: Callable[[str], Any]
) -> None:
    compressed = benchmark_named("sending.compressed")
    figures = drawn(compressed)
    methods = ("plain", compressed.RARE, *compressed.COMPRESSED)
    found = {dataset: {name: [curve(0), curve(1)] for name in methods} for dataset in ("cora", "digits")}
    compressed.draw(tmp_path / "bytes.png", found)
    for axes in figures[0].axes:
        assert axes.get_xlabel()
        assert axes.get_ylabel()
        lines = axes.lines
        assert [line.get_label() for line in lines] == list(methods)
        assert all(line.get_marker() not in (None, "", "None") for line in lines)
        colours = [str(line.get_color()) for line in lines]
        apart = [distance(one, other) for i, one in enumerate(colours) for other in colours[:i]]
        assert min(apart) > 0.2


def test_growth_has_a_panel_for_each_size(tmp_path: Path, drawn: Drawn, benchmark_named: Callable[[str], Any]) -> None:
    growth = benchmark_named("scaling.growth")
    figures = drawn(growth)
    one = {"sizes": [10_000, 1_000_000], "step": [0.01, 1.0], "step_exponent": 1.0}
    both = {**one, "product": [0.001, 0.3], "product_exponent": 1.24}
    growth.plot({"vertices": both, "agents": one}, tmp_path / "scaling.png")
    axes = figures[0].axes
    assert [plot.get_xlabel() for plot in axes] == ["vertices", "agents"]
    assert [len(plot.lines) for plot in axes] == [2, 1]
    assert [label.get_text() for label in axes[0].get_xticklabels()] == ["10k", "1M"]
    assert not any(spine.get_visible() for plot in axes for name, spine in plot.spines.items() if name in ("top",))


def test_agents_and_models_have_colours_of_their_own() -> None:
    every = [*AGENT_COLOURS, *COLOURS.values()]
    apart = [distance(one, other) for i, one in enumerate(every) for other in every[:i]]
    assert min(apart) > 0.1
