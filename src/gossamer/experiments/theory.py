"""Theorem 2 (Sec. III-D): consensus and convergence, measured on a small problem where the assumptions hold.

The graph is drawn from a stochastic block model (Holland, Laskey and Leinhardt 1983, Stochastic blockmodels: first
steps) and held by a ring of 6 agents; tanh and weight decay make L smooth and keep the agents' gradients from vanishing
together, or the disagreement would tend to 0 under (C1), too; no dropout. (C1) is a constant step size, (C2) a
diminishing one.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gossamer.agents.gradients import loss_gradient
from gossamer.agents.host import Host
from gossamer.agents.measures import mean_params
from gossamer.agents.step import training_step
from gossamer.data import DataGraph, make_graph
from gossamer.engines.simulation import run, start_run
from gossamer.experiments import bounds
from gossamer.experiments.reproduction import Cache, Claim, ExperimentProgress, Outcome
from gossamer.model import Params
from gossamer.report.csv_tables import write_csv
from gossamer.report.theory import draw_theory
from gossamer.runs.settings import make_settings
from gossamer.runs.training import use_threads

AgentRows = NDArray[np.float64]  # a row for each agent
RING_AGENTS = 6
MIN_SECANT = 1e-7  # secants between points closer than this are rounding errors
DECAY = 0.02  # of the step size under (C2)
ROUNDING = 1e-12  # relative errors of float64 that an inequality may have


def draw_block_graph(seed: int = 0) -> DataGraph:
    """Draw three blocks of 40 vertices: edges mostly inside, noisy features around a block's mean, half labelled."""
    random = np.random.default_rng(seed)
    n = 120
    block = np.arange(n) % 3
    probability = np.where(block[:, None] == block, 0.12, 0.01)  # of an edge within a block, and between two
    edges = np.argwhere(np.triu(random.random((n, n)) < probability, 1))
    features = random.standard_normal((3, 8))[block] + random.standard_normal((n, 8))
    train = random.permutation(n) < n // 2
    # No claim is about validation or test.
    return make_graph(
        name="blocks", edges=edges, features=features, targets=block, train=train, validation=~train, test=~train
    )


def measure_trajectory(graph: DataGraph, step_size: float, decay: float, steps: int) -> dict[str, Any]:
    """Train, and measure at every step the quantities of Appendix B (`bounds.Trajectory`)."""
    state = start_run(
        graph,
        make_settings(
            {
                "preset": "paper",
                "dataset": graph.name,
                "agents": RING_AGENTS,
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
    # The paper's step size: at consensus the mean of the agents' gradients is the centralised gradient over m.
    eta = RING_AGENTS * step_size
    columns: dict[str, list[float]] = {}
    before: Iterate | None = None
    with use_threads(state):
        for t in range(steps + 1):
            now = _evaluate_iterate(state.host)
            eta_before = eta / (1 + decay * (t - 1))  # of the step that led here; without a meaning at t = 0
            for name, value in _measure(now, before, eta_before).items():
                columns.setdefault(name, []).append(value)
            before = now
            if t < steps:
                state.host, _ = run(training_step(state.host))
    return {"eta": eta, "decay": decay, "radius": state.deployment.certificate.assumptions.spectral_radius, **columns}


@dataclass(frozen=True)
class Iterate:
    """The agents' weights w^t, their mean w_S^t, and the gradients of L at both, each [m, p]; L at the mean."""

    weights: AgentRows
    gradient: AgentRows
    centre: AgentRows
    centre_gradient: AgentRows
    centre_loss: float


def _evaluate_iterate(host: Host) -> Iterate:
    centre = mean_params(host.params)
    _, gradient = _loss_gradient(host, host.params)
    loss, centre_gradient = _loss_gradient(host, centre)
    return Iterate(_flatten(host.params), gradient, _flatten(centre), centre_gradient, loss)


def _loss_gradient(host: Host, params: Params) -> tuple[float, AgentRows]:
    """L and its gradient, weight decay included."""
    loss, gradient = run(loss_gradient(host.with_params(params), dropout=False))
    share, w = host.training.weight_decay / host.num_agents, _flatten(params)
    return float(loss) + share / 2 * float((w**2).sum()), _flatten(gradient) + share * w


def _flatten(params: Params) -> AgentRows:
    """Parameters [m, p], a row for each agent; a copy, because a step overwrites them."""
    return np.concatenate([part.flatten(1).numpy() for part in params.values()], axis=1, dtype=np.float64)


def _measure(now: Iterate, before: Iterate | None, eta: float) -> dict[str, float]:
    """Measure the quantities of the proof; `eta` is the step size from the iterate `before` to `now`."""
    m = len(now.weights)
    mean, centre_mean = now.gradient.mean(0), now.centre_gradient.mean(0)  # every row of Pi grad L is the mean row
    apart = float(np.linalg.norm(now.weights - now.centre))
    secants = [(now.gradient - now.centre_gradient, apart)]
    recursion = 0.0
    if before is not None:
        moved = now.centre - before.centre
        secants.append((now.centre_gradient - before.centre_gradient, float(np.linalg.norm(moved))))
        recursion = float(np.linalg.norm(moved + eta * before.gradient.mean(0)))
    return {
        "apart": apart,
        "slope": float(np.linalg.norm(now.gradient)),  # |grad L(w)|
        "stationarity": m * float(centre_mean @ centre_mean),  # g^t, eq. (19)
        "loss": now.centre_loss,
        "inner": m * float(centre_mean @ mean),  # grad L(w_S)^T Pi grad L(w)
        "projected": m * float(mean @ mean),  # |Pi grad L(w)|^2
        "secant": max(float(np.linalg.norm(change)) / length for change, length in secants if length > MIN_SECANT),
        "recursion": recursion,  # residual of eq. (48)
    }


def reproduce(out: Path, quick: bool, seeds: int, progress: ExperimentProgress) -> Outcome:
    """Run every step size under (C1) and one sequence under (C2); check the claims of Theorem 2 and of its proof.

    The problem is one draw: `seeds` is not used.
    """
    graph = draw_block_graph()
    steps = 600 if quick else 8000
    sizes = [0.5, 0.25] if quick else [0.5, 0.25, 0.125, 0.0625]
    plans = [(size, 0.0) for size in sizes] + [(sizes[0], DECAY)]
    cache, runs = Cache(out / "cache"), []
    for number, (size, decay) in enumerate(plans, 1):
        key = {"experiment": "theory, every step", "step_size": size, "decay": decay, "steps": steps}
        runs.append(cache.get_or_compute(key, partial(measure_trajectory, graph, size, decay, steps)))
        progress(number, len(plans), f"eta {RING_AGENTS * size:g}{' diminishing' if decay else ''}")
    claims = [*_check_limits(runs[:-1], runs[-1]), *_check_inequalities(runs)]
    tables = [bounds.make_table(found) for found in runs]
    # All of the first steps, then 32 for each doubling: enough for a logarithmic axis.
    kept = [t for t in range(steps + 1) if t < 50 or t % max(1, 2 ** (t.bit_length() - 6)) == 0 or t == steps]
    rows = [
        {"eta": found["eta"], "decay": found["decay"], "step": t, **{name: column[t] for name, column in table.items()}}
        for found, table in zip(runs, tables, strict=True)
        for t in kept
    ]
    write_csv(out / "theory.csv", rows)
    draw_theory(out, [found["eta"] for found in runs], tables, kept)
    return Outcome("theory", claims, ["theory.csv", "theory.png", "theory.pdf"])


def _check_limits(constant: Sequence[bounds.Trajectory], diminishing: bounds.Trajectory) -> list[Claim]:
    """Check the limits (21) to (24), and the rate."""
    etas = np.array([found["eta"] for found in constant])
    limits = np.array([found["apart"][-1] for found in constant])
    floors = np.array([bounds.best(found)[-1] for found in constant])
    slope, floor_slope = (float(np.polyfit(np.log(etas), np.log(values), 1)[0]) for values in (limits, floors))
    tenth = len(diminishing["apart"]) // 10
    peak, early, late = max(diminishing["apart"]), diminishing["apart"][tenth], diminishing["apart"][-1]
    g_early, g_late = diminishing["stationarity"][tenth], diminishing["stationarity"][-1]
    return [
        Claim(
            "(C1): the disagreement tends to O(eta), eq. (21)",
            f"slope {slope:.2f} of its limit against eta, log-log",
            abs(slope - 1) < 0.15,
        ),
        Claim(
            "(C2): the disagreement tends to 0, eq. (22)",
            f"peak {peak:.2g}, {early:.2g} after a tenth of the steps, {late:.2g} at the end",
            late < 0.5 * early < 0.5 * peak,
        ),
        Claim(
            "(C1): g_best tends to O(eta), eq. (23)",
            f"its floor falls with eta to the power {floor_slope:.2f} (1 would be enough)",
            floor_slope > 0.9,
        ),
        _check_rate(constant),
        Claim(
            "(C2): g tends to 0, eq. (24)",
            f"{g_early:.2g} after a tenth of the steps, {g_late:.2g} at the end",
            g_late < 0.5 * g_early,
        ),
    ]


def _check_rate(constant: Sequence[bounds.Trajectory]) -> Claim:
    """(t + 1)(g_best^t - floor) is bounded: it peaks early, below the constant of (53), and falls from there on."""
    parts, holds = [], True
    for found in constant:
        best = bounds.best(found)[1:]
        scaled = np.arange(2, len(best) + 2) * (best - best[-1])
        peak, tenth, constant_53 = int(scaled.argmax()), len(scaled) // 10, bounds.rate_bound(found)[0]
        parts.append(
            f"{scaled[peak]:.2g} at t = {peak + 1} (bound {constant_53:.2g}), {scaled[tenth]:.1g} at {tenth + 1}"
        )
        holds &= bool(peak < tenth and scaled[peak] <= constant_53 and scaled[tenth:].max() < 0.5 * scaled[peak])
    etas = ", ".join(f"{found['eta']:g}" for found in constant)
    return Claim(
        "(C1): g_best converges at the rate O(1/(t + 1)), eq. (53)",
        f"(t + 1) (g_best - its floor) peaks and falls, for eta = {etas}: " + "; ".join(parts),
        holds,
    )


def _check_inequalities(runs: Sequence[bounds.Trajectory]) -> list[Claim]:
    """Check the inequalities of Appendix B at every step of every run; under (C1) those of (53) and (54), too."""
    residual = max(max(found["recursion"]) for found in runs)
    apart = [bounds.disagreement_bound(found) / found["apart"] for found in runs]
    slacks = [bounds.descent_slack(found) for found in runs]
    slack_49, slack_50c = (min(float(pair[which].min()) for pair in slacks) for which in (0, 1))
    sums = [right / left for left, right in map(bounds.descent_sums, runs)]
    best = [bounds.best_bound(found)[1:] / bounds.best(found)[1:] for found in runs]
    limits = [(bounds.best(found)[-1], bounds.rate_bound(found)[1]) for found in runs if not found["decay"]]

    def ratios(parts: list[Any]) -> str:
        return f"right over left at least {min(part.min() for part in parts):.3g}, at the end " + ", ".join(
            f"{part[-1]:.3g}" for part in parts
        )

    estimates = ", ".join(f"{bounds.lipschitz(found):.2f}" for found in runs)
    G = max(map(bounds.largest_gradient, runs))
    return [
        Claim(
            "the disagreement stays below the bound of eq. (45)-(46), at every step",
            f"with measured G = {G:.2f}, gamma = {1 - runs[0]['radius']:.3f}: {ratios(apart)}",
            all((part >= 1 - ROUNDING).all() for part in apart),
        ),
        Claim(
            "the mean of the weights moves by the mean gradient, eq. (48), at every step",
            f"to {residual:.0e}, absolute",
            residual < ROUNDING,
        ),
        Claim(
            "L(w_S) descends as the descent lemma says, eq. (49), at every step",
            f"with c_L = {estimates} (lower estimates, from secants): right minus left at least {slack_49:.1g}",
            slack_49 >= -ROUNDING,
        ),
        Claim("and by as much as eq. (50c) says", f"right minus left at least {slack_50c:.1g}", slack_50c >= -ROUNDING),
        Claim("the sum of eta g stays below the bound of eq. (51), at every step", ratios(sums), _all_at_least_1(sums)),
        Claim("g_best stays below the bound of eq. (52), at every step from 1 on", ratios(best), _all_at_least_1(best)),
        Claim(
            "(C1): g_best ends below the limit of eq. (54)",
            ", ".join(f"{reached:.1e} below {limit:.2g}" for reached, limit in limits),
            all(reached <= limit for reached, limit in limits),
        ),
    ]


def _all_at_least_1(ratios: list[Any]) -> bool:
    return all((part >= 1).all() for part in ratios)
