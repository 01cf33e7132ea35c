"""l(y^, y): cross-entropy, binary cross-entropy and squared error from their formulas."""

import numpy as np
import pytest
import torch

from gossamer.model.losses import losses


def test_cross_entropy_is_minus_log_softmax() -> None:
    random = np.random.default_rng(0)
    outputs, classes = random.normal(size=(6, 4)), random.integers(0, 4, 6)
    expected = np.log(np.exp(outputs).sum(1)) - outputs[np.arange(6), classes]
    torch.testing.assert_close(losses(torch.from_numpy(outputs), torch.from_numpy(classes)), torch.from_numpy(expected))


def test_cross_entropy_of_large_outputs_is_finite() -> None:
    outputs = torch.tensor([[1000.0, 0.0], [0.0, 1000.0]], dtype=torch.float64)
    torch.testing.assert_close(losses(outputs, torch.tensor([0, 0])), torch.tensor([0.0, 1000.0], dtype=torch.float64))


def test_an_unknown_class_does_not_disturb_the_others() -> None:
    """DataGraph marks vertices without a class by -1; a whole-graph evaluation meets them, no mask counts them."""
    outputs = torch.tensor([[1.0, 2.0], [0.0, 0.0], [3.0, 1.0]], dtype=torch.float64)
    found = losses(outputs, torch.tensor([0, -1, 1]))
    torch.testing.assert_close(found[[0, 2]], losses(outputs[[0, 2]], torch.tensor([0, 1])))
    assert found.isfinite().all()


@pytest.mark.parametrize("shape", [(5, 1), (5, 3), (5, 4, 3)])
def test_squared_error_is_the_mean_over_the_width(shape: tuple[int, ...]) -> None:
    random = np.random.default_rng(0)
    outputs, targets = random.normal(size=shape), random.normal(size=shape)
    expected = ((outputs - targets) ** 2).sum(-1) / shape[-1]
    torch.testing.assert_close(losses(torch.from_numpy(outputs), torch.from_numpy(targets)), torch.from_numpy(expected))


@pytest.mark.parametrize("weighted", [False, True])
def test_binary_cross_entropy_is_the_mean_over_the_labels(weighted: bool) -> None:
    random = np.random.default_rng(0)
    outputs, labels = random.normal(size=(6, 4)), random.random((6, 4)) < 0.5
    weight = random.uniform(0.5, 3, 4) if weighted else np.ones(4)
    chance = 1 / (1 + np.exp(-outputs))
    expected = -np.where(labels, weight * np.log(chance), np.log(1 - chance)).sum(1) / 4
    given = torch.from_numpy(weight) if weighted else None
    found = losses(torch.from_numpy(outputs), torch.from_numpy(labels), given)
    torch.testing.assert_close(found, torch.from_numpy(expected))


def test_binary_cross_entropy_of_large_outputs_is_finite() -> None:
    outputs = torch.tensor([[1000.0, -1000.0], [-1000.0, 1000.0]], dtype=torch.float64)
    found = losses(outputs, torch.tensor([[True, False], [True, False]]))
    torch.testing.assert_close(found, torch.tensor([0.0, 1000.0], dtype=torch.float64))


@pytest.mark.parametrize(
    "targets", [torch.tensor([0, 2, 1]), torch.eye(3, 4) > 0, torch.ones(3, 4, dtype=torch.float64)]
)
def test_losses_can_be_differentiated(targets: torch.Tensor) -> None:
    outputs = torch.from_numpy(np.random.default_rng(0).normal(size=(3, 4))).requires_grad_()
    assert torch.autograd.gradcheck(lambda y: losses(y, targets), (outputs,))
