"""Products of the entries that dropout keeps against one row at a time, and the choice between products."""

from typing import Any

import numpy as np
import pytest
import torch
from model.test_product import WIDTH, drawn, gradients, row_by_row, sparse_rows
from scipy import sparse

from gossamer.model import selected_product
from gossamer.model.product import plan_sparse
from gossamer.model.selected_product import Kept, convert_features, plan_selected


@pytest.mark.parametrize("uniform", [False, True], ids=["any values", "one value for each feature"])
def test_selected_entries_with_dropout(uniform: bool) -> None:
    """Entries are left out by their positions in either order, each at the row and feature that the plan names."""
    _, weight, input_row, slab = drawn(12, 4, 5)
    features = sparse_rows(5)
    if uniform:
        features.data[:] = np.array([1.0, 0.3, -2.0])[features.indices]
    whole = plan_sparse(features, input_row, slab, 4, torch.float64)
    plan, to_transposed = plan_selected(whole, WIDTH), whole.to_transposed.numpy()
    assert (plan.uniform is not None) == uniform
    kept = np.random.default_rng(6).random((12, WIDTH)) < 0.6

    def keep(order: int) -> Kept:
        there = kept[whole.entry_row, whole.entry_feature]
        there = there[to_transposed] if order else there
        return Kept(torch.from_numpy(np.flatnonzero(there)), 1.25)

    x = torch.from_numpy(features.toarray()[input_row] * kept * 1.25)
    weight.requires_grad_()
    found, expected = plan(weight, keep), row_by_row(x, weight, np.arange(12), slab)
    torch.testing.assert_close(found.detach(), expected.detach(), rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(gradients(found, [weight], 7), gradients(expected, [weight], 7), rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(plan.rows(keep), x, rtol=1e-12, atol=0)
    torch.testing.assert_close(plan.rows(), torch.from_numpy(features.toarray()[input_row]), rtol=1e-12, atol=0)


@pytest.mark.parametrize("stored", [np.asarray, sparse.csr_array], ids=["dense", "sparse"])
@pytest.mark.parametrize(("density", "is_sparse"), [(0.35, True), (0.95, False)])
def test_the_density_decides_on_the_form_of_the_product(stored: Any, density: float, is_sparse: bool) -> None:
    random = np.random.default_rng(0)
    features = (random.random((500, 40)) < density).astype(np.float32)
    found = convert_features(stored(features), 1)
    assert sparse.issparse(found) == is_sparse
    np.testing.assert_array_equal(found.toarray() if is_sparse else found, features)


def test_features_that_are_large_or_few_or_have_a_batch_axis_stay_dense(monkeypatch: pytest.MonkeyPatch) -> None:
    features = np.tile(np.eye(2), (200, 1))
    assert sparse.issparse(convert_features(features, 1))
    assert convert_features(features, 10) is features  # few entries for each agent
    assert not sparse.issparse(convert_features(features[:, None], 1))
    monkeypatch.setattr(selected_product, "MAX_ENTRIES", 5)
    assert convert_features(features, 1) is features
