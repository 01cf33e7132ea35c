"""Shift operators against their dense formulas."""

import numpy as np
import pytest
from hypothesis import given
from numpy.typing import NDArray
from oracles.graphs import adjacencies, csr, cycles, random_adjacency

from gossamer.errors import GossamerError
from gossamer.model import SHIFTS, make_shift
from gossamer.model.shift import scaled_laplacian


def dense_shift(A: NDArray[np.float64], kind: str) -> NDArray[np.float64]:
    one = np.eye(len(A))
    degree: NDArray[np.float64] = A.sum(1)
    if kind == "identity":
        return one
    if kind == "laplacian":
        return np.diag(degree) - A
    if kind == "random-walk":
        return (A + one) / (degree + 1)[:, None]
    if kind == "normalized":
        return (A + one) / np.sqrt(np.outer(degree + 1, degree + 1))
    if kind in ("sum", "mean"):  # edges count alike, whatever their weights
        there: NDArray[np.float64] = (A != 0).astype(np.float64)
        mean: NDArray[np.float64] = there / np.maximum(there.sum(1), 1.0)[:, None]
        return there if kind == "sum" else mean
    outer = np.outer(degree, degree)
    return -np.divide(A, np.sqrt(outer), out=np.zeros_like(A), where=outer > 0)  # 2 L / 2 - I


@pytest.mark.parametrize("kind", SHIFTS)
@given(adjacencies())
def test_a_shift_is_its_formula(kind: str, A: np.ndarray) -> None:
    shift = make_shift(csr(A), kind)
    assert shift.format == "csr"
    np.testing.assert_allclose(shift.toarray(), dense_shift(A, kind), atol=1e-13)


@pytest.mark.parametrize("kind", ["normalized", "laplacian", "scaled-laplacian", "identity"])
@given(adjacencies())
def test_all_but_the_random_walk_are_symmetric(kind: str, A: np.ndarray) -> None:
    shift = make_shift(csr(A), kind).toarray()
    np.testing.assert_allclose(shift, shift.T, atol=1e-15)


@pytest.mark.parametrize("kind", ["normalized", "scaled-laplacian"])
@given(adjacencies())
def test_the_spectrum_lies_between_minus_one_and_one(kind: str, A: np.ndarray) -> None:
    assert abs(np.linalg.eigvalsh(make_shift(csr(A), kind).toarray())).max() <= 1 + 1e-12


@given(adjacencies())
def test_a_random_walks_rows_sum_to_one(A: np.ndarray) -> None:
    np.testing.assert_allclose(make_shift(csr(A), "random-walk").sum(1), np.ones(len(A)), atol=1e-14)


def test_scaled_laplacian_with_the_largest_eigenvalue_computed() -> None:
    A = random_adjacency(12, 0.3, seed=0)
    root = np.sqrt(A.sum(1))
    L = np.eye(12) - A / np.outer(root, root)
    expected = 2 * L / np.linalg.eigvalsh(L).max() - np.eye(12)
    np.testing.assert_allclose(scaled_laplacian(csr(A), A.sum(1), largest=None).toarray(), expected, atol=1e-12)


def test_scaled_laplacian_stores_no_zeros() -> None:
    assert make_shift(csr(cycles(5, 1)), "scaled-laplacian").nnz == 10


def test_an_unknown_shift_is_refused() -> None:
    with pytest.raises(GossamerError, match=r"shift among normalized, .*got 'wide'"):
        make_shift(csr(cycles(3)), "wide")
