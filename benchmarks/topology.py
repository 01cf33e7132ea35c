"""Time of a designed topology with its certificate, against cvxpy with SCS and against eigendecompositions.

    python benchmarks/topology.py [--quick] [--picture FILE] [--json]

Random connected agent graphs, gap 0.5 unless said otherwise. A time is that of the whole call: the design to a proved
relative optimality, then the certificate. SCS solves the same problem (29) by cvxpy at its defaults, which is accurate
to about 1e-4 and proves nothing about a sparse matrix. Ratios come from one run, the competitors next to each other.
Algorithm 2 as printed stands beside ours: over-relaxed, accelerated, with a penalty that adapts.
"""

import argparse
import json
import statistics
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np

from gossamer import topology
from gossamer.errors import GossamerWarning
from gossamer.report.style import COLOURS, save_figure, tidy
from gossamer.topology.admm import AdmmState, initial_state, iterate, iterate_literally, lower_bound, problem_29


def designed(B: np.ndarray, gap: float, tolerance: float) -> dict[str, float]:
    begin = time.perf_counter()
    made = topology.design(B, gap, tolerance=tolerance)
    found = topology.certify_design(made)
    seconds = time.perf_counter() - begin
    assert all(found.assumptions.holds.values())
    excess = made.objective - made.lower_bound
    return {
        "seconds": seconds,
        "iterations": made.iterations,
        "objective": made.objective,
        "proved": excess / made.objective if excess > 0 else 0.0,
    }


def scs(B: np.ndarray, gap: float, lean: bool) -> dict[str, float]:
    """Problem (29) in cvxpy: with the spectral norm as the paper writes it, or as two matrix inequalities."""
    import cvxpy

    m = len(B)
    A = np.where((B > 0) | np.eye(m, dtype=bool), 0.0, 1.0)
    begin = time.perf_counter()
    C = cvxpy.Variable((m, m), symmetric=True)
    off = C - np.full((m, m), 1 / m)
    bounds = (
        [cvxpy.lambda_max(off) <= 1 - gap, cvxpy.lambda_min(off) >= gap - 1]
        if lean
        else [cvxpy.norm(off, 2) <= 1 - gap]
    )
    objective = cvxpy.Minimize(cvxpy.sum(cvxpy.multiply(A, cvxpy.abs(C))))
    problem = cvxpy.Problem(objective, [cvxpy.sum(C, axis=1) == 1, *bounds])
    problem.solve(solver=cvxpy.SCS)
    return {"seconds": time.perf_counter() - begin, "objective": float(problem.value)}


def eigendecomposition(m: int) -> float:
    """Seconds of a dense symmetric eigendecomposition, eigenvectors included."""
    X = np.random.default_rng(0).standard_normal((m, m))
    X = X + X.T
    np.linalg.eigh(X)
    times = []
    for _ in range(5):
        begin = time.perf_counter()
        np.linalg.eigh(X)
        times.append(time.perf_counter() - begin)
    return statistics.median(times)


def needed_by(m: int, seed: int = 0) -> np.ndarray:
    return topology.random_connected(m, seed).astype(np.float64)


def against_scs(m: int, tolerance: float, seeds: int, lean: bool) -> dict[str, Any]:
    designed(needed_by(m, 99), 0.5, tolerance)  # warm the libraries up
    ours, theirs = [], []
    for seed in range(seeds):
        B = needed_by(m, seed)
        theirs.append(scs(B, 0.5, lean))
        ours.append(designed(B, 0.5, tolerance))
    pairs = list(zip(ours, theirs, strict=True))
    return {
        "agents": m,
        "tolerance": tolerance,
        "lean": lean,
        "design_seconds": statistics.median(r["seconds"] for r in ours),
        "scs_seconds": statistics.median(r["seconds"] for r in theirs),
        "ratio": statistics.median(b["seconds"] / a["seconds"] for a, b in pairs),
        "least_ratio": min(b["seconds"] / a["seconds"] for a, b in pairs),
        "proved": max(r["proved"] for r in ours),
        "difference": max(abs(a["objective"] / b["objective"] - 1) for a, b in pairs),
    }


def against_eigh(m: int, gap: float, tolerance: float) -> dict[str, Any]:
    before = eigendecomposition(m)
    ours = designed(needed_by(m), gap, tolerance)
    unit = (before + eigendecomposition(m)) / 2
    return {"agents": m, "gap": gap, "tolerance": tolerance, "eigendecompositions": ours["seconds"] / unit, **ours}


def to_proof(m: int, tolerance: float, penalty: float | None, most: int = 20000) -> dict[str, Any]:
    """Iterations and seconds until the C of an iteration, which is feasible, is proved optimal to `tolerance`.

    With a penalty varrho, Algorithm 2 as printed from random C, Z and U; without, ours.
    """
    B, radius = needed_by(m), 0.5
    entries = problem_29(np.where((B > 0) | np.eye(m, dtype=bool), 0.0, 1.0))
    X, U = np.random.default_rng(0).standard_normal((2, m, m))
    steps = (
        iterate(entries, radius, initial_state(m))
        if penalty is None
        else iterate_literally(entries, radius, AdmmState(X, X, U, penalty))
    )
    least, bound, excess, begin = np.inf, -np.inf, np.inf, time.perf_counter()
    for iteration, state in enumerate(steps, 1):
        if iteration % 10:
            continue
        least = min(least, entries.objective(state.C))
        bound = max(bound, lower_bound(entries, (state.multiplier + state.multiplier.T) / 2, radius)[0])
        excess = (least - bound) / least
        if excess <= tolerance or iteration >= most:
            break
    seconds = time.perf_counter() - begin
    return {"agents": m, "penalty": penalty, "iterations": iteration, "seconds": seconds, "proved": excess}


def draw(path: Path, growth: list[dict[str, Any]], rivals: list[dict[str, Any]]) -> None:
    """Draw the seconds of a design against the number of agents, log-log."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(6.4, 4.4), layout="constrained")
    axes = figure.subplots()
    sizes = np.array([r["agents"] for r in growth])
    seconds = np.array([r["seconds"] for r in growth])
    axes.loglog(sizes, seconds, "o-", color=COLOURS["distributed"], label="design and certificate, proved to 1e-2")
    for lean, colour, label in (
        (False, COLOURS["centralised"], "spectral norm"),
        (True, "#E69F00", "two matrix inequalities"),
    ):
        times = [(r["agents"], r["scs_seconds"]) for r in rivals if r["lean"] == lean]
        axes.loglog(*zip(*times, strict=True), "s-", color=colour, label=f"cvxpy with SCS, {label}")
    axes.loglog(sizes, seconds[-1] * (sizes / sizes[-1]) ** 3, ":", color=COLOURS["graphless"], label="$m^3$")
    axes.set(xlabel="agents m", ylabel="seconds", title="Designing a topology, gap 0.5")
    tidy(axes)
    axes.legend(frameon=False)
    save_figure(figure, path)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--quick", action="store_true", help="leave out what takes minutes: SCS at 100, and 1000 agents"
    )
    parser.add_argument("--picture", type=Path, help="write the growth with m as a log-log plot")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    warnings.simplefilter("error", GossamerWarning)
    sizes = [(20, 1e-3, 5), (50, 1e-3, 5)] + ([] if options.quick else [(100, 1e-2, 3)])
    rivals = [against_scs(m, tolerance, seeds, lean) for lean in (False, True) for m, tolerance, seeds in sizes]
    hard = [against_eigh(500, gap, 1e-2) for gap in (0.5, 0.4, 0.7)]
    growth = [against_eigh(m, 0.5, 1e-2) for m in (20, 50, 100, 200)] + hard[:1]
    if not options.quick:
        growth.append(against_eigh(1000, 0.5, 1e-2))
    penalties = (1.0, 10.0, 100.0, None)
    printed = [to_proof(m, 1e-3, penalty) for m in ((20,) if options.quick else (20, 100)) for penalty in penalties]
    if options.picture:
        draw(options.picture, growth, rivals)
    if options.json:
        print(json.dumps({"scs": rivals, "eigendecompositions": growth + hard[1:], "algorithm_2": printed}))
        return
    print("   m  tolerance   proved  SCS [s]  design [s]  SCS / design (least)  objectives differ by")
    for r in rivals:
        if r["agents"] == 20:
            print("two matrix inequalities:" if r["lean"] else "spectral norm:")
        print(
            f"{r['agents']:4d}  {r['tolerance']:9.0e}  {r['proved']:7.1e}  {r['scs_seconds']:7.2f}  "
            f"{r['design_seconds']:10.3f}  {r['ratio']:12.1f} ({r['least_ratio']:.1f})  {r['difference']:.1e}"
        )
    print("Algorithm 2 until a feasible C is proved optimal to 1e-3:")
    print("   m  varrho    iterations  seconds   proved")
    for r in printed:
        varrho = "adapted" if r["penalty"] is None else f"{r['penalty']:g}"
        print(f"{r['agents']:4d}  {varrho:8s}  {r['iterations']:10d}  {r['seconds']:7.2f}  {r['proved']:7.1e}")
    print("   m  gap  tolerance   proved  objective  iterations  seconds  in eigendecompositions")
    for r in growth + hard[1:]:
        print(
            f"{r['agents']:4d}  {r['gap']:3.1f}  {r['tolerance']:9.0e}  {r['proved']:7.1e}  {r['objective']:9.4g}  "
            f"{r['iterations']:10d}  {r['seconds']:7.2f}  {r['eigendecompositions']:.0f}"
        )
    agents = np.log([r["agents"] for r in growth])
    slope = np.polyfit(agents[2:], np.log([r["seconds"] for r in growth])[2:], 1)[0]
    print(f"growth exponent from m = {growth[2]['agents']} to {growth[-1]['agents']}: {slope:.2f}")


if __name__ == "__main__":
    main()
