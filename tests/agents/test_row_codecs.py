"""Row codecs: quantised rows and a codec from outside, the same at every hosting and only between agents."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from agents.cases import M, make_case, watched
from agents.test_hosting import GROUPINGS, assert_same_outputs, stacked

from gossamer.agents import Outbox, training_step
from gossamer.agents.exchange import join_parts
from gossamer.agents.measures import evaluate
from gossamer.agents.propagation import ExchangeKey, Propagation
from gossamer.agents.quantisation import Quantiser
from gossamer.engines.simulation import run, run_together

OPTIONS = [
    {"dropout": 0.4},
    {"kind": "chebyshev", "order": 3, "shift": "scaled-laplacian", "bias": True},
    {"batch": 3, "dropout": 0.2},
    {"shift": "random-walk", "num_layers": 3},
]


@pytest.mark.parametrize("bits", [16, 8])
@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_hosting_parity(options: dict[str, Any], bits: int) -> None:
    case = make_case(**options)
    one = case.host(step_size=0.05, boundary_bits=bits)
    for _ in range(3):
        one, _ = run(training_step(one))
    for grouping in GROUPINGS:
        many = [case.host(group, step_size=0.05, boundary_bits=bits) for group in grouping]
        for _ in range(3):
            many = [host for host, _ in run_together([training_step(host) for host in many])]
        for name, part in stacked(many).items():
            torch.testing.assert_close(part, one.params[name], rtol=1e-10, atol=1e-12)


def products(bits: int, way: str) -> tuple[list[torch.Tensor], torch.Tensor]:
    """D u or D^T g of the first layer at many steps, and exactly; agents on one host."""
    case = make_case(n=40)
    exact = case.host().train_pass.plan.layers[0].propagations[0]
    coded = case.host(boundary_bits=bits).train_pass.plan.layers[0].propagations[0]
    assert isinstance(exact, Propagation)
    rows = exact.local.shape[1 if way == "forward" else 0]
    u = torch.randn(rows, 5, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    found = [run(getattr(coded, way)(u, ExchangeKey(3, step, 0))) for step in range(400)]
    return found, run(getattr(exact, way)(u, ExchangeKey(3, 0, 0)))


@pytest.mark.parametrize("way", ["forward", "backward"])
def test_rounding_is_right_in_the_mean(way: str) -> None:
    found, exact = products(8, way)
    errors = torch.stack(found) - exact
    deviation = errors.std(0)
    assert float(deviation.max()) > 1e-4  # there is something to be right about
    assert float((errors.mean(0).abs() / (deviation / 20 + 1e-12)).max()) < 5  # standard errors, of 400 draws
    assert float(errors.abs().max()) < 0.2


def test_sixteen_bits_are_nearer_than_eight() -> None:
    errors = {bits: torch.stack(products(bits, "forward")[0][:20]) - products(bits, "forward")[1] for bits in (16, 8)}
    assert float(errors[16].abs().max()) < float(errors[8].abs().max()) / 100


def test_rows_travel_as_bytes_and_weights_as_they_are() -> None:
    case = make_case(n=40)
    hosts = [case.host([k], boundary_bits=8) for k in range(M)]
    length = {layer.outputs: Quantiser(8).num_code_bytes(layer.outputs) for layer in case.network.layers}
    seen = set()

    def note(outbox: Outbox) -> None:
        for message in map(join_parts, outbox.messages.values()):
            seen.add(str(outbox.phase))
            if outbox.phase == "consensus":
                assert message.dtype == torch.float64
            else:
                assert message.dtype == torch.uint8
                assert message.shape[1] in length.values()

    run_together([watched(training_step(host), note) for host in hosts])
    assert seen == {"forward", "backward", "consensus"}


@dataclass(frozen=True)
class Noise:
    """A codec from outside the package that protects: uniform noise on every row that leaves an agent."""

    scale: float

    protects = True
    dtype = None

    def row_bytes(self, width: int, itemsize: int) -> int:
        return width * itemsize

    def encode(self, rows: torch.Tensor, uniform: Callable[[], torch.Tensor]) -> torch.Tensor:
        return rows + self.scale * (uniform() - 0.5)

    def decode(self, codes: torch.Tensor, width: int, dtype: torch.dtype) -> torch.Tensor:
        return codes

    def bound_magnitude(self, codes: torch.Tensor) -> float:
        return float(codes.abs().max()) if codes.numel() else 0.0


@pytest.mark.parametrize("options", [*OPTIONS, {"num_layers": 1}], ids=str)
def test_what_protects_acts_in_training_and_evaluation_at_every_hosting(options: dict[str, Any]) -> None:
    case = make_case(**options)
    codec = Noise(0.1)
    one = case.host(step_size=0.05, row_codec=codec)
    many = [case.host(group, step_size=0.05, row_codec=codec) for group in GROUPINGS[2]]
    for _ in range(4):
        one, _ = run(training_step(one))
        many = [host for host, _ in run_together([training_step(host) for host in many])]
    for name, part in stacked(many).items():
        torch.testing.assert_close(part, one.params[name], rtol=1e-10, atol=1e-12)
    noisy, _ = run(evaluate(one))
    exact, _ = run(evaluate(case.host(step_size=0.05).with_params(one.params)))
    assert_same_outputs(one, many)
    assert 1e-4 < float((noisy - exact).abs().max()) < 2.0


def test_no_row_leaves_an_agent_without_the_codec() -> None:
    """Rows of the same weights with and without noise: every one that is sent differs."""
    case = make_case(n=40)
    sent: dict[bool, list[torch.Tensor]] = {False: [], True: []}
    for protects in (False, True):
        hosts = [case.host([k], row_codec=Noise(0.1) if protects else Noise(0.0)) for k in range(M)]

        def note(outbox: Outbox, kept: list[torch.Tensor] = sent[protects]) -> None:
            kept.extend(join_parts(message) for _, message in sorted(outbox.messages.items()))

        run_together([watched(evaluate(host), note) for host in hosts])
    assert len(sent[True]) == len(sent[False]) > 0
    first = len(sent[True]) // 2  # messages of the first exchange, which start from the same rows
    for noisy, exact in zip(sent[True][:first], sent[False][:first], strict=True):
        assert (noisy != exact).all()
        assert float((noisy - exact).abs().max()) <= 0.05
