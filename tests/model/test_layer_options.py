"""Every option of a layer is one that its kind has; one entry stands for all layers."""

from typing import Any

import pytest

from gossamer.errors import GossamerError
from gossamer.layer_specs import LayerSpec, NetworkOptions, parse_layers
from gossamer.model import LAYERS, make_network
from gossamer.model.layer_options import KIND_OPTIONS, find_unused
from gossamer.model.layers import Block
from gossamer.model.network import check_shift, find_shift


def test_every_option_is_that_of_some_kind() -> None:
    every = frozenset[str]().union(*(kind.options or () for kind in LAYERS.values()))
    assert every == set(KIND_OPTIONS)


@pytest.mark.parametrize("text", ["gcn:heads=4/gcn", "gat:order=3/gat", "gin:aggregate=max/gin", "mlp:order=2/gcn"])
def test_a_layer_refuses_options_of_other_kinds(text: str) -> None:
    kind, name = text.partition("=")[0].split(":")
    with pytest.raises(GossamerError, match=f"layers of the kind '{kind}' have no option '{name}'"):
        make_network(text, 5, 3)


@pytest.mark.parametrize(
    ("options", "unused"),
    [
        ({"layers": "gcn", "heads": 4}, ["heads"]),
        ({"layers": "gcn", "order": 2}, []),
        ({"layers": "gat", "order": 3, "negative_slope": 0.1}, ["order"]),
        ({"layers": "gin", "aggregate": "max", "learn_epsilon": True}, ["aggregate"]),
        ({"layers": "gat:width=8/sage", "aggregate": "max", "heads": 2}, []),
        ({"layers": "sgc", "hidden": (32, 32), "residual": True, "norm": "layer"}, ["residual", "norm", "hidden"]),
        ({"layers": "gcn", "hidden": (), "residual": True}, ["residual"]),
        ({"layers": "gcn", "hidden": (32, 32), "residual": True}, []),
        ({"layers": "gat:width=32/gat:width=16/gat", "hidden": (64, 64)}, ["hidden"]),
        ({"layers": "gat:width=32/gat", "hidden": (32,)}, []),
        ({"layers": "appnp", "teleport": 0.2, "order": 4}, []),
    ],
    ids=str,
)
def test_options_without_an_effect_are_found(options: dict[str, Any], unused: list[str]) -> None:
    assert list(find_unused(NetworkOptions(**options))) == unused


def test_one_entry_stands_for_all_layers() -> None:
    network = make_network("gat:width=6,heads=2,residual=true,norm=layer", 5, 3, hidden=(64, 64))
    assert [layer.outputs for layer in network.layers] == [6, 6, 3]
    assert [isinstance(layer, Block) and layer.residual and layer.norm for layer in network.layers] == [
        True,
        True,
        False,
    ]
    assert parse_layers({"kind": "gat", "heads": 2}) == (LayerSpec("gat", heads=2),)
    assert parse_layers("gin:learn-epsilon=true") == (LayerSpec("gin", learn_epsilon=True),)


@pytest.mark.parametrize("outputs", [1, 3])
def test_the_last_layer_has_the_width_of_the_data(outputs: int) -> None:
    make_network(f"gcn:width=8/gcn:width={outputs}", 5, outputs)
    with pytest.raises(GossamerError, match=f"the last layer makes {outputs} outputs"):
        make_network("gcn:width=8/gcn:width=16", 5, outputs)


def test_a_shift_that_contradicts_sage_is_refused() -> None:
    with pytest.raises(GossamerError, match="shift = 'mean' contradicts aggregate = 'sum'"):
        check_shift(NetworkOptions(layers="sage", aggregate="sum"), "mean")
    for aggregate, shift in (("sum", "normalized"), ("mean", "mean"), ("max", "sum")):
        assert check_shift(NetworkOptions(layers="sage", aggregate=aggregate), shift) == shift


def test_layers_of_sage_that_sum_and_average_are_refused() -> None:
    """No shift operator serves both."""
    with pytest.raises(GossamerError, match=r"takes mean, .* takes sum; give all layers of sage the same aggregate"):
        find_shift(NetworkOptions(layers="sage/sage:aggregate=sum"))
    with pytest.raises(GossamerError, match="gin takes sum, sage takes mean; choose one for all of them with --shift"):
        find_shift(NetworkOptions(layers="gin/sage"))


def test_a_layer_without_a_kind_is_refused() -> None:
    with pytest.raises(ValueError, match="a layer needs a kind"):
        parse_layers({"heads": 4})
    with pytest.raises(GossamerError, match="kind should be a name, got None"):
        parse_layers({"kind": None})


@pytest.mark.parametrize(
    ("wrong", "meant"), [("GAT", "gat"), ("GATConv", "gat"), ("SAGEConv", "sage"), ("gated_", "gated")]
)
def test_other_spellings_of_a_kind_are_understood(wrong: str, meant: str) -> None:
    with pytest.raises(GossamerError, match=f"did you mean '{meant}'"):
        LayerSpec(wrong)
