"""Initial weights of Glorot and Bengio (2010): variance 2 / (in + out) whatever the layer's order, at any hosting."""

import math
from typing import Any

import pytest
import torch
from agents.cases import M, make_case
from agents.test_hosting import GROUPINGS

from gossamer.agents.host import draw_initial_params
from gossamer.model import Params, make_network

KINDS: list[dict[str, Any]] = [
    {"kind": "gcn", "order": 1},
    {"kind": "gcn", "order": 2},
    {"kind": "polynomial", "order": 3},
    {"kind": "chebyshev", "order": 2},
    {"kind": "mlp", "order": 1},
]
WIDTHS = [(120, 80), (80, 20)]  # in and out of the two layers


def drawn(options: dict[str, Any], agents: Any, deviation: float | None = None, same: bool = False) -> Params:
    network = make_network(
        options["kind"], 120, 20, hidden=(80,), order=options["order"], activation="relu", bias=True, dropout=0.0
    )
    return draw_initial_params(network, list(agents), 3, deviation, same, torch.float64)


@pytest.mark.parametrize("options", KINDS, ids=str)
def test_the_variance_is_two_over_the_sum_of_the_widths(options: dict[str, Any]) -> None:
    found = drawn(options, range(M))
    for index, (inputs, outputs) in enumerate(WIDTHS):
        weight = found[f"layer.{index}.weight"]
        powers = () if options["order"] == 1 and options["kind"] in ("gcn", "mlp") else (options["order"] + 1,)
        assert weight.shape == (M, *powers, inputs, outputs)
        parts = weight.unbind(1) if powers else [weight]  # each power's matrix, of all agents
        for part in parts:
            assert float(part.var()) == pytest.approx(2 / (inputs + outputs), rel=0.06)  # 8000 numbers and more
            assert abs(float(part.mean())) < 4 * math.sqrt(2 / (inputs + outputs) / part.numel())
        assert found[f"layer.{index}.bias"].abs().max() == 0


@pytest.mark.parametrize("options", KINDS, ids=str)
def test_they_are_the_standard_normal_ones_scaled_for_each_layer(options: dict[str, Any]) -> None:
    found, standard = drawn(options, range(M)), drawn(options, range(M), deviation=1.0)
    for index, (inputs, outputs) in enumerate(WIDTHS):
        expected = standard[f"layer.{index}.weight"] * math.sqrt(2 / (inputs + outputs))
        torch.testing.assert_close(found[f"layer.{index}.weight"], expected, rtol=1e-14, atol=0)


@pytest.mark.parametrize("same", [False, True])
@pytest.mark.parametrize("grouping", GROUPINGS, ids=str)
@pytest.mark.parametrize("options", KINDS, ids=str)
def test_a_hosting_changes_no_bit(options: dict[str, Any], grouping: list[list[int]], same: bool) -> None:
    whole = drawn(options, range(M), same=same)
    for group in grouping:
        for name, part in drawn(options, group, same=same).items():
            assert torch.equal(part, whole[name][group])
    first = whole["layer.0.weight"]
    assert torch.equal(first[0], first[1]) == same


def test_a_host_takes_them_where_no_deviation_is_given() -> None:
    case = make_case(bias=True)
    host = case.host(initial_deviation=None)
    expected = draw_initial_params(case.network, list(range(M)), 3, None, False, torch.float64)
    assert all(torch.equal(host.params[name], part) for name, part in expected.items())
