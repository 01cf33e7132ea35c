"""Words that choose a consensus method, the bytes that it sends, and the refusal of words that mean nothing."""

import pytest

from gossamer.agents.consensus import ConsensusMethod, parse_method
from gossamer.agents.consensus.choco_gossip import ChocoGossipMethod
from gossamer.agents.consensus.codecs import IdentityCodec, QuantisationCodec, RandomK, TopK
from gossamer.agents.consensus.plain import PlainMethod
from gossamer.agents.consensus.power_gossip import PowerGossipMethod
from gossamer.agents.quantisation import Quantiser
from gossamer.errors import GossamerError
from gossamer.runs.settings import make_settings

SHAPES = {"weight": (20, 8), "powers": (3, 5, 4), "bias": (8,)}


BITS = {bits: QuantisationCodec(Quantiser(bits)) for bits in (8, 4)}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("none", PlainMethod()),
        ("power:3", PowerGossipMethod(3)),
        ("power:1,bits=8", PowerGossipMethod(1, Quantiser(8))),
        ("power:2,bits=32", PowerGossipMethod(2)),
        ("choco:bits=32", ChocoGossipMethod(IdentityCodec(), 1.0, "bits=32")),
        ("choco:bits=8", ChocoGossipMethod(BITS[8], 1.0, "bits=8")),
        ("choco:bits=4", ChocoGossipMethod(BITS[4], 1.0, "bits=4")),
        ("choco:gamma=0.3,bits=4", ChocoGossipMethod(BITS[4], 0.3, "bits=4")),
        ("choco:topk=0.1", ChocoGossipMethod(TopK(0.1), 0.2 / 1.1, "topk=0.1")),
        ("choco:topk=1", ChocoGossipMethod(TopK(1.0), 1.0, "topk=1")),
        ("choco:randk=0.5", ChocoGossipMethod(RandomK(0.5), 1 / 3, "randk=0.5")),
        ("choco:randk=1", ChocoGossipMethod(RandomK(1.0), 1.0, "randk=1")),
        ("choco:randk=0.01,gamma=1", ChocoGossipMethod(RandomK(0.01), 1.0, "randk=0.01")),
    ],
)
def test_words_choose_a_method(text: str, expected: ConsensusMethod) -> None:
    assert parse_method(text) == expected
    assert make_settings({"compress": text}).consensus_method == expected


@pytest.mark.parametrize(
    "text",
    [
        "", "nonsense", "none:1", "power", "power:", "power:0", "power:-1", "power:1.5", "power:bits=8",
        "power:1,bits=4", "power:1,bits=8,bits=8", "power:1,topk=0.1", "power:1,8", "power:1,,bits=8",
        "choco", "choco:", "choco:8", "choco:bits=16", "choco:bits=", "choco:bits=8,rank=1", "CHOCO:bits=8",
        "choco:topk=0", "choco:randk=0", "choco:topk=-0.1", "choco:topk=1.1", "choco:topk=nan", "choco:randk=inf",
        "choco:bits=8,topk=0.1", "choco:topk=0.1,randk=0.1", "choco:gamma=0.5", "choco:bits=8,gamma=0",
        "choco:bits=8,gamma=1.5", "choco:bits=8,gamma=nan",
    ],
)  # fmt: skip
def test_other_words_are_refused_with_a_list_of_those_that_are_known(text: str) -> None:
    with pytest.raises(GossamerError) as caught:
        parse_method(text)
    assert str(caught.value) == (
        "expected a compression among none, power:RANK, power:RANK,bits=8, choco:bits=32|8|4, choco:topk=SHARE or "
        f"choco:randk=SHARE (with a share and gamma above 0 and at most 1), got {text!r}"
    )
    with pytest.raises(GossamerError, match=r"settings: compress = .*expected a compression among none, power:RANK"):
        make_settings({"compress": text})


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("none", 160 * 4 + 60 * 4 + 8 * 4),
        ("power:1", (20 + 8) * 4 + (15 + 4) * 4 + 8 * 4),
        ("power:2", 2 * (20 + 8) * 4 + 2 * (15 + 4) * 4 + 8 * 4),
        ("power:4", 4 * (20 + 8) * 4 + 60 * 4 + 8 * 4),  # 4 (15 + 4) are more than 60 numbers
        ("power:100", 160 * 4 + 60 * 4 + 8 * 4),
        ("power:2,bits=8", 2 * (21 + 9) + 2 * (16 + 5) + 9),
        ("choco:bits=32", 160 * 4 + 60 * 4 + 8 * 4),
        ("choco:bits=8", 20 * 9 + 15 * 5 + 9),
        ("choco:bits=4", 20 * 5 + 15 * 3 + 5),
        ("choco:topk=0.11", (18 + 7 + 1) * 8),  # a number and its position
        ("choco:randk=0.11", (18 + 7 + 1) * 4),
    ],
)
def test_bytes_of_one_message(text: str, expected: int) -> None:
    assert parse_method(text).payload_bytes(SHAPES, 4) == expected


def test_an_array_goes_whole_where_factors_are_not_fewer_numbers() -> None:
    assert [PowerGossipMethod(rank).factors((6, 3)) for rank in (1, 2, 3)] == [1, 0, 0]  # 9, 18, 27 against 18
    assert PowerGossipMethod(1).factors((64,)) == 0


@pytest.mark.parametrize("text", ["choco:bits=4", "choco:gamma=1,bits=4"])
def test_advice_of_a_smaller_step_can_be_given_as_it_stands(text: str) -> None:
    method = parse_method(text)
    assert method.advice.drift == (
        "choco's mixing step is too large, give a smaller one: --compress choco:bits=4,gamma=0.25"
    )
    assert isinstance(smaller := parse_method("choco:bits=4,gamma=0.25"), ChocoGossipMethod)
    assert smaller.gamma == 0.25


@pytest.mark.parametrize(("rank", "warned"), [(1, True), (7, True), (8, False)])
def test_low_ranks_are_not_advised_for_adam(rank: int, warned: bool) -> None:
    assert (parse_method(f"power:{rank}").advice.adam is not None) == warned
