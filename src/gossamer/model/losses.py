"""l(y^, y) of eq. (3), for each labelled vertex: cross-entropy for classes, squared error for real values."""

import torch
from torch import Tensor


def losses(outputs: Tensor, targets: Tensor) -> Tensor:
    """outputs [rows(, batch), width] -> one loss for each row (and time step).

    Integer targets [rows] are classes: -log softmax(y^)_y, and 0 where the class is unknown (-1). Real targets,
    shaped as the outputs: the mean of (y^ - y)^2 over the width.
    """
    if targets.dtype == torch.int64:
        return torch.nn.functional.cross_entropy(outputs, targets, reduction="none", ignore_index=-1)
    return (outputs - targets).square().mean(-1)
