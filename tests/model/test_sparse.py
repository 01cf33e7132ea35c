"""The sparse product against the dense one."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy import sparse

from gossamer.model.sparse import make_operator, make_pattern

SIZES = st.integers(0, 8)
TAILS = pytest.mark.parametrize("tail", [(3,), (2, 3), (1,)], ids=str)


def matrix(rows: int, columns: int, seed: int) -> np.ndarray:
    random = np.random.default_rng(seed)
    return random.normal(size=(rows, columns)) * (random.random((rows, columns)) < 0.4)


@TAILS
@given(SIZES, SIZES, st.integers(0, 10**6))
def test_operator_and_its_transpose(tail: tuple[int, ...], rows: int, columns: int, seed: int) -> None:
    M = matrix(rows, columns, seed)
    operator = make_operator(sparse.csr_array(M), torch.float64)
    random = np.random.default_rng(seed)
    x, g = random.normal(size=(columns, *tail)), random.normal(size=(rows, *tail))
    assert operator.shape == (rows, columns)
    np.testing.assert_allclose((operator @ torch.from_numpy(x)).numpy(), np.tensordot(M, x, 1), atol=1e-13)
    found = operator.transposed_times(torch.from_numpy(g)).numpy()
    np.testing.assert_allclose(found, np.tensordot(M.T, g, 1), atol=1e-13)


@pytest.mark.parametrize("layout", [sparse.csr_array, sparse.csc_array, sparse.coo_array])
def test_any_layout_makes_an_operator(layout: type) -> None:
    M = matrix(5, 4, 1)
    x = torch.eye(4, dtype=torch.float64)
    np.testing.assert_array_equal((make_operator(layout(M), torch.float64) @ x).numpy(), M)


def test_rows_without_entries_give_zero() -> None:
    M = np.array([[0.0, 0.0], [1.0, 2.0], [0.0, 0.0]])
    product = make_operator(sparse.csr_array(M), torch.float64) @ torch.ones(2, 3, dtype=torch.float64)
    np.testing.assert_array_equal(product.numpy(), [[0.0] * 3, [3.0] * 3, [0.0] * 3])


def test_a_pattern_takes_any_values() -> None:
    M = sparse.csr_array(matrix(6, 5, 2))
    values, x = np.random.default_rng(3).normal(size=M.nnz), np.random.default_rng(4).normal(size=(5, 2))
    expected = sparse.csr_array((values, M.indices, M.indptr), shape=M.shape) @ x
    found = make_pattern(M).times(torch.from_numpy(values), torch.from_numpy(x))
    np.testing.assert_allclose(found.numpy(), expected, atol=1e-14)


def test_rows_that_do_not_lie_in_order_in_memory() -> None:
    M, x = matrix(4, 4, 5), np.random.default_rng(6).normal(size=(3, 4))
    product = make_operator(sparse.csr_array(M), torch.float64) @ torch.from_numpy(x).T
    np.testing.assert_allclose(product.numpy(), M @ x.T, atol=1e-14)


def test_single_precision_stays_single() -> None:
    M = matrix(4, 4, 7)
    product = make_operator(sparse.csr_array(M), torch.float32) @ torch.eye(4)
    assert product.dtype == torch.float32
    np.testing.assert_array_equal(product.numpy(), M.astype(np.float32))
