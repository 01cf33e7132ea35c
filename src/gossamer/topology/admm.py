"""Algorithm 2 (Sec. IV): ADMM for problem (29), the sparsest combination matrix C [m, m] with a given spectral gap.

    minimise  ||C o A||_1   subject to   C = C^T,  C1 = 1,  rho(C - Pi) <= radius = 1 - gamma,   Pi = 11^T/m

`iterate` holds (S.1)-(S.3) and `iterate_literally` runs them as printed; `project` is eq. (33)-(35), `EntryPenalty` the
penalty A with the shrinkage (37), `lower_bound` the dual bound of a multiplier. Two generalisations serve the design:
entries may have bounds, and without a radius rho(C - Pi) is minimised instead.

Not the paper's: over-relaxation and the penalty that adapts to the residuals (Boyd, Parikh, Chu, Peleato and Eckstein
2011, Distributed optimization and statistical learning via the alternating direction method of multipliers, Sec. 3.4.3
and 3.4.1; residuals relative to their terms as in Wohlberg 2017, ADMM penalty parameter selection by residual
balancing).
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from gossamer.topology.anderson import Anderson
from gossamer.topology.families import Matrix


@dataclass(frozen=True)
class EntryPenalty:
    """The separable part of the problem: the penalty A of |Z|, and low <= Z <= high. All [m, m] and symmetric."""

    penalised: Matrix  # A of Sec. IV: 1 where two agents share no data edge, else 0
    low: Matrix
    high: Matrix

    def objective(self, Z: Matrix) -> float:
        """||Z o A||_1."""
        return float((self.penalised * abs(Z)).sum())

    def shrink(self, W: Matrix, penalty: float) -> Matrix:
        """Eq. (37): soft-threshold by 1/varrho where A is 1, keep where A is 0; then clip to the bounds."""
        threshold = self.penalised / penalty
        Z = W - np.minimum(np.maximum(W, -threshold), threshold)
        return np.asarray(np.minimum(np.maximum(Z, self.low), self.high))

    def feasible_dual(self, M: Matrix) -> Matrix:
        """Nearest M for which `least` is finite: |M| <= A where an entry is unbounded on that side."""
        A = self.penalised
        return np.clip(M, np.where(np.isinf(self.low), -A, -np.inf), np.where(np.isinf(self.high), A, np.inf))

    def least(self, M: Matrix) -> float:
        """sum_kz min_z (A_kz |z| - M_kz z) over low <= z <= high, for a feasible M."""
        A, low, high = self.penalised, self.low, self.high
        z = np.where(M > A, high, np.where(M < -A, low, np.clip(0.0, low, high)))
        return float((A * abs(z) - M * z).sum())


def problem_29(penalised: Matrix, nonnegative: bool = False) -> EntryPenalty:
    """Penalty of problem (29): no bounds, or C >= 0."""
    return EntryPenalty(
        penalised, np.full(penalised.shape, 0.0 if nonnegative else -np.inf), np.full(penalised.shape, np.inf)
    )


@dataclass(frozen=True)
class AdmmState:
    """An iterate: C is feasible, Z sparse, U the scaled multiplier of C = Z. Also a warm start."""

    C: Matrix
    Z: Matrix
    U: Matrix
    penalty: float  # varrho
    before: Matrix | None = None  # Z one iteration earlier

    @property
    def primal(self) -> float:
        """Primal residual ||C - Z||, relative to its terms."""
        return _norm(self.C - self.Z) / max(_norm(self.C), _norm(self.Z))

    @property
    def dual(self) -> float:
        """Dual residual varrho ||Z - Z before||, relative to the multiplier varrho U."""
        return np.inf if self.before is None else _norm(self.Z - self.before) / max(_norm(self.U), 1e-300)

    @property
    def multiplier(self) -> Matrix:
        """M = varrho U, feasible for the dual by (S.2) and (S.3)."""
        return self.penalty * self.U


def initial_state(num_agents: int) -> AdmmState:
    """Initial iterate: complete averaging, no multiplier, and a penalty sqrt(m) that suits all sizes."""
    Pi = np.full((num_agents, num_agents), 1.0 / num_agents)
    return AdmmState(Pi, Pi, np.zeros_like(Pi), float(np.sqrt(num_agents)))


def iterate(
    entries: EntryPenalty,
    radius: float | None,
    state: AdmmState,
    relaxation: float = 1.8,
    memory: int = 10,
    adaptive: bool = True,
) -> Iterator[AdmmState]:
    """Run Algorithm 2 without end: yield one state per iteration, until the caller stops.

    Over-relaxed by `relaxation`, and accelerated (anderson.py) from `memory` earlier steps in W = Z + U, the only state
    of the iteration. An `adaptive` penalty balances the residuals at growing intervals, so that it settles.
    `iterate_literally` switches all three off.
    """
    Z, U, penalty = state.Z, state.U, state.penalty
    W, accelerate = Z + U, Anderson(memory)
    iteration, adapt_at = 0, 10
    while True:
        C = project(Z - U, radius) if radius is not None else _prox_of_radius(Z - U, 1 / penalty)  # (S.1)
        step = relaxation * C + (1 - relaxation) * Z + U
        W = accelerate(W, step) if memory else step
        Z, before = entries.shrink(W, penalty), Z  # (S.2)
        U = W - Z  # (S.3)
        state = AdmmState(C, Z, U, penalty, before)
        yield state
        iteration += 1
        if adaptive and iteration == adapt_at:
            adapt_at += max(10, iteration // 4)
            factor = float(np.clip(np.sqrt(state.primal / max(state.dual, 1e-300)), 0.2, 5.0))
            if not 0.5 <= factor <= 2.0 and 1e-6 < penalty * factor < 1e6:
                penalty, U = penalty * factor, U / factor
                W = Z + U
                accelerate.forget()


def iterate_literally(entries: EntryPenalty, radius: float, state: AdmmState) -> Iterator[AdmmState]:
    """Run Algorithm 2 as printed: (S.1)-(S.3) from any C, Z, U with a constant penalty varrho."""
    return iterate(entries, radius, state, relaxation=1.0, memory=0, adaptive=False)


def project(X: Matrix, radius: float) -> Matrix:
    """Eq. (33)-(35): project X on the symmetric C with C1 = 1 and rho(C - Pi) <= radius."""
    Y = deflate(X)
    return _clip_spectrum(Y, *np.linalg.eigh(Y), radius)


def _prox_of_radius(X: Matrix, weight: float) -> Matrix:
    """argmin over C = C^T, C1 = 1 of  weight * rho(C - Pi) + ||C - X||^2 / 2.

    Equals eq. (33) with the radius for which sum_i (|lambda_i| - radius)_+ = weight.
    """
    Y = deflate(X)
    values, V = np.linalg.eigh(Y)
    sizes = np.sort(abs(values))[::-1]
    levels = (np.cumsum(sizes) - weight) / np.arange(1, len(sizes) + 1)
    return _clip_spectrum(Y, values, V, max(0.0, float(levels.max())))


def _clip_spectrum(Y: Matrix, values: Matrix, V: Matrix, radius: float) -> Matrix:
    """Eq. (33)-(34); subtracts the clipped part from Y where that is less work."""
    beta = np.clip(values, -radius, radius)
    cut = beta != values
    if 2 * cut.sum() < len(Y):
        return np.asarray(Y - (V[:, cut] * (values - beta)[cut]) @ V[:, cut].T + 1 / len(Y))
    return np.asarray((V * beta) @ V.T + 1 / len(Y))


def deflate(X: Matrix) -> Matrix:
    """Eq. (35): (I - Pi) (X + X^T)/2 (I - Pi)."""
    X = (X + X.T) / 2
    mean = X.sum(1) / len(X)
    return np.asarray(X - (mean[:, None] + (mean - mean.sum() / len(X))))


def lower_bound(entries: EntryPenalty, M: Matrix, radius: float) -> tuple[float, float]:
    """Lower bound on the objective of every feasible C by weak duality, and minus its slope in the radius.

    For a symmetric M,

    ||C o A||_1 >= sum_kz min_z (A|z| - M z) + <M, C>, where the first sum is 0 for |M| <= A without bounds, and over
    the C of (29)  <M, C> >= <M, Pi> - radius * ||(I - Pi) M (I - Pi)||_*.
    """
    M = entries.feasible_dual(M)
    nuclear = float(abs(np.linalg.eigvalsh(deflate(M))).sum())
    return entries.least(M) + float(M.sum()) / len(M) - radius * nuclear, nuclear


def spectral_radius(C: Matrix) -> float:
    """rho(C - Pi) of a symmetric C with C1 = 1."""
    return float(abs(np.linalg.eigvalsh(C - 1 / len(C))).max())


def _norm(X: Matrix) -> float:
    return float(np.sqrt(np.vdot(X, X)))
