"""Conversion of PyTorch's tensors to arrays, without loss; PyTorch is not imported for it."""

import sys
from typing import Any

import numpy as np
from scipy import sparse

from gossamer.errors import GossamerError, one_line


def is_tensor(value: Any) -> bool:
    """True for a torch.Tensor; there is none unless PyTorch is loaded."""
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(value, torch.Tensor)


def to_array(value: Any, name: str) -> Any:
    """A tensor as a NumPy array, or as a SciPy CSR matrix if it is sparse; anything else as it is.

    Gradients are left behind, and short floats (float16, bfloat16 and shorter), which NumPy has not all, are widened.
    `name` is for errors.
    """
    if not is_tensor(value):
        return value
    import torch

    try:
        tensor = value.detach().cpu()
        if tensor.is_floating_point() and tensor.dtype not in (torch.float32, torch.float64):
            tensor = tensor.float()
        if tensor.layout == torch.strided or tensor.ndim == 1:
            return tensor.to_dense().numpy()
        if tensor.ndim != 2:
            raise GossamerError(f"{name} must be a dense tensor or a sparse matrix, got shape {tuple(tensor.shape)}")
        tensor = tensor.to_sparse_coo().coalesce()
        row, column = tensor.indices().numpy()
        return sparse.csr_array((tensor.values().numpy(), (row, column)), shape=tuple(tensor.shape))
    except (TypeError, RuntimeError, NotImplementedError) as error:
        raise GossamerError(
            f"{name} cannot be converted to an array: expected a tensor of numbers, got {value.dtype} "
            f"{value.layout}: {one_line(error)}"
        ) from None


def to_number(value: Any) -> Any:
    """The number in a tensor or an array of one entry; anything else as it is."""
    array = to_array(value, "a value")
    return array.item() if isinstance(array, np.ndarray | np.generic) and array.size == 1 else array
