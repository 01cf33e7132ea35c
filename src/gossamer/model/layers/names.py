"""Names of a layer's parameters in PyTorch Geometric's modules, and the arrays under them.

A layer lists an `Alias` for each array of the module's state dict. One list serves both directions.
"""

from collections.abc import Mapping, Sequence
from typing import Literal, NamedTuple, Protocol

import torch
from torch import Tensor

Form = Literal["same", "transposed", "leading"]  # as ours; [out, in] for [in, out]; with a first axis of length 1


class Alias(NamedTuple):
    """One array of a module: `theirs` is our parameter `ours`, or its entry `part`; `ours` None: the constant."""

    theirs: str
    ours: str | None
    form: Form = "same"
    part: int | None = None
    constant: float = 0.0


class NamedParameters(Protocol):
    """A layer that knows its parameters' names in a module."""

    def aliases(self) -> Sequence[Alias]: ...


def linear(theirs: str, ours: str, part: int | None = None) -> Alias:
    """The matrix of a torch.nn.Linear."""
    return Alias(f"{theirs}.weight", ours, "transposed", part)


def to_theirs(aliases: Sequence[Alias], params: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """One agent's parameters under the module's names."""
    return {alias.theirs: _give(alias, params).detach().clone().contiguous() for alias in aliases}


def _give(alias: Alias, params: Mapping[str, Tensor]) -> Tensor:
    if alias.ours is None:
        return torch.full((1,), alias.constant, dtype=next(iter(params.values())).dtype)
    array = params[alias.ours] if alias.part is None else params[alias.ours][alias.part]
    return array.T if alias.form == "transposed" else array[None] if alias.form == "leading" else array


def to_ours(aliases: Sequence[Alias], state: Mapping[str, Tensor], detach: bool = True) -> dict[str, Tensor]:
    """One agent's parameters from those under the module's names: copies, or differentiable views of them."""
    parts: dict[str, list[Tensor]] = {}
    for alias in aliases:
        if alias.ours is not None:
            array = state[alias.theirs].detach().clone() if detach else state[alias.theirs]
            shaped = array.T if alias.form == "transposed" else array[0] if alias.form == "leading" else array
            parts.setdefault(alias.ours, []).append(shaped)
    stacked = {alias.ours for alias in aliases if alias.part is not None}
    return {
        name: (torch.stack(arrays) if name in stacked else arrays[0]).contiguous() for name, arrays in parts.items()
    }


def their_shape(alias: Alias, shapes: Mapping[str, tuple[int, ...]]) -> tuple[int, ...]:
    """Shape of an array in the module, from those of our parameters."""
    if alias.ours is None:
        return (1,)
    shape = shapes[alias.ours] if alias.part is None else shapes[alias.ours][1:]
    return shape[::-1] if alias.form == "transposed" else (1, *shape) if alias.form == "leading" else shape
