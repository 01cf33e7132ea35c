"""Fig. 2: the sparsity of C against 1 - gamma, for 20 agents and a random A, up to the minimally connected network."""

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gossamer import topology
from gossamer.experiments.reproduction import Cache, Claim, Follow, Outcome, write_csv
from gossamer.files import write_atomically
from gossamer.report.agent_graph import draw_sweep, draw_sweeps
from gossamer.runs.directory import create
from gossamer.runs.documents import to_json

RADII = tuple(round(0.05 * i, 2) for i in range(20))  # 1 - gamma


@dataclass(frozen=True)
class Point:
    """One design of a sweep."""

    radius: float  # 1 - gamma
    sparsity: float  # share of zero entries of C
    added_links: int
    objective: float
    lower_bound: float
    spectral_radius: float
    iterations: int


@dataclass(frozen=True)
class Sweep:
    name: str
    agents: int
    points: list[Point]
    limit_sparsity: float  # of the minimally connected network: the needed links alone
    limit_radius: float | None  # from this 1 - gamma on they suffice; None if they leave agents apart

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)

    def save(self, folder: Path) -> None:
        """Write sweep.json, sweep.csv and sweep.png into a new folder."""
        create(folder)
        write_atomically(folder / "sweep.json", (to_json(self.to_dict(), indent=2) + "\n").encode())
        write_csv(folder / "sweep.csv", [asdict(point) for point in self.points])
        draw_sweep(folder / "sweep.png", self)


def random_shared_edges(num_agents: int = 20, seed: int = 0) -> NDArray[np.float64]:
    """A random B: A is 0 on the links of a random connected graph."""
    return topology.random_connected(num_agents, seed).astype(np.float64)


def reproduce(out: Path, quick: bool, seeds: int, follow: Follow) -> Outcome:
    """Sweep the gap for a random A of each seed; sparsity rises to the minimally connected network and stays there."""
    cache, radii, sweeps = Cache(out / "cache"), RADII[::2] if quick else RADII, []
    for seed in range(seeds):
        key = {"experiment": "fig2", "agents": 20, "seed": seed, "radii": radii}
        sweeps.append(cache.get(key, partial(_sweep_of, seed, radii)))
        follow(seed + 1, seeds, f"seed {seed}")
    sparsity = np.array([[point["sparsity"] for point in made["points"]] for made in sweeps])
    gaps = np.array([[p["objective"] - p["lower_bound"] for p in made["points"]] for made in sweeps])
    falls = int((np.diff(sparsity, axis=1) < 0).sum())
    reached = all(
        (point["added_links"] == 0) == (point["radius"] >= made["limit_radius"])
        for made in sweeps
        for point in made["points"]
    )
    write_csv(
        out / "fig2.csv", [{"seed": seed, **point} for seed, made in enumerate(sweeps) for point in made["points"]]
    )
    draw_sweeps(out, sweeps)
    mean = 100 * sparsity.mean(0)
    return Outcome(
        "fig2",
        [
            Claim(
                "sparsity improves as 1 - gamma grows (Sec. IV)",
                ", ".join(f"{mean[i]:.0f} % zeros at {radii[i]:.2f}" for i in (0, len(radii) // 2, -1))
                + f" in the mean of {seeds} seeds; {falls} of {sparsity.size - seeds} steps fall",
                bool((np.diff(mean) >= 0).all()),
            ),
            Claim(
                "until it reaches the minimally connected network",
                "from the fastest mixing radius of the needed links on, in every seed"
                if reached
                else "not in every seed",
                reached,
            ),
            Claim(
                "Algorithm 2 solves problem (29)",
                f"every design is proved optimal to {gaps.max():.1e}, absolute",
                bool((gaps <= 1e-4 * np.array([[p["objective"] for p in m["points"]] for m in sweeps]) + 1e-6).all()),
            ),
        ],
        ["fig2.csv", "fig2.png", "fig2.pdf"],
    )


def _sweep_of(seed: int, radii: Sequence[float]) -> dict[str, Any]:
    return sweep("random", random_shared_edges(20, seed), radii).to_dict()


def sweep(
    name: str,
    shared_edges: NDArray[np.float64],
    radii: Sequence[float] = RADII,
    nonnegative: bool = False,
    progress: Callable[[int, int, str], None] | None = None,
    **design_options: Any,
) -> Sweep:
    """Design C for each radius = 1 - gamma, each from where the last one ended."""
    needed = topology.needed_links(topology.check_shared_edges(shared_edges))
    points, warm = [], None
    for number, radius in enumerate(sorted(radii), 1):
        made = topology.design(shared_edges, 1.0 - radius, nonnegative=nonnegative, warm_start=warm, **design_options)
        warm = made.warm_start
        found = topology.certify_design(made)
        points.append(
            Point(
                radius,
                found.sparsity,
                found.num_added_links,
                made.objective,
                made.lower_bound,
                found.assumptions.spectral_radius,
                made.iterations,
            )
        )
        if progress is not None:
            progress(number, len(radii), f"1 - gap {radius:.2f}: {found.sparsity:.0%} zeros")
    alone = topology.fastest_mixing(needed, nonnegative)
    return Sweep(
        name,
        len(needed),
        points,
        float((~needed & ~np.eye(len(needed), dtype=bool)).mean()),
        alone.spectral_radius if topology.count_components(needed) == 1 else None,
    )
