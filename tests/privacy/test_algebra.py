"""The algebra of seen rows against dense matrices: row spaces, and null spaces of all equations at once."""

from typing import Any

import numpy as np
import pytest
from privacy.small import D, deploy, small_graph

from gossamer.privacy.algebra import align_rows, find_alone, measure_ranks, reduce_rows
from gossamer.privacy.audit import audit_deployment
from gossamer.privacy.knowledge import KnownSteps, find_knowledge, find_known_steps, receives_all_of
from gossamer.privacy.seen_rows import SeenRows, find_seen_plan


def in_row_space(matrix: Any, j: int) -> bool:
    unit = np.eye(matrix.shape[1])[j]
    return bool(np.linalg.norm(np.linalg.lstsq(matrix.T, unit, rcond=None)[0] @ matrix - unit) < 1e-8)


@pytest.mark.parametrize("seed", range(6))
def test_a_vertex_stands_alone_if_its_unit_vector_is_in_the_row_space(seed: int) -> None:
    random = np.random.default_rng(seed)
    matrix = random.normal(size=(9, 11)) * (random.random((9, 11)) < 0.25)
    matrix[4] = 2 * matrix[1] - matrix[2]  # rows of D between twins are multiples of each other
    basis = reduce_rows(matrix)
    assert len(basis) == np.linalg.matrix_rank(matrix)
    assert np.linalg.matrix_rank(np.concatenate([basis, matrix])) == len(basis)
    assert find_alone(matrix).tolist() == [in_row_space(matrix, j) for j in range(11)]


@pytest.mark.parametrize("curious", [(0,), (1, 3)])
def test_rows_rebuild_the_blocks_of_d(curious: tuple[int, ...]) -> None:
    """The rows seen span the rows of D from a sender to the curious agents, and hold no vertex of others."""
    deployment, _ = deploy()
    dense, a = deployment.shift.toarray(), deployment.assignment
    seen = find_seen_plan(deployment, curious)
    mine = np.isin(a, curious)
    for z, rows in seen.evaluation.items():
        assert z not in curious
        assert (a[rows.vertices] == z).all()
        block = dense[mine][:, rows.vertices]
        aligned = np.concatenate([rows.matrix, block])
        assert np.linalg.matrix_rank(aligned, tol=1e-6) == np.linalg.matrix_rank(rows.matrix, tol=1e-6)
        assert not dense[mine][:, (a == z) & ~np.isin(np.arange(len(a)), rows.vertices)].any()
    senders = {z for z in range(4) if z not in curious and dense[mine][:, a == z].any()}
    assert set(seen.evaluation) == senders


def count_by_brute_force(
    S_e: Any, S_t: Any, evaluations: int, training: int, width: int, dropout: float, seed: int
) -> list[int]:
    """d minus the dimension in which a vertex's features can vary within the null space of all equations."""
    random = np.random.default_rng(seed)
    n, blocks = S_e.shape[1], []
    weights = random.normal(size=(max(evaluations, training), D, width))
    for t in range(evaluations):
        blocks.append(np.kron(S_e, weights[t].T))
    for t in range(training):
        masks = random.random((n, D)) >= dropout
        blocks.append(np.concatenate([np.kron(S_t[:, [j]], weights[t].T * masks[j]) for j in range(n)], axis=1))
    _, values, V = np.linalg.svd(np.concatenate(blocks))
    null = V[int((values > 1e-9 * values[0]).sum()) :].T
    return [D - np.linalg.matrix_rank(null[j * D : (j + 1) * D], tol=1e-6) if null.size else D for j in range(n)]


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize(
    ("evaluations", "training", "dropout"),
    [(1, 0, 0.5), (3, 0, 0.0), (2, 40, 0.5), (0, 60, 0.3), (1, 1, 0.0), (2, 2, 0.0)],
)
def test_ranks_are_those_of_all_equations_at_once(seed: int, evaluations: int, training: int, dropout: float) -> None:
    deployment, _ = deploy(small_graph(seed=seed))
    seen = find_seen_plan(deployment, (0,))
    known = KnownSteps(tuple(range(evaluations)), tuple(range(training)))
    for z, rows in seen.evaluation.items():
        found = measure_ranks(rows, seen.training.get(z), known, 3, D, dropout)
        S_e, S_t = align_rows(rows, found.vertices), align_rows(seen.training.get(z), found.vertices)
        assert found.rank.tolist() == count_by_brute_force(S_e, S_t, evaluations, training, 3, dropout, seed)


def test_a_sum_of_two_comes_apart_by_masks_alone() -> None:
    row = SeenRows(1, np.array([4, 7]), np.array([[0.5, 0.25]]), ())
    known = KnownSteps((0, 1, 2), tuple(range(30)))
    assert not measure_ranks(row, row, known, 3, D, 0.0).rank.any()
    assert measure_ranks(row, row, known, 3, D, 0.5).rank.tolist() == [D, D]
    hidden = KnownSteps((0, 1, 2), ())  # masks that are secret
    assert not measure_ranks(row, row, hidden, 3, D, 0.5).rank.any()


def test_weights_are_known_where_all_that_are_mixed_are_heard() -> None:
    line = np.diag(np.ones(3), 1).astype(bool)
    line |= line.T
    assert receives_all_of(line, (0,), 1) is False  # agent 1 mixes agent 2's, which agent 0 does not hear
    assert receives_all_of(line, (1,), 0) is True
    assert receives_all_of(line, (0, 3), 1) is True
    assert receives_all_of(line, (1,), 3) is False


def test_steps_with_known_weights() -> None:
    deployment, settings = deploy(consensus_every=2)
    knowledge = find_knowledge(settings)
    steps = find_known_steps(deployment, settings, knowledge, (0,), 1, 6)
    assert steps == KnownSteps((0, 4, 6), (0, 2, 4))
    deployment, settings = deploy(boundary_bits=8)
    assert find_known_steps(deployment, settings, knowledge, (0,), 1, 6) == KnownSteps((0, 4, 6), ())
    deployment, settings = deploy(compress="choco:bits=8")
    assert find_known_steps(deployment, settings, find_knowledge(settings), (0,), 1, 6) == KnownSteps((0,), (0,))


def test_evaluations_are_spent_on_vertices_that_training_does_not_show() -> None:
    """Once the first two are known from training, both rows say the same about the last two: their sum."""
    S_e, S_t = np.array([[1.0, 0.0, 1.0, 2.0], [0.0, 1.0, 2.0, 4.0]]), np.eye(4)[:2]
    known = KnownSteps(tuple(range(4)), tuple(range(40)))
    vertices = np.arange(4)
    found = measure_ranks(SeenRows(1, vertices, S_e, ()), SeenRows(1, vertices, S_t, ()), known, 3, D, 0.5)
    assert found.rank.tolist() == count_by_brute_force(S_e, S_t, 4, 40, 3, 0.5, 0) == [D, D, 0, 0]


@pytest.mark.parametrize("update", ["gd", "adam"])
def test_agents_whose_rows_are_relayed_are_audited_and_their_weights_are_not_known(update: str) -> None:
    """On a line agent 3 is sent rows of 1 and its own neighbour's weights alone."""
    deployment, settings = deploy(topology="line", update=update)
    found, seen = audit_deployment(deployment, settings, [3])
    others = {one.agent: one for one in found.neighbours}
    assert set(others) == set(seen.evaluation) | {2} == {0, 1, 2}
    assert all(one.boundary > 0 for one in others.values())
    assert not any(one.weights == "exact" for one in (others[0], others[1]))
    for z in (0, 1):
        known = find_known_steps(deployment, settings, find_knowledge(settings), (3,), z, settings.steps)
        assert set(known.evaluations) | set(known.training) == {0}  # initial weights are public
    dropped, own = deploy(topology="line", update=update, lost_edges="drop")
    assert [one.agent for one in audit_deployment(dropped, own, [3])[0].neighbours] == [2]
