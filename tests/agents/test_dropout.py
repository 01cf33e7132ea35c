"""Dropout in pieces: the same entries as at once, and the gradient of a product with the mask."""

import pytest
import torch

from gossamer.agents import counter_rng, dropout
from gossamer.agents.counter_rng import draw_dropout_mask, hash_columns, hash_rows
from gossamer.agents.salts import RowSalts

KEY = (3, 5, 1)  # seed, step, layer


@pytest.mark.parametrize("shape", [(50, 6), (50, 4, 6), (300,), (0, 6)])
@pytest.mark.parametrize("piece", [1, 40, 10**6])
def test_pieces_change_nothing(shape: tuple[int, ...], piece: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dropout, "PIECE", piece)
    x = torch.randn(shape, dtype=torch.float64, generator=torch.Generator().manual_seed(0)).requires_grad_()
    counters = hash_rows(torch.arange(shape[0])).view(-1, *[1] * (len(shape) - 1))
    if len(shape) == 3:
        counters = counters + hash_rows(torch.arange(shape[1]))[None, :, None]
    whole = counters + hash_columns(torch.arange(shape[-1])) if len(shape) > 1 else counters
    mask = draw_dropout_mask(whole, *KEY, 0.25).double() / 0.75
    drop = dropout.Drop(counters, 0.25, KEY)
    found = drop(x)
    torch.testing.assert_close(found, x * mask, rtol=1e-15, atol=0)
    g = torch.randn(shape, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    torch.testing.assert_close(torch.autograd.grad(found, x, g)[0], g * mask, rtol=1e-15, atol=0)
    for rows in (slice(3, 9), torch.tensor([4, 4, 2])) if shape[0] else ():
        assert torch.equal(drop.rows(x, rows), found[rows])


@pytest.mark.parametrize("piece", [40, 10**6])
def test_the_entries_that_are_kept_are_those_of_the_mask(piece: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dropout, "PIECE", piece)
    counters = hash_rows(torch.arange(600)).view(2, 300)
    drop = dropout.Drop(counters, 0.25, KEY)
    for order in (0, 1):
        entries, scale = drop.keep(order)
        assert torch.equal(entries, draw_dropout_mask(counters[order], *KEY, 0.25).nonzero()[:, 0])
        assert scale == 1 / 0.75


@pytest.mark.parametrize("differentiate", [False, True])
@pytest.mark.parametrize("salted", [False, True])
def test_numpy_and_pytorch_give_the_same_bits(
    differentiate: bool, salted: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Small inputs go through one, large inputs through the other."""
    random = torch.Generator().manual_seed(0)
    x, g = torch.randn(2, 70, 9, generator=random)
    words = torch.randint(-(2**31), 2**31, (2, 70), dtype=torch.int32, generator=random)
    salts = RowSalts(words, torch.arange(70)[:, None]) if salted else None
    found = []
    for serial in (0, counter_rng.SERIAL):
        for module in (counter_rng, dropout):
            monkeypatch.setattr(module, "SERIAL", serial)
        leaf = x.clone().requires_grad_(differentiate)
        dropped = dropout.Drop(hash_rows(torch.arange(70))[:, None], 0.3, KEY, salts)(leaf)
        found.append([dropped, *torch.autograd.grad(dropped, leaf, g)] if differentiate else [dropped])
    for one, other in zip(*found, strict=True):
        assert torch.equal(one.view(torch.int32), other.view(torch.int32))
