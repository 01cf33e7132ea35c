"""Activations: element-wise functions after a layer, joined by name in one table."""

from collections.abc import Callable

import torch
from torch import Tensor

ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "relu": torch.relu,
    "tanh": torch.tanh,
    "elu": torch.nn.functional.elu,
    "identity": lambda z: z,
}
