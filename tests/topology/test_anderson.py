"""Anderson acceleration on known fixed points: it converges, in fewer steps, and never increases the residual."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from gossamer.topology.anderson import Anderson


def affine(seed: int, slow: float = 0.99) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """G(W) = A W + b with a symmetric A of norm `slow`, and its fixed point."""
    random = np.random.default_rng(seed)
    Q, _ = np.linalg.qr(random.standard_normal((6, 6)))
    A = Q * np.linspace(0, slow, 6) @ Q.T
    b = random.standard_normal((6, 6))
    return A, b, np.linalg.solve(np.eye(6) - A, b)


def run(A: np.ndarray, b: np.ndarray, memory: int, steps: int) -> tuple[np.ndarray, list[float]]:
    W, accelerate, residuals = np.zeros((6, 6)), Anderson(memory) if memory else None, []
    for _ in range(steps):
        step = A @ W + b
        residuals.append(float(np.linalg.norm(step - W)))
        W = accelerate(W, step) if accelerate else step
    return W, residuals


@given(st.integers(0, 10**6))
def test_a_linear_iteration_is_solved_where_the_plain_one_has_hardly_begun(seed: int) -> None:
    A, b, fixed = affine(seed)
    accelerated, _ = run(A, b, 10, 80)
    plain, _ = run(A, b, 0, 80)
    assert np.linalg.norm(accelerated - fixed) <= 1e-3 * np.linalg.norm(plain - fixed)


@given(st.integers(0, 10**6))
def test_the_first_steps_are_plain(seed: int) -> None:
    A, b, _ = affine(seed)
    np.testing.assert_array_equal(run(A, b, 10, 3)[0], run(A, b, 0, 3)[0])


def test_a_step_that_makes_the_residual_grow_is_taken_back() -> None:
    A, b, _ = affine(3)
    accelerate, W = Anderson(10), np.zeros((6, 6))
    for _ in range(50):
        step = A @ W + b
        after = accelerate(W, step)
        if not np.array_equal(after, step):  # an accelerated step: let it lead to where the residual is large
            np.testing.assert_array_equal(accelerate(after, after + 1e3), step)
            return
        W = after
    raise AssertionError("no step was accelerated")


def test_vanishing_steps_do_no_harm() -> None:
    accelerate, W = Anderson(5), np.full((2, 2), 1e-150)
    for _ in range(400):
        W = accelerate(W, 0.5 * W)
    assert np.isfinite(W).all()
    assert abs(W).max() <= 1e-150


def test_a_fixed_point_stays() -> None:
    _, _, fixed = affine(1)
    accelerate, W = Anderson(4), fixed
    for _ in range(20):
        W = accelerate(W, W)
    np.testing.assert_array_equal(W, fixed)


def test_after_forgetting_the_next_steps_are_plain() -> None:
    A, b, _ = affine(2)
    accelerate, W = Anderson(5), np.zeros((6, 6))
    for _ in range(13):
        W = accelerate(W, A @ W + b)
    accelerate.forget()
    for _ in range(3):
        step = A @ W + b
        W = accelerate(W, step)
        np.testing.assert_array_equal(W, step)
