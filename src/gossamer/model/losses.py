"""l(y^, y) of eq. (3), for each labelled vertex: cross-entropy for classes, binary cross-entropy for labels, squared
error for real values."""

import torch
from torch import Tensor


def losses(outputs: Tensor, targets: Tensor, positive_weight: Tensor | None = None) -> Tensor:
    """outputs [rows(, batch), width] -> one loss for each row (and time step).

    Integer targets [rows] are classes: -log softmax(y^)_y, and 0 where the class is unknown (-1). Booleans, shaped as
    the outputs, are labels: the mean over the width of -log sigmoid(y^) times `positive_weight` [width] where the label
    is there, and of -log(1 - sigmoid(y^)) where it is not. Real targets, shaped as the outputs: the mean of
    (y^ - y)^2 over the width.
    """
    if targets.dtype == torch.int64:
        return torch.nn.functional.cross_entropy(outputs, targets, reduction="none", ignore_index=-1)
    if targets.dtype == torch.bool:
        each = torch.nn.functional.binary_cross_entropy_with_logits(
            outputs, targets.to(outputs.dtype), pos_weight=positive_weight, reduction="none"
        )
        return each.mean(-1)
    return (outputs - targets).square().mean(-1)
