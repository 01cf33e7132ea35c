"""Anderson acceleration of a fixed-point iteration W <- G(W), for the slow last digits of Algorithm 2.

Anderson 1965, Iterative procedures for nonlinear integral equations; in the form of Walker and Ni 2011, Anderson
acceleration for fixed-point iterations, periodic (plain steps in between) and safeguarded.
"""

import numpy as np

from gossamer.topology.families import Matrix

UNDERFLOW = 1e-200  # squared steps below this are rounding, near the smallest floating-point numbers
ACCELERATE_EVERY = 5  # steps


class Anderson:
    """Accelerator: every fifth step combines the last `memory` steps, and is undone if it increases the residual.

    With f = G(W) - W it minimises ||f - sum_i gamma_i df_i|| over these steps i and takes G(W) - sum_i gamma_i dg_i.
    Plain steps never increase the residual of a non-expansive G, so neither does the whole iteration.
    """

    def __init__(self, memory: int) -> None:
        self._memory = memory
        self.forget()

    def forget(self) -> None:
        """Restart, because G has changed."""
        self._steps = 0
        self._last: tuple[Matrix, Matrix, float] | None = None  # residual, plain step and norm, one call ago
        self._on_trial = False

    def __call__(self, W: Matrix, step: Matrix) -> Matrix:
        """Next iterate after W, where `step` is the plain step G(W)."""
        f, g = (step - W).ravel(), step.ravel()
        size = float(np.sqrt(f @ f))
        if self._last is None:
            self._df, self._dg = np.empty((2, self._memory, f.size))
            self._gram = np.zeros((self._memory, self._memory))
        else:
            f_before, g_before, size_before = self._last
            if self._on_trial and size > size_before:
                self.forget()
                return g_before.reshape(W.shape)
            place = self._steps % self._memory
            np.subtract(f, f_before, out=self._df[place])
            np.subtract(g, g_before, out=self._dg[place])
            self._steps += 1
            known = self._df[: min(self._steps, self._memory)]
            self._gram[place, : len(known)] = self._gram[: len(known), place] = known @ self._df[place]
        self._last = (f, g, size)
        count = min(self._steps, self._memory)
        gram = self._gram[:count, :count]
        scale = float(gram.trace())
        self._on_trial = scale > UNDERFLOW and self._steps % ACCELERATE_EVERY == ACCELERATE_EVERY - 1
        if not self._on_trial:
            return step
        gamma = np.linalg.solve(gram + 1e-10 * scale * np.eye(count), self._df[:count] @ f)
        return np.asarray(g - gamma @ self._dg[:count]).reshape(W.shape)
