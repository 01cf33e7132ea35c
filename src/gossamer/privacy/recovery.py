"""Recovery of features from known linear equations: least squares, or sparse recovery where most features are 0.

Sparse features that are not negative are found by a lasso (Tibshirani 1996, "Regression shrinkage and selection via the
lasso"), others by orthogonal matching pursuit (Pati, Rezaiifar and Krishnaprasad 1993, "Orthogonal matching pursuit:
recursive function approximation with applications to wavelet decomposition"). A vertex is tried alone if there are
enough equations, else together with the vertices of a row that it is in, fewest first.
"""

import warnings
from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np
from scipy import linalg
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import Lasso, orthogonal_mp

from gossamer.array_types import Floats, Ints
from gossamer.privacy.equations import SenderRows

MOST_UNKNOWNS = 900  # of one least-squares problem
MOST_VERTICES = 3  # of one sparse problem
EQUATIONS_PER_UNKNOWN = 8.0  # some features are dropped at many steps
SPARSE_EQUATIONS = 768  # for each vertex of a sparse problem
FEW_EQUATIONS = 3.0  # for each nonzero feature, below which sparse recovery is not tried
PENALTY, LASSO_ROUNDS = 1e-4, 2000  # of the lasso
CANDIDATE = 1e-3  # of its largest coefficient, above which a feature may be nonzero
CONDITION = 1e-11  # smallest eigenvalue of A^T A, relative to the largest, of a solvable problem
FITS = 1e-3  # relative residual of a solution that is believed


@dataclass
class Recovery:
    """Features found so far of one sender's vertices, by column: those of a row come together, and help with others."""

    rows: SenderRows
    nonzeros: Ints | None  # numbers of features that are not 0 in vertices of one's own; None: features are dense
    nonnegative: bool = False  # features are, in vertices of one's own
    found: dict[int, Floats] = field(default_factory=dict)
    tried: dict[frozenset[int], int] = field(default_factory=dict)  # with how many rows

    def recover(self, columns: Iterable[int]) -> dict[int, Floats]:
        """The features of these vertices, as far as equations and unknowns allow it."""
        targets = list(columns)
        if self.nonzeros is None:  # their companions, too: what is known of these can be subtracted
            self._sweep(sorted({j for column in targets for s in self._supports(column) for j in s}))
        self._sweep(targets)
        return {j: self.found[j] for j in targets if j in self.found}

    def _sweep(self, columns: list[int]) -> None:
        """Try every vertex, until nothing more is found."""
        before = -1
        while len(self.found) > before:
            before = len(self.found)
            for column in columns:
                for chosen in self._candidates(column):
                    if column in self.found:
                        break
                    both = self.rows.evaluation, self.rows.training
                    count = sum(len(rows.within(chosen, self.found)) for rows in both)
                    if count > self.tried.get(chosen, 0):
                        self.tried[chosen] = count
                        self._solve(sorted(chosen))

    def _supports(self, column: int) -> list[frozenset[int]]:
        return [s for rows in (self.rows.evaluation, self.rows.training) for s in rows.supports if column in s]

    def _candidates(self, column: int) -> list[frozenset[int]]:
        """Sets of vertices to solve for together, small ones first."""
        most = MOST_VERTICES if self.nonzeros is not None else max(1, MOST_UNKNOWNS // self.rows.num_features)
        open_ = {frozenset([column])} | {s.difference(self.found) for s in self._supports(column)}
        return sorted((s for s in open_ if len(s) <= most), key=lambda s: (len(s), sorted(s)))

    def _solve(self, columns: list[int]) -> None:
        d, size = self.rows.num_features, len(columns)
        wanted = SPARSE_EQUATIONS * size if self.nonzeros is not None else int(EQUATIONS_PER_UNKNOWN * size * d)
        A, y = self.rows.build(columns, self.found, wanted)
        if self.nonzeros is None:
            x = solve_least_squares(A, y)
        else:
            x = solve_sparse(A, y, self.nonzeros, size, self.nonnegative)
        if x is not None and np.linalg.norm(A @ x - y) <= FITS * np.linalg.norm(y):
            self.found.update(dict(zip(columns, x.reshape(size, d), strict=True)))


def solve_least_squares(A: Floats, y: Floats) -> Floats | None:
    """The solution of A x = y by normal equations; None if A has not full column rank."""
    if len(A) < A.shape[1]:
        return None
    G = A.T @ A
    values = linalg.eigvalsh(G)
    if values[0] <= CONDITION * values[-1]:
        return None
    return np.asarray(linalg.solve(G, A.T @ y, assume_a="pos"))


def solve_sparse(A: Floats, y: Floats, nonzeros: Ints, size: int, nonnegative: bool = False) -> Floats | None:
    """A solution with few nonzero features: a lasso, or a pursuit, finds candidates, and least squares their values.

    `nonzeros` are the numbers of features that vertices usually have, of which `size` are solved for.
    """
    norms = np.maximum(np.linalg.norm(A, axis=0), 1e-12) if len(A) else np.ones(A.shape[1])
    if len(A) < FEW_EQUATIONS * np.median(nonzeros) * size:
        return None
    B, side = (A / norms).astype(np.float32), y.astype(np.float32)
    if nonnegative:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)  # candidates are enough
            found = Lasso(alpha=PENALTY * float(np.abs(side).max()), positive=True, fit_intercept=False,
                          max_iter=LASSO_ROUNDS).fit(B, side).coef_  # fmt: skip
    else:
        count = int(min(np.percentile(nonzeros, 95) * size, len(A) / 2))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", RuntimeWarning)  # an exact solution ends the pursuit early
            found = orthogonal_mp(B, side, n_nonzero_coefs=max(count, 1))
    likely = np.argsort(-np.abs(found), kind="stable")[: len(A) // 2]
    likely = likely[np.abs(found[likely]) > CANDIDATE * np.abs(found).max()]
    x = np.zeros(A.shape[1])
    x[likely] = np.linalg.lstsq(A[:, likely], y, rcond=None)[0]
    return x
