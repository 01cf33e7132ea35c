"""Words for a compression, the bytes that it takes, and what is said of words that mean nothing."""

import pytest

from gossamer.agents.consensus.compression import PLAIN, Compression, parse_compression
from gossamer.errors import GossamerError
from gossamer.runs.settings import make_settings

SHAPES = {"weight": (20, 8), "powers": (3, 5, 4), "bias": (8,)}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("none", PLAIN),
        ("power:3", Compression("power", rank=3)),
        ("power:1,bits=8", Compression("power", rank=1, bits=8)),
        ("power:2,bits=32", Compression("power", rank=2)),
        ("choco:bits=32", Compression("choco")),
        ("choco:bits=8", Compression("choco", bits=8)),
        ("choco:bits=4", Compression("choco", bits=4)),
        ("choco:gamma=0.3,bits=4", Compression("choco", bits=4, gamma=0.3)),
        ("choco:topk=0.1", Compression("choco", topk=0.1, gamma=0.2 / 1.1)),
        ("choco:topk=1", Compression("choco", topk=1.0)),
        ("choco:randk=0.5", Compression("choco", randk=0.5, gamma=1 / 3)),
        ("choco:randk=1", Compression("choco", randk=1.0)),
        ("choco:randk=0.01,gamma=1", Compression("choco", randk=0.01)),
    ],
)
def test_words(text: str, expected: Compression) -> None:
    assert parse_compression(text) == expected
    assert make_settings({"compress": text}).compression == expected


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
def test_words_that_mean_nothing_are_refused_with_those_that_do(text: str) -> None:
    with pytest.raises(GossamerError, match=r"expected a compression among none, power:RANK.*above 0.*got ") as caught:
        parse_compression(text)
    assert str(caught.value).endswith(repr(text))
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
        ("choco:topk=0.11", (18 + 7 + 1) * 8),  # a number and its place
        ("choco:randk=0.11", (18 + 7 + 1) * 4),
    ],
)
def test_bytes_of_one_message(text: str, expected: int) -> None:
    assert parse_compression(text).payload(SHAPES, 4) == expected


def test_an_array_goes_whole_where_factors_are_not_fewer_numbers() -> None:
    assert [Compression("power", rank=rank).factors((6, 3)) for rank in (1, 2, 3)] == [1, 0, 0]  # 9, 18, 27 against 18
    assert Compression("power", rank=1).factors((64,)) == 0
