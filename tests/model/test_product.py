"""x~_r = W_slab(r)^T x_input(r): the batched products against one row at a time, forward and backward."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse
from torch import Tensor

from gossamer.model.product import LONG_STRETCH, plan_dense, plan_sparse

INPUTS, WIDTH, OUT = 7, 3, 2
BATCH = pytest.mark.parametrize("batch", [(), (4,)], ids=["plain", "batch"])


def row_by_row(x: Tensor, weight: Tensor, input_row: np.ndarray, slab: np.ndarray) -> Tensor:
    rows = [x[i] @ weight[s] for i, s in zip(input_row, slab, strict=True)]
    return torch.stack(rows) if rows else x.new_zeros(0, *x.shape[1:-1], weight.shape[-1])


def drawn(
    rows: int, slabs: int, seed: int, batch: tuple[int, ...] = ()
) -> tuple[Tensor, Tensor, np.ndarray, np.ndarray]:
    """x, weights, and for each row its input and its slab; a few slabs have many rows, some have none."""
    random = np.random.default_rng(seed)
    popular = random.dirichlet(np.full(slabs, 0.5))
    return (
        torch.from_numpy(random.normal(size=(INPUTS, *batch, WIDTH))),
        torch.from_numpy(random.normal(size=(slabs, WIDTH, OUT))),
        random.integers(0, INPUTS, rows),
        random.choice(slabs, rows, p=popular),
    )


def sparse_rows(seed: int) -> sparse.csr_array:
    """Half of the entries zero, one row wholly, and an explicit zero among the entries."""
    random = np.random.default_rng(seed)
    dense = random.normal(size=(INPUTS, WIDTH)) * (random.random((INPUTS, WIDTH)) < 0.5)
    dense[2], dense[3] = 0.0, 1.0
    features = sparse.csr_array(dense)
    features.data[-1] = 0.0
    return features


def gradients(y: Tensor, wrt: list[Tensor], seed: int) -> tuple[Tensor, ...]:
    g = torch.from_numpy(np.random.default_rng(seed).normal(size=tuple(y.shape)))
    return torch.autograd.grad(y, wrt, g)


@BATCH
@given(st.integers(0, 40), st.integers(1, 9), st.integers(0, 10**6))
def test_dense_product_and_gradients(batch: tuple[int, ...], rows: int, slabs: int, seed: int) -> None:
    x, weight, input_row, slab = drawn(rows, slabs, seed, batch)
    x.requires_grad_()
    weight.requires_grad_()
    found = plan_dense(input_row, slab, INPUTS, torch.float64)(x, weight)
    expected = row_by_row(x, weight, input_row, slab)
    torch.testing.assert_close(found, expected.detach(), rtol=1e-12, atol=1e-12, check_stride=False)
    if rows:
        for mine, theirs in zip(
            gradients(found, [x, weight], seed), gradients(expected, [x, weight], seed), strict=True
        ):
            torch.testing.assert_close(mine, theirs, rtol=1e-12, atol=1e-12)


@BATCH
def test_dense_product_gradcheck(batch: tuple[int, ...]) -> None:
    x, weight, input_row, slab = drawn(13, 4, 0, batch)
    plan = plan_dense(input_row, slab, INPUTS, torch.float64)
    assert torch.autograd.gradcheck(plan, (x.requires_grad_(), weight.requires_grad_()))


def test_dense_product_in_several_batches_of_slabs() -> None:
    slab = np.repeat(np.arange(4), [5000, 4000, 100, 3])
    np.random.default_rng(1).shuffle(slab)
    input_row = np.random.default_rng(2).integers(0, INPUTS, len(slab))
    x, weight, _, _ = drawn(1, 5, 3)
    plan = plan_dense(input_row, slab, INPUTS, torch.float64)
    assert len(plan.batches) > 1
    x.requires_grad_()
    weight.requires_grad_()
    found, expected = plan(x, weight), row_by_row(x, weight, input_row, slab)
    torch.testing.assert_close(found.detach(), expected.detach(), rtol=1e-12, atol=1e-12)
    for mine, theirs in zip(gradients(found, [x, weight], 4), gradients(expected, [x, weight], 4), strict=True):
        torch.testing.assert_close(mine, theirs, rtol=1e-10, atol=1e-10)


@given(st.lists(st.integers(1, 3000), min_size=1, max_size=30))
def test_padding_at_most_doubles_the_rows_or_adds_a_few(counts: list[int]) -> None:
    slab = np.repeat(np.arange(len(counts)), counts)
    plan = plan_dense(np.zeros(len(slab), dtype=np.int64), slab, 1, torch.float64)
    assert sum(counts) <= plan.size <= 2 * sum(counts) + 2048


def test_no_rows_at_all_give_zero_gradients() -> None:
    x, weight, input_row, slab = drawn(0, 3, 0)
    x.requires_grad_()
    weight.requires_grad_()
    y = plan_dense(input_row, slab, INPUTS, torch.float64)(x, weight)
    assert y.shape == (0, OUT)
    for g, like in zip(gradients(y, [x, weight], 0), (x, weight), strict=True):
        torch.testing.assert_close(g, torch.zeros_like(like))


def test_a_slab_without_rows_has_a_zero_gradient() -> None:
    x, weight, _, _ = drawn(1, 3, 0)
    weight.requires_grad_()
    y = plan_dense(np.array([0, 1, 1]), np.array([2, 0, 2]), INPUTS, torch.float64)(x, weight)
    (g,) = gradients(y, [weight], 0)
    assert (g[1] == 0).all()
    assert (g[[0, 2]] != 0).any(-1).any(-1).all()


@given(st.integers(0, 40), st.integers(1, 9), st.integers(0, 10**6))
def test_sparse_product_and_gradient(rows: int, slabs: int, seed: int) -> None:
    _, weight, input_row, slab = drawn(rows, slabs, seed)
    features = sparse_rows(seed)
    weight.requires_grad_()
    plan = plan_sparse(features, input_row, slab, slabs, torch.float64)
    found = plan(plan.values, weight)
    expected = row_by_row(torch.from_numpy(features.toarray()), weight, input_row, slab)
    torch.testing.assert_close(found.detach(), expected.detach(), rtol=1e-12, atol=1e-12)
    if rows:
        torch.testing.assert_close(
            gradients(found, [weight], seed), gradients(expected, [weight], seed), rtol=1e-12, atol=1e-12
        )


def test_sparse_product_with_other_values_than_planned() -> None:
    """As dropout does it: the entries are changed, each at the row and feature that the plan names."""
    _, weight, input_row, slab = drawn(12, 4, 5)
    features = sparse_rows(5)
    plan = plan_sparse(features, input_row, slab, 4, torch.float64)
    factor = torch.from_numpy(np.random.default_rng(6).normal(size=(12, WIDTH)))
    values = plan.values * factor[plan.entry_row, plan.entry_feature]
    x = torch.from_numpy(features.toarray()[input_row]) * factor
    weight.requires_grad_()
    found, expected = plan(values, weight), row_by_row(x, weight, np.arange(12), slab)
    torch.testing.assert_close(found.detach(), expected.detach(), rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(gradients(found, [weight], 7), gradients(expected, [weight], 7), rtol=1e-12, atol=1e-12)


def test_sparse_product_gradcheck() -> None:
    _, weight, input_row, slab = drawn(11, 4, 2)
    plan = plan_sparse(sparse_rows(2), input_row, slab, 4, torch.float64)
    assert torch.autograd.gradcheck(lambda w: plan(plan.values, w), (weight.requires_grad_(),))


@pytest.mark.parametrize("kind", [np.int64, np.bool_, np.float32])
def test_sparse_features_of_other_types_are_converted(kind: type) -> None:
    features = sparse.csr_array(np.array([[0, 1], [1, 0]]).astype(kind))
    plan = plan_sparse(features, np.array([0, 1]), np.array([0, 0]), 1, torch.float64)
    weight = torch.tensor([[[2.0, 3.0], [5.0, 7.0]]], dtype=torch.float64)
    torch.testing.assert_close(plan(plan.values, weight), torch.tensor([[5.0, 7.0], [2.0, 3.0]], dtype=torch.float64))


@BATCH
@settings(max_examples=15, deadline=None)
@given(st.data())
def test_stretches_and_batches_together(batch: tuple[int, ...], data: st.DataObject) -> None:
    """Large slabs that lie together are multiplied in place, small and scattered ones in batches; some inputs serve
    twice and some never."""
    large, small = data.draw(st.integers(LONG_STRETCH, LONG_STRETCH + 3)), data.draw(st.integers(1, 5))
    random = np.random.default_rng(data.draw(st.integers(0, 10**6)))
    inputs = large + 10
    first = data.draw(st.integers(0, 8))
    input_row = np.concatenate([np.arange(first, first + large), random.integers(0, inputs, small)])
    slab = np.concatenate([np.full(large, 1), random.choice([0, 3], small)])
    if data.draw(st.booleans()):
        input_row, slab = input_row[::-1].copy(), slab[::-1].copy()  # descending rows do not lie together
    x = torch.from_numpy(random.normal(size=(inputs, *batch, WIDTH))).requires_grad_()
    weight = torch.from_numpy(random.normal(size=(4, WIDTH, OUT))).requires_grad_()
    plan = plan_dense(input_row, slab, inputs, torch.float64)
    assert len(plan.stretches) == int(slab[0] == 1)
    found, expected = plan(x, weight), row_by_row(x, weight, input_row, slab)
    torch.testing.assert_close(found, expected, rtol=1e-12, atol=1e-12)
    for mine, theirs in zip(gradients(found, [x, weight], 1), gradients(expected, [x, weight], 1), strict=True):
        torch.testing.assert_close(mine, theirs, rtol=1e-10, atol=1e-10)
