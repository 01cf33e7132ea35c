"""Keyed randomness: the same for every hosting, and as good as independent coins."""

import numpy as np
import torch
from oracles.whole_graph import dropout_mask, splitmix

from gossamer.agents.counter_rng import derive_key, draw_dropout_mask, draw_normal, hash_columns, hash_rows


def counters(rows: int, columns: int) -> torch.Tensor:
    return hash_rows(torch.arange(rows))[:, None] + hash_columns(torch.arange(columns))


def test_key_and_mask_equal_the_scalar_reference() -> None:
    assert derive_key(5, 2**40, 3) == splitmix(5, 2**40, 3)
    for step, dropout in ((0, 0.5), (7, 0.1), (123, 0.9)):
        found = draw_dropout_mask(counters(40, 11), 9, step, 1, dropout)
        torch.testing.assert_close(found.double(), dropout_mask((40, 11), 9, step, 1, dropout), rtol=0, atol=0)


def test_rates_rows_columns_steps_and_layers() -> None:
    """Share kept, and correlation between neighbours in every direction, within five standard deviations."""
    rows, columns = 600, 500
    w = counters(rows, columns)
    for dropout in (0.1, 0.5, 0.8):
        share = [float(draw_dropout_mask(w, 0, t, 0, dropout).double().mean()) for t in range(20)]
        assert abs(np.mean(share) - (1 - dropout)) < 5 * np.sqrt(dropout * (1 - dropout) / (20 * rows * columns))
    signs = [draw_dropout_mask(w, 0, t, layer, 0.5).double() * 2 - 1 for t, layer in ((0, 0), (1, 0), (2, 0), (0, 1))]
    bound = 5 / np.sqrt(rows * columns * 0.9)
    for other in signs[1:]:
        assert abs(float((signs[0] * other).mean())) < bound
    for s in signs:
        assert abs(float((s[1:] * s[:-1]).mean())) < bound
        assert abs(float((s[:, 1:] * s[:, :-1]).mean())) < bound
        assert float(s.mean(0).abs().max()) < 5.5 / np.sqrt(rows)
        assert float(s.mean(1).abs().max()) < 5.5 / np.sqrt(columns)
        quad = s[:-1, :-1] * s[1:, :-1] * s[:-1, 1:] * s[1:, 1:]
        assert abs(float(quad.mean())) < bound


def test_initial_weights_depend_on_seed_agent_and_layer_alone() -> None:
    first = draw_normal((50, 40), 1, 2, 3)
    torch.testing.assert_close(first, draw_normal((50, 40), 1, 2, 3), rtol=0, atol=0)
    for other in ((2, 2, 3), (1, 3, 3), (1, 2, 4)):
        assert (draw_normal((50, 40), *other) - first).abs().min() > 0
    assert abs(float(first.mean())) < 5 / np.sqrt(2000)
    assert abs(float(first.std()) - 1) < 0.1
