"""An encoder: e = round(127 tanh(W^T x + b)) / 127 of a vertex's own features x, without the graph, in 8 bits a number.

A run may train one before its graph network (runs/stages.py), which then takes encodings for features. As a module it
has the names and the layout of torch.nn.Linear: `weight` [width, in] and `bias` [width]. Ours are `layer.0.weight`
[in, width] and `layer.0.bias` [width].
"""

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional

from gossamer.errors import GossamerError
from gossamer.model.network import Params

ENCODING_LEVELS = 127  # of a quantised number, on each side of 0
ENCODER_PREFIX = "encoder."  # of its arrays in a state dict


def quantise_encodings(rows: Tensor) -> Tensor:
    """Numbers in [-1, 1] rounded to 8 bits."""
    return rows.clamp(-1.0, 1.0).mul(ENCODING_LEVELS).round_().div_(ENCODING_LEVELS)


class Encoder(nn.Module):
    """A frozen encoder: its weights are buffers, which no optimiser changes and the state dict holds."""

    weight: Tensor
    bias: Tensor

    def __init__(self, inputs: int, width: int) -> None:
        super().__init__()
        self.register_buffer("weight", torch.zeros(width, inputs))
        self.register_buffer("bias", torch.zeros(width))

    def forward(self, x: Tensor) -> Tensor:
        return quantise_encodings(functional.linear(x, self.weight, self.bias).tanh())


def encode_features(features: Any, encoder: Params) -> NDArray[Any]:
    """Encodings [n, width] of features [n, in], dense or sparse, in the type of one agent's weights."""
    weight, bias = (encoder[f"layer.0.{name}"].numpy() for name in ("weight", "bias"))
    linear = np.asarray(features.astype(weight.dtype) @ weight) + bias
    encodings: NDArray[Any] = quantise_encodings(torch.from_numpy(linear).tanh()).numpy()
    return encodings


def to_encoder_state(encoder: Params) -> dict[str, Tensor]:
    """One agent's weights under the module's names."""
    weight, bias = (encoder[f"layer.0.{name}"].detach() for name in ("weight", "bias"))
    return {f"{ENCODER_PREFIX}weight": weight.T.contiguous(), f"{ENCODER_PREFIX}bias": bias.clone()}


def split_encoder_state(
    state: Mapping[str, Tensor], inputs: int, width: int, source: str
) -> tuple[Params, dict[str, Tensor]]:
    """One agent's encoder of these widths from a state dict with the module's names, and the rest of it."""
    params, rest = Params(), dict(state)
    for name, shape in (("weight", (width, inputs)), ("bias", (width,))):
        part = rest.pop(f"{ENCODER_PREFIX}{name}", None)
        if part is None or tuple(part.shape) != shape:
            raise GossamerError(
                f"{source}: {ENCODER_PREFIX}{name} should be {list(shape)}, found "
                f"{'none' if part is None else list(part.shape)}; export the model again"
            )
        if not (part.is_floating_point() and bool(part.isfinite().all())):
            raise GossamerError(f"{source}: {ENCODER_PREFIX}{name} should hold finite real numbers")
        params[f"layer.0.{name}"] = part.detach().T.contiguous() if name == "weight" else part.detach().clone()
    return params, rest


def has_encoder(names: Mapping[str, Any]) -> bool:
    """True if a state dict has arrays of an encoder."""
    return any(name.startswith(ENCODER_PREFIX) for name in names)
