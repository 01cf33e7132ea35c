"""Streams of noise: standard normal, the same for the same secret and key, and unlike each other for others."""

import numpy as np
import torch

from gossamer.agents.secret_streams import derive_secrets, digest_rows, stream_normal, stream_uniform

SECRET = bytes(range(32))


def test_numbers_are_uniform_and_normal() -> None:
    uniform = stream_uniform(SECRET, "test", [1], 200_000)
    assert uniform.min() >= 0
    assert uniform.max() < 1
    assert np.abs(np.histogram(uniform, 50)[0] - 4000).max() < 5 * np.sqrt(4000)
    normal = stream_normal(SECRET, "test", [1], 200_001)
    assert len(normal) == 200_001
    moments = [normal.mean(), normal.var() - 1, (normal**3).mean(), (normal**4).mean() - 3]
    assert np.abs(moments).max() < 0.05
    assert abs(np.corrcoef(normal[:100_000], normal[100_000:200_000])[0, 1]) < 0.015  # pairs of Box and Muller
    assert 4 < np.abs(normal).max() < 6


def test_every_part_of_the_key_counts() -> None:
    def draw(secret: bytes = SECRET, purpose: str = "a", key: tuple[int, ...] = (1, 2)) -> tuple[float, ...]:
        return tuple(stream_normal(secret, purpose, key, 4))

    assert draw() == draw()
    others = {draw(bytes(32)), draw(purpose="b"), draw(key=(1, 3)), draw(key=(12,)), draw(key=(2, 1))}
    assert len(others | {draw()}) == 6


def test_secrets_of_a_simulation_come_from_its_seed() -> None:
    one, other = derive_secrets(0, range(3)), derive_secrets(1, range(3))
    assert one == derive_secrets(0, range(3))
    assert len({*one.by_agent.values(), *other.by_agent.values()}) == 6


def test_a_digest_changes_with_the_last_bit() -> None:
    rows = torch.randn(5, 3, dtype=torch.float64)
    moved = rows.clone()
    moved[4, 2] = np.nextafter(moved[4, 2].item(), np.inf)
    assert digest_rows(rows) == digest_rows(rows.clone()) != digest_rows(moved)
