"""Horner's and Clenshaw's rules against dense matrix polynomials, forward and transposed, on fields of every size."""

from collections.abc import Callable, Generator
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from gossamer.model.gather import Chebyshev, Gather, Monomial

FILTERS = pytest.mark.parametrize(
    "chosen",
    [
        Monomial((1,)),
        Monomial((0,)),
        Monomial((0, 1, 2, 3)),
        Monomial((0, 2)),
        Monomial((1, 3)),
        Chebyshev(0),
        Chebyshev(1),
        Chebyshev(2),
        Chebyshev(3),
        Chebyshev(5),
    ],
    ids=str,
)
N, WIDTH = 9, 3


def polynomial(chosen: Gather, D: np.ndarray, p: int) -> np.ndarray:
    """f_p(D), a monomial or NumPy's own Chebyshev polynomial, power by power."""
    coefficients = np.eye(p + 1)[p]
    if isinstance(chosen, Chebyshev):
        coefficients = np.polynomial.chebyshev.cheb2poly(coefficients)
    return sum((c * np.linalg.matrix_power(D, q) for q, c in enumerate(coefficients)), np.zeros_like(D))


def random_shift(seed: int, density: float = 0.25) -> np.ndarray:
    """Not symmetric, some rows and columns empty, so that nothing hides behind a symmetry."""
    random = np.random.default_rng(seed)
    return random.normal(size=(N, N)) * (random.random((N, N)) < density)


def drive(steps: Generator[Tensor, Tensor, Any], matrices: list[np.ndarray]) -> Any:
    """Answer each yielded u with the next matrix times u; exactly that many propagations must be asked for."""
    answers = iter(matrices)
    try:
        u = next(steps)
        while True:
            u = steps.send(torch.from_numpy(next(answers)) @ u)
    except StopIteration as done:
        assert next(answers, None) is None
        return done.value


def answered(walk: Generator[np.ndarray, np.ndarray, Any], neighbours: Callable[[np.ndarray], np.ndarray]) -> Any:
    try:
        rows = next(walk)
        while True:
            rows = walk.send(neighbours(rows))
    except StopIteration as done:
        return done.value


class Restricted:
    """A filter on the fields that `outputs` needs: its propagation matrices and where fields lie in one another."""

    def __init__(self, chosen: Gather, D: np.ndarray, outputs: np.ndarray) -> None:
        self.filter = chosen
        self.fields = answered(chosen.fields(outputs), lambda rows: (D[rows] != 0).any(0))
        self.blocks = [D[np.ix_(to, at)] for to, at in zip(self.fields, self.fields[1:], strict=False)]
        self.within = {
            (q, p): torch.from_numpy(np.flatnonzero(self.fields[q][self.fields[p]])) for q, p in chosen.nested
        }

    def combine(self, terms: list[np.ndarray]) -> np.ndarray:
        on_fields = [torch.from_numpy(x[self.fields[p]]) for p, x in zip(self.filter.powers, terms, strict=True)]
        found: np.ndarray = drive(self.filter.combine(on_fields, self.within), self.blocks[::-1]).numpy()
        return found

    def transposed(self, g: np.ndarray) -> list[np.ndarray]:
        """The gradients of all x_p, spread to all vertices."""
        steps = self.filter.combine_transposed(torch.from_numpy(g), self.within)
        results = drive(steps, [block.T.copy() for block in self.blocks])
        spread = []
        for p, result in zip(self.filter.powers, results, strict=True):
            spread.append(np.zeros((N, WIDTH)))
            spread[-1][self.fields[p]] = result.numpy()
        return spread


def drawn_terms(chosen: Gather, seed: int) -> list[np.ndarray]:
    random = np.random.default_rng(seed + 1)
    return [random.normal(size=(N, WIDTH)) for _ in chosen.powers]


def everywhere() -> np.ndarray:
    return np.ones(N, dtype=bool)


@FILTERS
def test_combine_is_the_polynomial_on_all_rows(chosen: Gather) -> None:
    D, terms = random_shift(0), drawn_terms(chosen, 0)
    full = Restricted(chosen, D, everywhere())
    full.fields = [everywhere()] * len(full.fields)
    full.blocks = [D] * len(full.blocks)
    full.within = dict.fromkeys(chosen.nested, torch.arange(N))
    expected = sum(polynomial(chosen, D, p) @ x for p, x in zip(chosen.powers, terms, strict=True))
    np.testing.assert_allclose(full.combine(terms), expected, rtol=1e-11, atol=1e-11)
    g = np.random.default_rng(9).normal(size=(N, WIDTH))
    for p, found in zip(chosen.powers, full.transposed(g), strict=True):
        np.testing.assert_allclose(found, polynomial(chosen, D, p).T @ g, rtol=1e-11, atol=1e-11)


@FILTERS
@given(st.lists(st.booleans(), min_size=N, max_size=N), st.integers(0, 10**6))
def test_restricted_fields_lose_nothing(chosen: Gather, rows: list[bool], seed: int) -> None:
    D, terms, outputs = random_shift(seed), drawn_terms(chosen, seed), np.array(rows)
    expected = sum(polynomial(chosen, D, p) @ x for p, x in zip(chosen.powers, terms, strict=True))[outputs]
    found = Restricted(chosen, D, outputs).combine(terms)
    np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-9)


@FILTERS
@given(st.lists(st.booleans(), min_size=N, max_size=N), st.integers(0, 10**6))
def test_transposed_is_the_transpose(chosen: Gather, rows: list[bool], seed: int) -> None:
    D, terms, outputs = random_shift(seed), drawn_terms(chosen, seed), np.array(rows)
    restricted = Restricted(chosen, D, outputs)
    y = np.random.default_rng(seed + 2).normal(size=(int(outputs.sum()), WIDTH))
    gradients = restricted.transposed(y)
    for p, found in zip(chosen.powers, gradients, strict=True):
        np.testing.assert_allclose(found, polynomial(chosen, D, p)[outputs].T @ y, rtol=1e-9, atol=1e-9)
    forward = (y * restricted.combine(terms)).sum()
    backward = sum((g * x).sum() for g, x in zip(gradients, terms, strict=True))
    np.testing.assert_allclose(forward, backward, rtol=1e-9, atol=1e-9)


@FILTERS
@given(st.lists(st.booleans(), min_size=N, max_size=N), st.integers(0, 10**6))
def test_fields_hold_no_row_that_no_output_needs(chosen: Gather, rows: list[bool], seed: int) -> None:
    D, outputs = random_shift(seed), np.array(rows)
    fields = Restricted(chosen, D, outputs).fields
    assert len(fields) == chosen.powers[-1] + 1
    np.testing.assert_array_equal(fields[0], outputs)
    for p, field in enumerate(fields):
        walks = [
            np.linalg.matrix_power((D != 0).astype(float), q)[outputs].any(0)
            for q in (range(p % 2, p + 1, 2) if isinstance(chosen, Chebyshev) else [p])
        ]
        assert not (field & ~np.logical_or.reduce(walks)).any()


@FILTERS
def test_what_goes_in_is_left_unchanged(chosen: Gather) -> None:
    D = random_shift(4)
    restricted = Restricted(chosen, D, everywhere())
    fields = [restricted.fields[p] for p in chosen.powers]
    terms = [torch.from_numpy(x[field]) for x, field in zip(drawn_terms(chosen, 4), fields, strict=True)]
    g = torch.ones(N, WIDTH, dtype=torch.float64)
    copies, g_copy = [x.clone() for x in terms], g.clone()
    drive(chosen.combine(terms, restricted.within), restricted.blocks[::-1])
    drive(chosen.combine_transposed(g, restricted.within), [b.T.copy() for b in restricted.blocks])
    assert all(torch.equal(x, copy) for x, copy in zip([*terms, g], [*copies, g_copy], strict=True))
