"""Masked consensus: the mixture of plain consensus from padded integers that mean nothing alone."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from agents.cases import M, make_case, watched
from agents.gossip import SHAPES, combine, drawn
from agents.test_hosting import GROUPINGS, stacked
from torch import Tensor

from gossamer import topology
from gossamer.agents import Outbox, Phase, training_step
from gossamer.agents.consensus import HostedCombination, MaskedMethod
from gossamer.agents.consensus.masked import LARGEST, SCALE, MaskedConsensus, Pads, find_senders, list_senders
from gossamer.agents.exchange import join_parts
from gossamer.agents.host import Host
from gossamer.engines.simulation import run, run_together
from gossamer.errors import DivergedError, GossamerError
from gossamer.model import Params
from gossamer.runs.settings import make_settings

C = topology.metropolis_weights(topology.exponential(5))  # everyone's links to four others
RING = topology.metropolis_weights(topology.ring(5))
Sign = Callable[[int, int], int]


def pads_of(C: np.ndarray, sign: Sign = lambda z, other: 1 if z < other else -1) -> Pads:
    """The sums of pads of all pairs of agents, drawn by NumPy from what a pad must depend on."""

    def draw(z: int, k: int, step: int, index: int, size: int) -> Tensor:
        total = np.zeros(size, dtype=np.int64)
        for other in set(find_senders(C[k], k)) - {z}:
            random = np.random.default_rng([min(z, other), max(z, other), k, step, index])
            total += sign(z, other) * random.integers(-(2**63), 2**63, size)
        return torch.from_numpy(total)

    return draw


def masked(C: np.ndarray, agents: list[int], pads: Pads | None, hosting: np.ndarray | None = None) -> MaskedConsensus:
    made = MaskedMethod().make(HostedCombination(C[agents], agents, hosting), SHAPES, torch.float64, 0)
    return replace(made, pads=pads)


def mix(
    C: np.ndarray, psi: Params, pads: Pads | None, groups: list[list[int]], joined: bool = False
) -> tuple[Params, list[Outbox]]:
    """One consensus of agents on several hosts, and what they sent."""
    hosting = np.empty(len(C), dtype=np.int64)
    for number, group in enumerate(groups):
        hosting[group] = number
    sent: list[Outbox] = []
    generators = []
    for group in groups:
        own = {name: part[group] for name, part in psi.items()}
        into = {name: torch.full_like(part, torch.nan) for name, part in own.items()}
        consensus = masked(C, group, pads, hosting if joined else None)
        generators.append(watched(consensus(own, into, {}, 1, 7), sent.append))
    found = run_together(generators)
    order = np.argsort(np.concatenate(groups))
    return {name: torch.cat([one[name] for one in found])[order.copy()] for name in psi}, sent


def add_pads(host: Host, pads: Pads) -> Host:
    consensus: Any = host.consensus
    return replace(host, topologies=(replace(host.topology, consensus=replace(consensus, pads=pads)),))


@pytest.mark.parametrize(("rule", "eta"), [("gd", 0.05), ("momentum", 0.02)])
@pytest.mark.parametrize("track", [False, True])
def test_hundred_steps_end_with_the_weights_of_plain_consensus(rule: str, eta: float, track: bool) -> None:
    case = make_case(dropout=0.4, bias=True)
    plain = case.host(rule=rule, step_size=eta, track=track)
    host = case.host(rule=rule, step_size=eta, track=track, masked=True)
    for _ in range(100):
        plain, _ = run(training_step(plain))
        host, _ = run(training_step(host))
    for name, part in host.params.items():
        torch.testing.assert_close(part, plain.params[name], rtol=0, atol=1e-9)


def test_float32_is_mixed_in_double_precision() -> None:
    psi = {name: part.float() for name, part in drawn(5).items()}
    found, _ = mix(C, psi, pads_of(C), [[k] for k in range(5)])
    expected = combine(C, {name: part.double() for name, part in psi.items()})
    for name, part in found.items():
        assert part.dtype == torch.float32
        torch.testing.assert_close(part, expected[name].float(), rtol=1.2e-7, atol=1e-11)


@pytest.mark.parametrize("joined", [False, True], ids=["links of agents", "links of hosts"])
@pytest.mark.parametrize("groups", [*GROUPINGS, [list(range(M))]], ids=str)
def test_every_hosting_has_the_same_bits_with_pads_and_without(groups: list[list[int]], joined: bool) -> None:
    psi = drawn(M)
    expected, _ = mix(C, psi, None, [list(range(M))])
    for pads in (None, pads_of(C)):
        found, _ = mix(C, psi, pads, groups, joined)
        for name, part in found.items():
            assert torch.equal(part, expected[name])
            torch.testing.assert_close(part, combine(C, psi)[name], rtol=0, atol=1e-11)


@pytest.mark.parametrize("groups", GROUPINGS[:3], ids=str)
def test_training_on_hosts_with_pads_is_that_on_one_without(groups: list[list[int]]) -> None:
    """With tracking: two vectors go through it in every step, each with pads of its own exchange."""
    case = make_case(dropout=0.4, bias=True)
    options: dict[str, Any] = {"rule": "adam", "track": True, "step_size": 0.01, "masked": True}
    one = case.host(**options)
    pads = pads_of(case.combination)
    many = [add_pads(case.host(group, **options), pads) for group in groups]
    for _ in range(10):
        one, _ = run(training_step(one))
        many = [host for host, _ in run_together([training_step(host) for host in many])]
    for name, part in stacked(many).items():
        torch.testing.assert_close(part, one.params[name], rtol=1e-10, atol=1e-12)


def test_a_message_is_the_rounded_product_and_its_pads_modulo_64_bits() -> None:
    """Whoever has the pads can take them off; the sum over all senders has none left."""
    psi, pads = drawn(5), pads_of(RING)
    _, sent = mix(RING, psi, pads, [[k] for k in range(5)])
    vectors = torch.cat([part.flatten(1) for part in psi.values()], 1).numpy()
    arrived = np.zeros((5, vectors.shape[1]), dtype=np.int64)
    for outbox in sent:
        assert (outbox.phase, outbox.index, outbox.dtype) == (Phase.CONSENSUS, 1, torch.int64)
        for (z, k), message in outbox.messages.items():
            numbers = join_parts(message)[0].numpy()
            taken_off = numbers - pads(z, k, 7, 1, len(numbers)).numpy()
            np.testing.assert_array_equal(taken_off, np.rint(vectors[z] * RING[k, z] * 2.0**40).astype(np.int64))
            arrived[k] += numbers
    expected = np.einsum("kz,zn->kn", RING - np.diag(np.diag(RING)), vectors)
    np.testing.assert_allclose(arrived / SCALE, expected, rtol=0, atol=1e-11)


def test_a_message_is_uniform_whatever_the_weights_are() -> None:
    """Its bytes have the distribution of fair dice for zeros and for large numbers; a fixed message says nothing."""
    for psi in ({"w": torch.zeros(5, 4000, dtype=torch.float64)}, {"w": torch.full((5, 4000), 3e6).double()}):
        _, sent = mix(RING, psi, pads_of(RING), [[k] for k in range(5)])
        message = join_parts(sent[2].messages[2, 3])[0].numpy()  # type: ignore[index]
        counts = np.bincount(message.view(np.uint8), minlength=256)
        expected = counts.sum() / 256
        assert ((counts - expected) ** 2 / expected).sum() < 400  # 255 on average; 400 in one of a hundred million


def test_messages_of_other_weights_differ_by_the_weights_under_one_pad() -> None:
    """Why no pad may serve twice: the pads cancel in the difference."""
    one, other = drawn(5, 0), drawn(5, 1)
    sent = [mix(RING, psi, pads_of(RING), [[k] for k in range(5)])[1] for psi in (one, other)]
    messages = [join_parts(boxes[0].messages[0, 1])[0] for boxes in sent]  # type: ignore[index]
    vectors = [torch.cat([part[0].flatten() for part in psi.values()]) for psi in (one, other)]
    leaked = (messages[0] - messages[1]).double() / SCALE / RING[1, 0]
    torch.testing.assert_close(leaked, vectors[0] - vectors[1], rtol=0, atol=1e-10)


@pytest.mark.parametrize("sign", [lambda z, other: 1, lambda z, other: 1 if (z, other) != (2, 4) else -1])
def test_pads_of_a_wrong_sign_do_not_cancel_and_are_noticed(sign: Sign) -> None:
    with pytest.raises(DivergedError, match=r"a masked sum of .*, which the numbers of agents .* and .* cannot have"):
        mix(C, drawn(5), pads_of(C, sign), [[k] for k in range(5)])


def test_a_sum_that_cannot_be_names_all_that_contribute() -> None:
    consensus = masked(RING, [0], None)
    into = {"w": torch.zeros(1, 4, dtype=torch.float64)}
    generator = consensus({"w": torch.zeros(1, 4, dtype=torch.float64)}, into, {}, 0, 0)
    outbox = next(generator)
    lie = {link: torch.full(shape, 2**62 if link.sender == 4 else 0) for link, shape in outbox.expected.items()}
    with pytest.raises(DivergedError, match=r"a masked sum of 4\.2e\+06, which the numbers of agents 1 and 4 cannot"):
        generator.send(lie)


@pytest.mark.parametrize("value", [LARGEST * 1.001, -LARGEST * 1.001, float("nan"), float("inf")])
def test_numbers_that_do_not_fit_are_refused_before_they_are_sent(value: float) -> None:
    psi = drawn(5)
    psi["bias"][3, 2] = value
    with pytest.raises(DivergedError, match="numbers beyond 4194304 in a masked consensus: the run has diverged"):
        mix(C, psi, None, [list(range(5))])
    psi["bias"][3, 2] = LARGEST
    found, _ = mix(C, psi, pads_of(C), [[k] for k in range(5)])
    torch.testing.assert_close(found["bias"], combine(C, psi)["bias"], rtol=1e-12, atol=1e-11)


def test_agents_at_the_ends_of_a_line_are_refused_by_their_numbers() -> None:
    line = topology.metropolis_weights(topology.line(4))
    with pytest.raises(GossamerError, match=r"sum of at least 2, and agent 0 mixes with only agent 1; give it another"):
        masked(line, [0, 1, 2, 3], None)
    with pytest.raises(GossamerError, match="agent 3 mixes with only agent 2"):
        masked(line, [1, 2, 3], None)
    masked(line, [1, 2], None)


def test_weights_whose_sums_may_overflow_are_refused() -> None:
    signed = np.array([[-1.2, 1.1, 1.1], [1.1, -1.2, 1.1], [1.1, 1.1, -1.2]])
    with pytest.raises(
        GossamerError, match=r"agent 0's neighbours in C have a sum of magnitudes of 2\.2, expected bel"
    ):
        masked(signed, [0, 1, 2], None)


def test_senders_are_those_of_c_and_not_all_links() -> None:
    assert find_senders(RING[0], 0) == (1, 4)
    assert list_senders(RING, 0).tolist() == [[1, 0], [1, 2], [4, 0], [4, 3]]


def test_bytes_are_eight_a_number_one_message_a_receiver() -> None:
    assert MaskedMethod().payload_bytes({"weight": (20, 8), "bias": (8,)}, 4) == 8 * 168
    for joined, groups in ((False, [[k] for k in range(5)]), (True, GROUPINGS[1])):
        _, sent = mix(RING, drawn(5), None, groups, joined)
        numbers = sum(int(np.prod(shape)) for shape in SHAPES.values())
        moved = sum(join_parts(message).nbytes for outbox in sent for message in outbox.messages.values())
        assert moved == 8 * numbers * (10 if not joined else 4)  # [0, 1] | [2, 3, 4]: sums for 0, 1, 2 and 4


def test_a_run_takes_it_by_name_and_neither_compressed() -> None:
    settings = make_settings({"consensus": "masked"})
    assert settings.consensus_method == MaskedMethod()
    assert not make_settings({"consensus": "masked", "agents": 1}).masks
    assert not make_settings({"consensus": "masked", "consensus_every": 0}).masks
    with pytest.raises(
        GossamerError, match=r"consensus = 'masked' .* and compress = 'power:1' would change them; give c"
    ):
        make_settings({"consensus": "masked", "compress": "power:1"})
    with pytest.raises(GossamerError, match="input should be 'plain' or 'masked'"):
        make_settings({"consensus": "secret"})
