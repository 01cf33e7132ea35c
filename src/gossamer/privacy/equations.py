"""Known linear equations in a sender's features, from the rows that curious agents recorded.

An evaluation at step t gives S X W_t, a training step the same of every vertex's masked features: in row q
sum_j S_qj W_t^T (m_j^t o x_j) / (1 - dropout). Rows may be combined to others with fewer vertices, down to one.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from scipy import linalg

from gossamer.agents.counter_rng import draw_dropout_mask, hash_columns, hash_rows
from gossamer.agents.exchange import Phase
from gossamer.agents.links import Link
from gossamer.array_types import Floats, Ints
from gossamer.privacy.algebra import align_rows, reduce_around, reduce_rows
from gossamer.privacy.knowledge import Knowledge
from gossamer.privacy.seen_rows import SeenPlan, SeenRows
from gossamer.privacy.tracing import TracedWeights
from gossamer.runs.deployment import Deployment
from gossamer.runs.recordings import EVALUATING, TRAINING, Recording
from gossamer.runs.settings import Settings

DROWNED = {"float32": 1e-4, "float64": 1e-10}  # relative size of W's singular values
INDEPENDENT = 1e-6  # relative size of what a row adds to others


@dataclass(frozen=True)
class Measured:
    """Content of rows at a step, and the weights that features were multiplied by."""

    step: int
    weight: Floats  # W_t [d, width]
    rows: Floats  # [rows, width]
    exact: bool  # the weights are known exactly


@dataclass(frozen=True)
class RowSet:
    """Rows over a sender's vertices, combined ones included, with what they carried at each step."""

    matrix: Floats  # [rows, vertices]
    measured: tuple[Measured, ...]

    @cached_property
    def supports(self) -> list[frozenset[int]]:
        """Vertices of each row, by their column."""
        return [frozenset(np.flatnonzero(row).tolist()) for row in self.matrix]

    def within(self, columns: Collection[int], known: Collection[int]) -> list[int]:
        """Independent rows that hold one of these vertices, and beyond them known ones alone."""
        open_, allowed = set(columns), {*columns, *known}
        found = [q for q, support in enumerate(self.supports) if support <= allowed and not support.isdisjoint(open_)]
        if len(found) < 2:
            return found
        _, R, order = linalg.qr(self.matrix[found].T, mode="economic", pivoting=True)
        rank = int((np.abs(np.diag(R)) > INDEPENDENT * abs(R[0, 0])).sum())
        return sorted(found[q] for q in order[:rank])


@dataclass(frozen=True)
class SenderRows:
    """All that is known of one sender's features."""

    sender: int
    vertices: Ints
    num_features: int
    evaluation: RowSet
    training: RowSet
    dropout: float
    seed: int

    def mask(self, column: int, step: int) -> Floats:
        """Dropout's mask of a vertex at a step, scaled (agents/dropout.py)."""
        if not self.dropout:
            return np.ones(self.num_features)
        counters = hash_rows(torch.tensor([self.vertices[column]])) + hash_columns(torch.arange(self.num_features))
        kept = draw_dropout_mask(counters, self.seed, step, 0, self.dropout).numpy()
        return np.asarray(kept / (1.0 - self.dropout))

    def build(self, columns: list[int], known: Mapping[int, Floats], most: int) -> tuple[Floats, Floats]:
        """Equations A x = y in the features of these vertices, one vertex after the other; `most` of them.

        Features that are known already are subtracted. Equations with exact weights come first, and no others are taken
        if they are enough.
        """
        d, blocks, sides, count = self.num_features, [], [], 0
        sources = [(self.evaluation, False), (self.training, True)]
        pairs = [(rows, one, masked) for rows, masked in sources for one in rows.measured]
        pairs.sort(key=lambda pair: (not pair[1].exact, pair[1].step))
        chosen = {id(rows): rows.within(columns, known) for rows, _ in sources}
        enough = len(columns) * d
        for rows, one, masked in pairs:
            if count >= most or (not one.exact and count >= enough):
                break
            for q in chosen[id(rows)]:
                side = one.rows[q].copy()
                for j in rows.supports[q] - set(columns):
                    x = known[j] * self.mask(j, one.step) if masked else known[j]
                    side -= rows.matrix[q, j] * (x @ one.weight)
                block = [
                    rows.matrix[q, j] * (one.weight * self.mask(j, one.step)[:, None] if masked else one.weight).T
                    for j in columns
                ]
                blocks.append(np.concatenate(block, axis=1))
                sides.append(side)
                count += one.weight.shape[1]
        if not blocks:
            return np.zeros((0, enough)), np.zeros(0)
        return np.concatenate(blocks), np.concatenate(sides)


def collect_equations(
    recording: Recording,
    seen: SeenPlan,
    traced: Mapping[tuple[int, int], TracedWeights],
    deployment: Deployment,
    settings: Settings,
    knowledge: Knowledge,
) -> dict[int, SenderRows]:
    """The equations of every sender; of a time axis those of the first time step, from evaluations."""
    layer = deployment.network.layers[0]
    found = {}
    for z in sorted({*seen.evaluation, *seen.training}):
        both = [rows[z] for rows in (seen.evaluation, seen.training) if z in rows]
        vertices = np.unique(np.concatenate([rows.vertices for rows in both]))
        usable = deployment.graph.batch is None and (knowledge.masks_known or not layer.dropout)
        S_e = align_rows(seen.evaluation.get(z), vertices)
        S_t = align_rows(seen.training.get(z) if usable else None, vertices)
        combined = {EVALUATING: reduce_around(S_e, S_t), TRAINING: reduce_rows(S_t)}
        sets = {
            plan: _measure(recording, rows.get(z), vertices, combined[plan], traced, settings, plan)
            for plan, rows in ((EVALUATING, seen.evaluation), (TRAINING, seen.training if usable else {}))
        }
        found[z] = SenderRows(z, vertices, layer.inputs, sets[EVALUATING], sets[TRAINING], layer.dropout, settings.seed)
    return found


def _measure(
    recording: Recording,
    rows: SeenRows | None,
    vertices: Ints,
    basis: Floats,
    traced: Mapping[tuple[int, int], TracedWeights],
    settings: Settings,
    plan: str,
) -> RowSet:
    """The rows of one plan, and behind them combinations that leave few vertices."""
    S = align_rows(rows, vertices)
    known = {tuple(np.flatnonzero(row)) for row in S}
    new = [row for row in basis if tuple(np.flatnonzero(row)) not in known]
    combine = np.array(new) @ np.linalg.pinv(S) if new else np.zeros((0, len(S)))
    measured = []
    for step, messages in sorted(recording.select(plan, Phase.FORWARD, 0).items()):
        if rows is None or (rows.sender, step) not in traced:
            continue
        weights = traced[rows.sender, step]
        W = weights.params["layer.0.weight"].double().numpy()
        content = read_messages(messages, rows, settings, plan, W.shape[-1])
        both = np.concatenate([content, combine @ content])
        measured.append(_whiten(Measured(step, W if W.ndim == 2 else W[-1], both, weights.exact), settings))
    return RowSet(np.concatenate([S, np.array(new).reshape(-1, len(vertices))]), tuple(measured))


def _whiten(one: Measured, settings: Settings) -> Measured:
    """The same equations with orthonormal columns of W: training makes columns of W alike, which sparse recovery cannot
    bear. Directions that rounding has drowned are left out."""
    U, values, Q = linalg.svd(one.weight, full_matrices=False)
    clear = values > DROWNED[settings.dtype] * values[0]
    return Measured(one.step, U[:, clear], one.rows @ (Q[clear] / values[clear, None]).T, one.exact)


def read_messages(
    messages: Mapping[Link, torch.Tensor], rows: SeenRows, settings: Settings, plan: str, width: int
) -> Floats:
    """The rows of the messages of one exchange, decoded; of a time axis those of the first time step."""
    parts = [messages[link] for link, _ in rows.links]
    codec = settings.row_codec
    if codec is not None and (plan == TRAINING or codec.protects):
        parts = [codec.decode(part, width, settings.torch_dtype) for part in parts]
    found = torch.cat(parts).double().numpy()
    return np.asarray(found if found.ndim == 2 else found[:, 0])
