"""Sec. III-D, Theorem 2: consensus and convergence, measured on a small problem where the assumptions hold.

A stochastic block graph on a ring of 6 agents, tanh and weight decay, so that L is smooth and its agents' gradients do
not vanish together; no dropout. (C1) is a constant step size, (C2) a diminishing one.
"""

import math
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from gossamer.agents.measures import mean_params
from gossamer.agents.step import training_step
from gossamer.data import DataGraph, make_graph
from gossamer.experiments.reproduction import Cache, Claim, Follow, Outcome, write_csv
from gossamer.report.theory import draw_theory
from gossamer.runtime.settings import make_settings
from gossamer.runtime.simulation import run
from gossamer.runtime.training import Run, start, stationarity, whole_gradient

AGENTS = 6
DECAY = 0.02  # of the step size under (C2)


def small_problem(seed: int = 0) -> DataGraph:
    """Three blocks of 40 vertices: edges mostly inside, noisy features around a block's mean, half of them labelled."""
    random = np.random.default_rng(seed)
    n = 120
    block = np.arange(n) % 3
    close = np.where(block[:, None] == block, 0.12, 0.01)
    edges = np.argwhere(np.triu(random.random((n, n)) < close, 1))
    features = random.standard_normal((3, 8))[block] + random.standard_normal((n, 8))
    train = random.permutation(n) < n // 2
    return make_graph(
        name="blocks", edges=edges, features=features, targets=block, train=train, validation=~train, test=~train
    )


def trajectory(graph: DataGraph, step_size: float, decay: float, steps: int) -> dict[str, Any]:
    """|w - w_S|, g^t and |grad L| along a run, at every step at first and then ever more rarely."""
    state = start(
        graph,
        make_settings(
            {
                "dataset": graph.name,
                "agents": AGENTS,
                "topology": "ring",
                "hidden": 8,
                "activation": "tanh",
                "dropout": 0.0,
                "update": "gd",
                "step_size": step_size,
                "step_decay": decay,
                "weight_decay": 0.02,
                "initial_deviation": 0.5,
                "dtype": "float64",
                "steps": steps,
            }
        ),
    )
    taken: list[dict[str, float]] = []
    for t in range(steps + 1):
        if t < 50 or t % max(1, 2 ** (int(math.log2(t)) - 5)) == 0 or t == steps:
            taken.append({"step": t, **_measured(state)})
        if t < steps:
            state.host, _ = run(training_step(state.host))
    return {
        "eta": AGENTS * step_size,  # the paper's step size: a gradient step of the centralised size, times m
        "decay": decay,
        "radius": state.deployment.certificate.assumptions.spectral_radius,
        "points": taken,
    }


def _measured(state: Run) -> dict[str, float]:
    host = state.host
    centre = mean_params(host.params)
    apart = sum(float((part - centre[name]).square().sum()) for name, part in host.params.items())
    slope = sum(float(part.square().sum()) for part in whole_gradient(host, host.params).values())
    return {
        "apart": math.sqrt(apart),
        "stationarity": stationarity(host, state.engine),
        "slope": math.sqrt(slope),
    }


def bound(found: dict[str, Any]) -> list[float]:
    """Eq. (45): |w_perp^t| <= (1 - gamma)^t |w_perp^0| + G sum_l (1 - gamma)^(t-l) eta^(l-1), G and gamma measured."""
    radius, points = found["radius"], found["points"]
    G = max(point["slope"] for point in points)
    values, value, t = [], points[0]["apart"], 0
    for point in points:
        while t < point["step"]:
            value = radius * value + G * found["eta"] / (1 + found["decay"] * t)
            t += 1
        values.append(value)
    return values


def reproduce(out: Path, quick: bool, seeds: int, follow: Follow) -> Outcome:
    """Run every step size under (C1) and one sequence under (C2); the claims of Theorem 2."""
    graph = small_problem()
    steps = 1000 if quick else 8000
    sizes = [0.5, 0.25, 0.125] if quick else [0.5, 0.25, 0.125, 0.0625]
    plans = [(size, 0.0) for size in sizes] + [(sizes[0], DECAY)]
    cache, runs = Cache(out / "cache"), []
    for number, (size, decay) in enumerate(plans, 1):
        key = {"experiment": "theory", "step_size": size, "decay": decay, "steps": steps}
        runs.append(cache.get(key, partial(trajectory, graph, size, decay, steps)))
        follow(number, len(plans), f"eta {AGENTS * size:g}{' diminishing' if decay else ''}")
    constant, diminishing = runs[:-1], runs[-1]
    etas = np.array([found["eta"] for found in constant])
    limits = np.array([found["points"][-1]["apart"] for found in constant])
    floors = np.array([min(p["stationarity"] for p in found["points"][1:]) for found in constant])
    slope, floor_slope = (float(np.polyfit(np.log(etas), np.log(values), 1)[0]) for values in (limits, floors))
    peak = max(point["apart"] for point in diminishing["points"])
    late = diminishing["points"][-1]
    early = next(p for p in diminishing["points"] if p["step"] >= steps // 10)
    inside = all(
        p["apart"] <= b * (1 + 1e-12) for found in runs for p, b in zip(found["points"], bound(found), strict=True)
    )
    claims = [
        Claim(
            "(C1): the disagreement tends to O(eta), eq. (21)",
            f"slope {slope:.2f} of its limit against eta, log-log",
            abs(slope - 1) < 0.15,
        ),
        Claim(
            "(C2): the disagreement tends to 0, eq. (22)",
            f"peak {peak:.2g}, {early['apart']:.2g} after a tenth of the steps, {late['apart']:.2g} at the end",
            late["apart"] < 0.5 * early["apart"] < 0.5 * peak,
        ),
        Claim(
            "(C1): g_best tends to O(eta), eq. (23)",
            f"its floor falls with eta to the power {floor_slope:.2f} (1 would be enough)",
            floor_slope > 0.9,
        ),
        Claim(
            "(C2): g tends to 0, eq. (24)",
            f"{early['stationarity']:.2g} after a tenth of the steps, {late['stationarity']:.2g} at the end",
            late["stationarity"] < 0.5 * early["stationarity"],
        ),
        Claim(
            "the disagreement stays below the bound of eq. (45)-(46)",
            "at every step that was measured, with measured G and gamma" if inside else "it does not",
            inside,
        ),
    ]
    rows = [
        {"eta": found["eta"], "decay": found["decay"], **point, "bound": limit}
        for found in runs
        for point, limit in zip(found["points"], bound(found), strict=True)
    ]
    write_csv(out / "theory.csv", rows)
    draw_theory(out, runs, [bound(found) for found in runs])
    return Outcome("theory", claims, ["theory.csv", "theory.png", "theory.pdf"])
