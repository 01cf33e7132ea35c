"""A network as one of PyTorch Geometric's models, with its weights; the one module that imports the library.

Names of parameters differ from those of model/modules.py where blocks are:

    norms.0.weight, norms.0.bias    convs.0.norm.weight, convs.0.norm.bias    of hidden layers
    lin.weight, lin.bias            convs.K.lin.weight, convs.K.bias          the linear map after jumping knowledge
"""

import re
from collections.abc import Mapping
from typing import Any, cast

from torch import Tensor, nn

from gossamer.errors import GossamerError
from gossamer.model.network import Network
from gossamer.model.pyg_layers import PygPart, describe_model


class Standardisation(nn.Module):
    """Features to the numbers that a model takes and real values back to their units, around the model's `forward`.

    Its arrays are those of a Transform (data/standardisation.py), no part of the model's state dict.
    """

    def __init__(self, arrays: Mapping[str, Tensor]) -> None:
        super().__init__()
        for name, part in arrays.items():
            self.register_buffer(name, part.detach().clone(), persistent=False)

    def extra_repr(self) -> str:
        return f"{len(self.get_buffer('feature_scale'))} features"

    def attach(self, model: nn.Module) -> None:
        """Become a part of a model, called before and after its `forward`."""
        model.add_module("standardisation", self)
        model.register_forward_pre_hook(self._before, with_kwargs=True)
        model.register_forward_hook(self._after)

    def _before(self, model: nn.Module, given: tuple[Any, ...], named: dict[str, Any]) -> Any:
        x = given[0] if given else named["x"]
        kind = next(model.parameters()).dtype
        x = ((x - self.get_buffer("feature_offset")) / self.get_buffer("feature_scale")).to(kind)
        return ((x, *given[1:]), named) if given else (given, named | {"x": x})

    def _after(self, model: nn.Module, given: tuple[Any, ...], outputs: Tensor) -> Tensor:
        buffers = dict(self.named_buffers())
        if "target_scale" not in buffers:
            return outputs
        return (outputs * buffers["target_scale"] + buffers["target_offset"]).to(outputs.dtype)


def build_pyg_module(
    network: Network, shift: str, state: Mapping[str, Tensor], transform: Mapping[str, Tensor]
) -> nn.Module:
    """The model of PyTorch Geometric with these weights, under the names of model/modules.py, ready for evaluation."""
    described = describe_model(network, shift)
    try:
        import torch_geometric.nn as library
    except ImportError:
        raise GossamerError(
            "expected PyTorch Geometric for its models, and it is not installed: pip install torch_geometric; "
            "result.model() needs nothing but PyTorch"
        ) from None
    options: dict[str, Any] = {"act": described.activation, "dropout": described.dropout, "jk": described.jump}
    if described.norm:
        options["norm"] = library.LayerNorm(described.widths[0], mode="node")
    model: nn.Module = getattr(library, described.name)(
        described.inputs, described.widths[0], len(described.convs), described.outputs, **options
    )
    model.convs = nn.ModuleList(_make(library, part) for part in described.convs)
    if described.norm:
        hidden = described.widths if described.final is not None else described.widths[:-1]
        ends = [] if described.final is not None else [nn.Identity()]
        model.norms = nn.ModuleList([*(library.LayerNorm(width, mode="node") for width in hidden), *ends])
    if described.final is not None:
        model.lin = nn.Linear(described.final.inputs, described.final.outputs, bias=described.final.bias)
    model.to(next(iter(state.values())).dtype)
    count = len(described.convs)
    model.load_state_dict({_to_pyg_name(name, count): part for name, part in state.items()})
    if transform:
        Standardisation(transform).attach(model)
    return model.eval()


def _make(library: Any, part: PygPart) -> nn.Module:
    arguments = [_make(library, one) if isinstance(one, PygPart) else one for one in part.arguments]
    return cast(nn.Module, getattr(library, part.name)(*arguments, **part.options))


def _to_pyg_name(name: str, count: int) -> str:
    """Name of an array in a model of `count` convolutions."""
    name = re.sub(r"^convs\.(\d+)\.norm\.", r"norms.\1.", name)
    return re.sub(rf"^convs\.{count}\.(lin\.)?", "lin.", name)


def from_pyg_name(name: str, count: int) -> str:
    """Name in model/modules.py of an array in a model of `count` convolutions."""
    name = re.sub(r"^norms\.(\d+)\.", r"convs.\1.norm.", name)
    return re.sub(r"^lin\.", f"convs.{count}.", name).replace(f"convs.{count}.weight", f"convs.{count}.lin.weight")


def find_standardisation(model: nn.Module) -> dict[str, Tensor]:
    """Arrays of a model's transform; none of a model without."""
    found = dict(model.named_children()).get("standardisation")
    return {name: part.cpu() for name, part in found.named_buffers()} if isinstance(found, Standardisation) else {}
