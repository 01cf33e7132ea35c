"""l(y^, y) of eq. (3), for each labelled vertex: cross-entropy for classes and labels, else squared error."""

import torch
from torch import Tensor


def losses(outputs: Tensor, targets: Tensor) -> Tensor:
    """outputs [rows(, batch), width] -> one loss for each row (and time step).

    Integer targets [rows] are classes: -log softmax(y^)_y, and 0 where the class is unknown (-1). Others are shaped
    as the outputs, and the loss is the mean over the width: of bool ones, labels, -log sigmoid(y^) where the label is
    there and -log sigmoid(-y^) where it is not; of real ones (y^ - y)^2.
    """
    if targets.dtype == torch.int64:
        return torch.nn.functional.cross_entropy(outputs, targets, reduction="none", ignore_index=-1)
    if targets.dtype == torch.bool:
        labels = targets.to(outputs.dtype)
        return torch.nn.functional.binary_cross_entropy_with_logits(outputs, labels, reduction="none").mean(-1)
    return (outputs - targets).square().mean(-1)
