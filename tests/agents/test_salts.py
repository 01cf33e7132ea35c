"""Random numbers from secrets of their owners: as good as independent, the same at every hosting, unknown to others."""

import hashlib
import struct
from typing import Any

import numpy as np
import pytest
import torch
from agents.cases import M, make_case, watched
from agents.test_hosting import GROUPINGS, stacked

from gossamer.agents import Host, Outbox, Phase, forward, passes, training_step
from gossamer.agents.counter_rng import draw_dropout_mask, draw_uniform, hash_columns, hash_rows
from gossamer.agents.exchange import join_parts
from gossamer.agents.salts import OwnedRows, Secrets, own_rows
from gossamer.engines.simulation import run, run_together
from gossamer.model.selected_product import SelectedProduct

SECRETS = Secrets({k: bytes([k + 1]) * 32 for k in range(M)})
OTHERS = Secrets({k: bytes([k + 101]) * 32 for k in range(M)})
WORD = 2**32


def hash_once(counter: int, first: int, second: int) -> int:
    """lowbias32 with a salt of two words, one number at a time."""
    x = (counter ^ first) * 0x9E3779B9 % WORD ^ second
    x = (x ^ x >> 16) * 0x7FEB352D % WORD
    return (x ^ x >> 15) * 0x846CA68B % WORD


def masks(owned: OwnedRows, step: int, layer: int = 0, columns: int = 400) -> torch.Tensor:
    """+1 and -1 with probability 1/2 for each row and column."""
    counters = hash_rows(torch.arange(owned.count))[:, None] + hash_columns(torch.arange(columns))
    salts = owned.draw_salts("dropout", 0, step, layer)[..., None]
    return draw_dropout_mask(counters, 0, step, layer, 0.5, salts=salts).double() * 2 - 1


def test_salts_masks_and_noise_equal_the_scalar_reference() -> None:
    owner = np.array([2, 0, 2, 2, 0])
    salts = own_rows(SECRETS, owner, np.array([3, 4, 0, 1, 2])).draw_salts("rows", 7, 8, 9)
    for agent, rows in ((0, [4, 1]), (2, [3, 0, 2])):
        stream = hashlib.shake_256(SECRETS.by_agent[agent] + b"rows 7 8 9").digest(8 * len(rows))
        for place, row in enumerate(rows):
            assert tuple(salts[:, row].tolist()) == struct.unpack_from("<ii", stream, 8 * place)
    counters = hash_rows(torch.arange(5))[:, None] + hash_columns(torch.arange(6))
    expected = [
        [hash_once(c % WORD, a % WORD, b % WORD) for c in row]
        for row, a, b in zip(counters.tolist(), *salts.tolist(), strict=True)
    ]
    noise = draw_uniform(counters, 7, 8, 9, salts=salts[..., None])
    np.testing.assert_array_equal(noise, np.array(expected) // 2**8 / 2**24)
    mask = draw_dropout_mask(counters, 7, 8, 9, 0.3, salts=salts[..., None])
    signed = np.where(np.array(expected) < 2**31, expected, np.array(expected) - WORD)
    np.testing.assert_array_equal(mask, signed >= round(0.3 * WORD) - 2**31)


def test_masks_of_other_secrets_steps_layers_and_rows_are_independent() -> None:
    """Share kept, and correlations, within five standard deviations; the same secret gives the same mask."""
    owner = np.zeros(500, dtype=np.int64)
    first, other = own_rows(SECRETS, owner), own_rows(OTHERS, owner)
    signs = masks(first, 0)
    assert torch.equal(signs, masks(own_rows(Secrets({0: bytes([1]) * 32}), owner), 0))
    bound = 5 / np.sqrt(signs.numel() * 0.9)
    public = draw_dropout_mask(hash_rows(torch.arange(500))[:, None] + hash_columns(torch.arange(400)), 0, 0, 0, 0.5)
    for same_place in (masks(other, 0), masks(first, 1), masks(first, 0, layer=1), public.double() * 2 - 1):
        assert abs(float((signs * same_place).mean())) < bound
    assert abs(float(signs.mean())) < bound
    assert abs(float((signs[1:] * signs[:-1]).mean())) < bound
    assert abs(float((signs[:, 1:] * signs[:, :-1]).mean())) < bound
    assert float(signs.mean(0).abs().max()) < 5.5 / np.sqrt(500)
    assert float(signs.mean(1).abs().max()) < 5.5 / np.sqrt(400)
    assert abs(float((signs[:-1, :-1] * signs[1:, :-1] * signs[:-1, 1:] * signs[1:, 1:]).mean())) < bound


@pytest.mark.parametrize("word", [0, 1])
def test_every_bit_of_a_salt_changes_about_half_of_the_mask(word: int) -> None:
    """A search must try 64 bits: none of them is without effect."""
    counters = hash_columns(torch.arange(4000))
    salts = torch.tensor([[0x1234567], [-0x7654321]], dtype=torch.int32)
    before = draw_dropout_mask(counters, 0, 0, 0, 0.5, salts=salts)
    for bit in range(32):
        flipped = salts.clone()
        flipped[word] ^= 1 << bit if bit < 31 else -(2**31)
        changed = float((draw_dropout_mask(counters, 0, 0, 0, 0.5, salts=flipped) != before).double().mean())
        assert 0.4 < changed < 0.6, bit


@pytest.mark.parametrize("grouping", [GROUPINGS[0], GROUPINGS[3]], ids=str)
@pytest.mark.parametrize(
    "options",
    [
        {"dropout": 0.4},
        {"order": 2, "sparse_features": False, "dropout": 0.4},
        {"batch": 3, "dropout": 0.2},
        {"dropout": 0.4, "boundary_bits": 8},
        {"batch": 3, "boundary_bits": 16},
        {"kind": "chebyshev", "order": 3, "shift": "scaled-laplacian", "boundary_bits": 8},
    ],
    ids=str,
)
def test_hosting_parity(grouping: list[list[int]], options: dict[str, Any]) -> None:
    """Each host has the secrets of its own agents alone, so that it cannot draw others' numbers."""
    bits: dict[str, Any] = {"boundary_bits": options.get("boundary_bits", 0)}
    case = make_case(**{name: value for name, value in options.items() if name not in bits})
    one = case.host(step_size=0.05, secrets=SECRETS, **bits)
    many = [case.host(group, step_size=0.05, secrets=SECRETS.select(group), **bits) for group in grouping]
    public = case.host(step_size=0.05, **bits)
    for _ in range(6):
        one, _ = run(training_step(one))
        public, _ = run(training_step(public))
        many = [host for host, _ in run_together([training_step(host) for host in many])]
    for name, part in stacked(many).items():
        torch.testing.assert_close(part, one.params[name], rtol=1e-10, atol=1e-12)
    assert any(float((part - one.params[name]).abs().max()) > 1e-7 for name, part in public.params.items())


def test_selected_entries_have_the_same_masks_in_both_orders(monkeypatch: pytest.MonkeyPatch) -> None:
    """A large sparse input, of which dropout selects entries forwards and backwards, as one that is not selected."""
    case = make_case(dropout=0.4)
    plain = case.host(secrets=SECRETS)
    monkeypatch.setattr(passes, "has_many_entries", lambda *sizes: True)
    selected = case.host(secrets=SECRETS)
    assert isinstance(selected.train_pass.products[0], SelectedProduct)
    for _ in range(3):
        plain, selected = (run(training_step(host))[0] for host in (plain, selected))
    for name, part in plain.params.items():
        torch.testing.assert_close(selected.params[name], part, rtol=1e-10, atol=1e-12)


def rows_sent(hosts: list[Host]) -> dict[tuple[int, int], torch.Tensor]:
    """First-layer rows of a training step, by link."""
    sent: dict[tuple[int, int], torch.Tensor] = {}

    def note(outbox: Outbox) -> None:
        if outbox.phase is Phase.FORWARD and outbox.index == 0:
            sent.update({(link.sender, link.receiver): join_parts(rows) for link, rows in outbox.messages.items()})

    run_together([watched(forward(host, host.train_pass, dropout=True), note) for host in hosts])
    return sent


@pytest.mark.parametrize("options", [{"dropout": 0.5}, {"row_codec": True}], ids=str)
def test_what_all_agents_know_does_not_give_the_rows_that_an_agent_sends(options: dict[str, Any]) -> None:
    """An adversary with seed, settings, weights, its own secret and even the right features: rows come out by chance.

    With the sender's secret every one comes out right, so that nothing else is missing.
    """
    case = make_case(n=40, sparse_features=False, dropout=options.get("dropout", 0.0))
    bits: dict[str, Any] = {"boundary_bits": 8 if "row_codec" in options else 0}
    sent = rows_sent([case.host([k], secrets=SECRETS.select([k]), **bits) for k in range(M)])
    known = rows_sent([case.host([k], secrets=SECRETS.select([k]), **bits) for k in range(M)])
    public = rows_sent([case.host([k], **bits) for k in range(M)])
    own = Secrets(dict.fromkeys(range(M), SECRETS.by_agent[1]))  # agent 1 tries its own
    guessed = rows_sent([case.host([k], secrets=own, **bits) for k in range(M)])
    others = [link for link in sent if link[0] != 1]
    assert all(torch.equal(rows, known[link]) for link, rows in sent.items())
    for tried in (public, guessed):
        right = torch.cat([(tried[link] == sent[link]).all(1) for link in others]).double()
        assert len(right) > 30
        assert float(right.mean()) < 0.3  # rows have 5 numbers, rounded up or down, or a few features that are kept


def test_no_description_shows_a_secret() -> None:
    secret = bytes(range(65, 97))
    secrets = Secrets({0: secret})
    host = make_case(dropout=0.4, n=24).host([0], secrets=secrets, boundary_bits=8)
    for text in (repr(secrets), str(own_rows(secrets, np.zeros(3, dtype=np.int64))), repr(host)):
        assert secret.decode() not in text
        assert secret.hex() not in text
