"""A consensus codec and a consensus method from outside the package: one value in a table each."""

from collections.abc import Generator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch
from agents.cases import M, make_case, watched
from agents.gossip import Gossip, combine, disagreement, drawn
from agents.test_hosting import GROUPINGS, stacked
from torch import Tensor

import gossamer
from gossamer import topology
from gossamer.agents import Inbox, Outbox, Phase, training_step
from gossamer.agents.consensus import CONSENSUS_METHODS, Advice, ConsensusKind, HostedCombination, parse_method
from gossamer.agents.consensus.codecs import CONSENSUS_CODECS, CodecKind, parse_fraction
from gossamer.agents.consensus.codecs.codec import MatrixShape
from gossamer.agents.consensus.plain import Mixing, make_mixing
from gossamer.agents.exchange import join_parts
from gossamer.agents.rules import StateDict
from gossamer.engines.simulation import run, run_together
from gossamer.errors import GossamerError
from gossamer.model import Params

RING = topology.metropolis_weights(topology.ring(5))
ADDED = ["choco:window=0.4", "lazy:0.5"]


@dataclass(frozen=True)
class Window:
    """Codec that sends a stretch of the entries, another one each time."""

    fraction: float

    dtype = None
    bound_magnitude = None

    @property
    def stable_mixing_step(self) -> float:
        return self.fraction / 2

    def num_code_bytes(self, shape: MatrixShape, itemsize: int) -> int:
        return self._length(shape[0] * shape[1]) * itemsize

    def check(self, size: int, dtype: torch.dtype) -> None:
        pass

    def compress(self, change: Tensor, key: int) -> Tensor:
        return change.flatten(1)[:, self._positions(change[0].numel(), key)]

    def decompress(self, codes: Tensor, shape: MatrixShape, key: int, dtype: torch.dtype) -> Tensor:
        size = shape[0] * shape[1]
        return torch.zeros(len(codes), size, dtype=dtype).index_copy_(1, self._positions(size, key), codes)

    def _length(self, size: int) -> int:
        return max(1, int(self.fraction * size))

    def _positions(self, size: int, key: int) -> Tensor:
        return (key % size + torch.arange(self._length(size))) % size


@dataclass(frozen=True)
class LazyMethod:
    """w_k = (1 - rate) psi_k + rate sum_z C_kz psi_z."""

    rate: float

    pairwise = False
    exchanges = 1
    advice = Advice(adam="lazy agents are slow")

    def payload_bytes(self, shapes: Mapping[str, tuple[int, ...]], itemsize: int) -> int:
        return sum(int(np.prod(shape)) for shape in shapes.values()) * itemsize

    def make(
        self, C: HostedCombination, shapes: Mapping[str, tuple[int, ...]], dtype: torch.dtype, seed: int
    ) -> "Lazy":
        return Lazy(make_mixing(C, dtype), self.rate)


@dataclass(frozen=True)
class Lazy:
    mixing: Mixing
    rate: float

    exchanges = 1

    def init(self, like: Params) -> StateDict:
        return {}

    def __call__(
        self, psi: Params, into: Params, state: StateDict, index: int, step: int
    ) -> Generator[Outbox, Inbox, Params]:
        mixed = yield from self.mixing(psi, into, state, index, step)
        return {name: part.mul_(self.rate).add_(psi[name], alpha=1 - self.rate) for name, part in mixed.items()}


@pytest.fixture(autouse=True)
def added(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(CONSENSUS_CODECS, "window", CodecKind(lambda value: Window(parse_fraction(value)), "SHARE"))
    lazy = ConsensusKind(lambda words: LazyMethod(parse_fraction(words[0])), lambda: ["lazy:SHARE"])
    monkeypatch.setitem(CONSENSUS_METHODS, "lazy", lazy)


@pytest.mark.parametrize("compress", ADDED)
def test_agents_agree_on_their_mean(compress: str) -> None:
    psi = drawn(5)
    means, first = {name: part.mean(0) for name, part in psi.items()}, disagreement(psi)
    gossip = Gossip(compress, RING, psi)
    for _ in range(150):
        psi = gossip(psi)
    assert disagreement(psi) < 0.01 * first
    for name, part in psi.items():
        torch.testing.assert_close(part.mean(0), means[name], rtol=0, atol=1e-12)


def test_the_method_is_its_formula() -> None:
    psi = drawn(5)
    found = Gossip("lazy:0.3", RING, psi)(psi)
    expected = combine(0.7 * np.eye(5) + 0.3 * RING, psi)
    for name, part in found.items():
        torch.testing.assert_close(part, expected[name], rtol=0, atol=1e-12)


@pytest.mark.parametrize("compress", ADDED)
@pytest.mark.parametrize("grouping", GROUPINGS[:2], ids=str)
def test_a_hosting_changes_nothing_and_the_bytes_sent_are_those_counted(
    grouping: list[list[int]], compress: str
) -> None:
    case = make_case(bias=True)
    one = case.host(compress=compress, step_size=0.05)
    many = [case.host(group, compress=compress, step_size=0.05) for group in grouping]
    payload, links = parse_method(compress).payload_bytes(case.network.shapes(), 8), case.combination != 0
    np.fill_diagonal(links, False)
    for _ in range(6):
        sent: list[int] = []

        def note(outbox: Outbox, sent: list[int] = sent) -> None:
            if outbox.phase is Phase.CONSENSUS:
                sent.extend(join_parts(message).nbytes for message in outbox.messages.values())

        one, _ = run(training_step(one))
        many = [host for host, _ in run_together([watched(training_step(host), note) for host in many])]
        if len(grouping) == M:
            assert sent == [payload] * int(links.sum())
    for name, part in stacked(many).items():
        torch.testing.assert_close(part, one.params[name], rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("compress", ADDED)
def test_a_run_takes_it_by_name(compress: str) -> None:
    graph = make_case(n=40).graph
    options: dict[str, Any] = {
        "preset": "paper",
        "agents": 4,
        "hidden": 4,
        "steps": 5,
        "baselines": False,
        "threads": 1,
        "topology": "ring",
    }
    result = gossamer.train(graph, compress=compress, **options)
    payload = parse_method(compress).payload_bytes(result.run.deployment.network.shapes(), 4)
    assert result.summary["messages"]["consensus"]["bytes"] == payload * 2 * 4  # both ways over the ring's links
    plain = gossamer.train(graph, **options)
    assert not torch.equal(result.run.host.params["layer.0.weight"], plain.run.host.params["layer.0.weight"])


def test_advice_of_a_method_is_given() -> None:
    graph = make_case(n=40).graph
    with pytest.warns(gossamer.GossamerWarning, match="lazy agents are slow"):
        gossamer.train(graph, compress="lazy:0.5", agents=4, update="adam", steps=0, baselines=False)


def test_what_was_added_is_listed_among_what_is_expected() -> None:
    with pytest.raises(GossamerError, match=r"choco:randk=SHARE, choco:window=SHARE or lazy:SHARE .*got 'lazy:2'"):
        parse_method("lazy:2")
