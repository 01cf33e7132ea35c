"""Fig. 2: the sparsity of C against 1 - gamma, for 20 agents and a random A, up to the minimally connected network."""

from collections.abc import Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from gossamer import topology
from gossamer.experiments.reproduction import Cache, Claim, ExperimentProgress, Outcome
from gossamer.report.agent_graph import draw_sweeps
from gossamer.report.csv_tables import write_csv

SWEEP_AGENTS = 20


def reproduce(out: Path, quick: bool, seeds: int, progress: ExperimentProgress) -> Outcome:
    """Sweep the gap for a random A of each seed; sparsity rises to the minimally connected network and stays there."""
    cache, radii, sweeps = Cache(out / "cache"), topology.RADII[::2] if quick else topology.RADII, []
    for seed in range(seeds):
        key = {"experiment": "fig2", "agents": SWEEP_AGENTS, "seed": seed, "radii": radii}
        sweeps.append(topology.Sweep.from_dict(cache.get_or_compute(key, partial(_sweep_of, seed, radii))))
        progress(seed + 1, seeds, f"seed {seed}")
    sparsity = np.array([[point.sparsity for point in made.points] for made in sweeps])
    objective = np.array([[point.objective for point in made.points] for made in sweeps])
    gaps = objective - np.array([[point.lower_bound for point in made.points] for made in sweeps])
    falls = int((np.diff(sparsity, axis=1) < 0).sum())
    reached = all(
        (point.added_links == 0) == (made.limit_radius is not None and point.radius >= made.limit_radius)
        for made in sweeps
        for point in made.points
    )
    write_csv(
        out / "fig2.csv", [{"seed": seed, **asdict(point)} for seed, made in enumerate(sweeps) for point in made.points]
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
                bool((gaps <= 1e-4 * objective + 1e-6).all()),
            ),
        ],
        ["fig2.csv", "fig2.png", "fig2.pdf"],
    )


def _sweep_of(seed: int, radii: Sequence[float]) -> dict[str, Any]:
    return topology.sweep_gaps("random", topology.draw_shared_edges(SWEEP_AGENTS, seed), radii).to_dict()
