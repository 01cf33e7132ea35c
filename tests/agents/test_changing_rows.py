"""Boundary rows and weights over links that change, against dense references of the whole graph in each step."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from agents.cases import Case, M, make_case
from agents.maximum import KIND, whole_graph
from agents.test_hosting import GROUPINGS, stacked
from agents.test_layers import CASES as LAYER_CASES
from agents.test_layers import describe, shake
from oracles.layers import gradients as layer_gradients
from oracles.whole_graph import Problem, dropout_mask, gradients, mean_loss
from torch import Tensor

from gossamer import topology
from gossamer.agents import Host, TrainingOptions, loss_gradient, make_rule, training_step
from gossamer.agents.host import LAST_ROWS, draw_initial_params, make_share_host
from gossamer.agents.measures import MEASURED, evaluate
from gossamer.agents.row_codecs import ROW_CODECS
from gossamer.agents.share import make_share, make_whole
from gossamer.assignment import shared_edges
from gossamer.engines.simulation import run, run_together
from gossamer.errors import GossamerError
from gossamer.model.layers import LAYERS
from gossamer.model.losses import losses
from gossamer.topology import Deliveries, Failing, LinkSequence, Matchings, OnePeer

STEPS, ETA = 6, 0.05


def deliver(case: Case, missing: str = "drop", probability: float = 0.5, max_age: int = 2) -> Deliveries:
    """Links of the case, each down half of the time."""
    return deliver_over(case, Failing(case.combination, probability, 4), missing, max_age)


def deliver_over(case: Case, sequence: LinkSequence, missing: str, max_age: int = 2) -> Deliveries:
    shared = shared_edges(case.graph, case.owner, M)
    links = topology.links_of(case.combination)
    return Deliveries(sequence, shared > 0, topology.plan_routes(links, shared), missing, max_age)


def make_hosts(
    case: Case, deliveries: Deliveries, grouping: Sequence[Sequence[int]] = ((0, 1, 2, 3, 4),), **options: Any
) -> list[Host]:
    whole = make_whole(case.graph, [(case.shift, case.combination)], case.network.gathers, case.owner)
    whole = replace(whole, deliveries=deliveries)
    training = TrainingOptions(make_rule(options.pop("rule", "gd")), ETA, seed=3, **options)
    hosts = []
    for agents in grouping:
        params = draw_initial_params(case.network, agents, 3, 0.5, False, torch.float64)
        hosts.append(make_share_host(make_share(whole, agents), case.network, training, params))
    return hosts


def shift_at(case: Case, known: np.ndarray) -> Tensor:
    """D of a step: entries between agents that know no rows of each other are 0, and rows keep sum_j |D_ij|."""
    D = case.shift.toarray()
    kept = np.where(known[np.ix_(case.owner, case.owner)], D, 0.0)
    sums, left = abs(D).sum(1), abs(kept).sum(1)
    return torch.tensor(kept * np.where(left > 0, sums / np.where(left > 0, left, 1), 1)[:, None])


@pytest.mark.parametrize("missing", ["relay", "drop"])
@pytest.mark.parametrize(
    "options",
    [
        {"dropout": 0.4},
        {"kind": "polynomial", "order": 2},
        {"kind": "chebyshev", "order": 3, "shift": "scaled-laplacian"},
        {"batch": 3, "shift": "random-walk"},
        {"order": 2, "num_layers": 1, "sparse_features": False},
    ],
    ids=str,
)
def test_every_step_is_that_of_its_own_links(options: dict[str, Any], missing: str) -> None:
    case = make_case(**options)
    deliveries = deliver(case, missing, 0.6)
    (host,) = make_hosts(case, deliveries)
    w, lost = case.weights(host), 0
    for t in range(STEPS):
        known = deliveries.arriving(t)
        lost += int((deliveries.shared & ~known).sum())
        here = replace(case.problem, D=shift_at(case, known))
        C = torch.from_numpy(deliveries.sequence.combination(t))
        w = [part - ETA * M * g for part, g in zip(w, gradients(here, w, None, t), strict=True)]
        w = [torch.einsum("kz,z...->k...", C, part) for part in w]
        host, _ = run(training_step(host))
        for part, own in zip(w, case.weights(host), strict=True):
            torch.testing.assert_close(own, part, rtol=1e-10, atol=1e-12)
    assert lost  # some agents are cut off for a step also where others carry their rows


def test_relays_are_exact_while_links_connect_all_agents() -> None:
    case = make_case()
    deliveries = deliver(case, "relay", 0.3)
    steps = [
        t
        for t in range(30)
        if deliveries.arriving(t).all() and (deliveries.sequence.up(t) != deliveries.sequence.links).any()
    ]
    assert steps
    (host,) = make_hosts(case, deliveries)
    host = replace(host, step=steps[0])
    expected = gradients(case.problem, case.weights(host), None, steps[0])
    moved, _ = run(training_step(replace(host, training=replace(host.training, consensus_every=0))))
    before = make_hosts(case, deliveries)[0]
    for own, start, g in zip(case.weights(moved), case.weights(before), expected, strict=True):
        torch.testing.assert_close(own, start - ETA * M * g, rtol=1e-10, atol=1e-12)


def last_rows_step(
    problem: Problem, w: list[Tensor], ages: Tensor, history: list[list[Tensor]], step: int
) -> list[Tensor]:
    """Gradients of a step in which agents that hear nothing use the last offers, constants of the step they are of.

    `history` holds every layer's offers of each step, and gets those of this one.
    """
    leaves = [part.clone().requires_grad_() for part in w]
    owner, D = problem.owner, problem.D
    age = ages[owner][:, owner]
    known = torch.where(age >= 0, D, 0.0)
    left = known.abs().sum(1)
    scale = torch.where(left > 0, D.abs().sum(1) / left, 1.0)
    h, offers = problem.X, list[Tensor]()
    history.append(offers)
    for index, (_, _, activation) in enumerate(problem.layers):
        if problem.dropout:
            h = h * dropout_mask(h.shape, problem.seed, step, index, problem.dropout) / (1 - problem.dropout)
        u = torch.einsum("ni,nio->no", h, leaves[index][owner])
        offers.append(u.detach())
        z = torch.where(age == 0, D, 0.0) @ u
        for old in range(1, int(age.max()) + 1):
            z = z + torch.where(age == old, D, 0.0) @ history[step - old][index]
        z = scale[:, None] * z
        h = torch.tanh(z) if activation == "tanh" else z
    return list(torch.autograd.grad(mean_loss(problem, h), leaves))


@pytest.mark.parametrize("options", [{}, {"dropout": 0.4, "num_layers": 3}], ids=str)
def test_the_last_rows_stand_in_as_constants(options: dict[str, Any]) -> None:
    case = make_case(**options)
    deliveries = deliver(case, "last", 0.6)
    (host,) = make_hosts(case, deliveries)
    w, history, used = case.weights(host), list[list[Tensor]](), set[int]()
    for t in range(3 * STEPS):
        ages = deliveries.ages(t)
        used |= {int(age) for age in ages[deliveries.shared]}
        g = last_rows_step(case.problem, w, torch.from_numpy(ages), history, t)
        C = torch.from_numpy(deliveries.sequence.combination(t))
        w = [torch.einsum("kz,z...->k...", C, a - ETA * M * b) for a, b in zip(w, g, strict=True)]
        host, _ = run(training_step(host))
        for part, own in zip(w, case.weights(host), strict=True):
            torch.testing.assert_close(own, part, rtol=1e-10, atol=1e-12)
    assert used == {-1, 0, 1, 2}


@pytest.mark.parametrize("options", [{}, {"batch": 2, "num_layers": 3}], ids=str)
def test_a_layer_that_sees_edges_has_those_of_the_step(
    monkeypatch: pytest.MonkeyPatch, options: dict[str, Any]
) -> None:
    monkeypatch.setitem(LAYERS, "maximum", KIND)
    case = make_case(kind="maximum", **options)
    deliveries = deliver(case, "drop", 0.6)
    (host,) = make_hosts(case, deliveries, consensus_every=0)
    activations = ["tanh"] * (len(case.network.layers) - 1) + ["identity"]
    whole = case.problem
    for t in range(STEPS):
        leaves = {name: part.clone().requires_grad_() for name, part in host.params.items()}
        y = whole_graph(shift_at(case, deliveries.arriving(t)), whole.X, whole.owner, leaves, activations)
        loss = losses(y, whole.targets)[whole.labelled].sum() / whole.labelled.sum()
        expected = dict(zip(leaves, torch.autograd.grad(loss, list(leaves.values())), strict=True))
        before = {name: part.clone() for name, part in host.params.items()}
        host, found = run(training_step(host))
        torch.testing.assert_close(found, loss.detach())
        for name, g in expected.items():
            torch.testing.assert_close(host.params[name], before[name] - ETA * M * g, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("name", ["gat dropout", "gat dropout times", "gatv2 dropout", "gated alone", "sage max"])
def test_layers_see_the_edges_of_the_step_with_their_own_dropout(name: str) -> None:
    """Attention is a softmax over what is there: nothing is scaled."""
    case = make_case(**LAYER_CASES[name])
    deliveries = deliver(case, "drop", 0.6)
    adjacency = case.graph.adjacency.toarray()
    for t in range(STEPS):
        host = replace(shake(make_hosts(case, deliveries, consensus_every=0)[0]), step=t)
        known = deliveries.arriving(t)[np.ix_(case.owner, case.owner)]
        params = {name: part.clone() for name, part in host.params.items()}
        here = torch.tensor(np.where(known, adjacency, 0.0))
        loss, expected = layer_gradients(case.problem, here, describe(case.network), params, t)
        moved, found = run(training_step(host))
        torch.testing.assert_close(found, loss, rtol=1e-12, atol=1e-12)
        for part, g in expected.items():
            torch.testing.assert_close(moved.params[part], params[part] - ETA * M * g, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("kind", ["gat", "gatv2", "gated", "sage"])
def test_attention_over_last_rows_is_the_same_on_any_hosts(kind: str) -> None:
    options: dict[str, Any] = {"gated": {}, "sage": {"aggregate": "max"}}.get(kind, {"attention_dropout": 0.3})
    case = make_case(kind=kind, dropout=0.3, **options)
    for missing in ("last", "drop"):
        deliveries = deliver(case, missing, 0.6)
        (host,) = make_hosts(case, deliveries, consensus_every=0)
        many = make_hosts(case, deliveries, GROUPINGS[1], consensus_every=0)
        for _ in range(STEPS):
            host, _ = run(training_step(host))
            many = [one for one, _ in run_together([training_step(one) for one in many])]
        for name, part in stacked(many).items():
            torch.testing.assert_close(part, host.params[name], rtol=1e-10, atol=1e-12)


def test_dropped_edges_have_no_attention() -> None:
    """With links that are all down agents train as if their graphs were apart."""
    case = make_case(kind="gat", attention_dropout=0.3)
    none = topology.Switching(case.combination, np.zeros((1, M, M), dtype=bool))
    (host,) = make_hosts(case, deliver_over(case, none, "drop"), consensus_every=0)
    owner = case.owner
    shift = case.shift.multiply(owner[:, None] == owner[None, :]).tocsr()
    shift.eliminate_zeros()
    alone = replace(case, shift=shift).host(rule="gd", step_size=ETA, consensus_every=0)
    for _ in range(3):
        host, _ = run(training_step(host))
        alone, _ = run(training_step(alone))
    for name, part in alone.params.items():
        torch.testing.assert_close(host.params[name], part, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("missing", ["relay", "last", "drop"])
def test_without_failures_nothing_changes(missing: str) -> None:
    case = make_case(dropout=0.3)
    (host,) = make_hosts(case, deliver(case, missing, 0.0), rule="adam", track=True)
    fixed = case.host(rule="adam", step_size=ETA, track=True)
    for _ in range(STEPS):
        host, _ = run(training_step(host))
        fixed, _ = run(training_step(fixed))
    for name, part in fixed.params.items():
        torch.testing.assert_close(host.params[name], part, rtol=1e-9, atol=1e-11)


@pytest.mark.parametrize("grouping", GROUPINGS, ids=str)
@pytest.mark.parametrize("bits", [0, 16])
def test_rows_are_lost_alike_on_any_hosts(grouping: list[list[int]], bits: int) -> None:
    case = make_case(dropout=0.3)
    for missing in ("last", "relay"):
        deliveries = deliver(case, missing, 0.6)
        codec = ROW_CODECS.get(f"quantised-{bits}")
        (one,) = make_hosts(case, deliveries, row_codec=codec)
        many = make_hosts(case, deliveries, grouping, row_codec=codec)
        for _ in range(STEPS):
            one, _ = run(training_step(one))
            many = [host for host, _ in run_together([training_step(host) for host in many])]
        for name, part in stacked(many).items():
            torch.testing.assert_close(part, one.params[name], rtol=1e-9, atol=1e-10)


@pytest.mark.parametrize("every", [1, 2])
@pytest.mark.parametrize("sequence", [OnePeer(M), Matchings(M, 2)], ids=str)
def test_partners_mix_and_rows_keep_their_links(sequence: LinkSequence, every: int) -> None:
    case = make_case()
    (host,) = make_hosts(case, deliver_over(case, sequence, "drop"), consensus_every=every)
    assert host.deliveries is None
    w = case.weights(host)
    for t in range(2 * STEPS):
        w = [part - ETA * M * g for part, g in zip(w, gradients(case.problem, w, None, t), strict=True)]
        if (t + 1) % every == 0:
            C = torch.from_numpy(sequence.combination((t + 1) // every - 1))
            w = [torch.einsum("kz,z...->k...", C, part) for part in w]
        host, _ = run(training_step(host))
    for part, own in zip(w, case.weights(host), strict=True):
        torch.testing.assert_close(own, part, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("sequence", [OnePeer(M), Matchings(M, 2), None], ids=str)
@pytest.mark.parametrize("mix_first", [False, True])
def test_consensus_and_trackers_keep_the_mean_exactly(sequence: LinkSequence | None, mix_first: bool) -> None:
    """The mean of the weights moves by the mean of the updates alone, and that of the trackers is the gradient's."""
    case = make_case()
    deliveries = deliver(case, "last") if sequence is None else deliver_over(case, sequence, "last")
    (host,) = make_hosts(case, deliveries, track=True, mix_first=mix_first)
    for _ in range(STEPS):
        before = {name: part.mean(0) for name, part in host.params.items()}
        host, _ = run(training_step(host))
        for name, part in host.params.items():
            tracker, gradient = host.state[f"tracker.{name}"], host.state[f"gradient.{name}"]
            torch.testing.assert_close(tracker.mean(0), gradient.mean(0), rtol=1e-12, atol=1e-13)
            if not mix_first:
                continue
            torch.testing.assert_close(part.mean(0), before[name] - ETA * M * tracker.mean(0), rtol=1e-12, atol=1e-13)


def test_evaluations_and_measures_use_all_links() -> None:
    case = make_case()
    (host,) = make_hosts(case, deliver(case, "last", 0.9))
    fixed = case.host(rule="gd", step_size=ETA)
    torch.testing.assert_close(run(evaluate(host))[0], run(evaluate(fixed))[0], rtol=1e-10, atol=1e-12)
    rows = {name: part.clone() for name, part in host.state.items() if name.startswith(LAST_ROWS)}
    _, found = run(loss_gradient(host, dropout=False, first=MEASURED))
    for name, g in run(loss_gradient(fixed, dropout=False))[1].items():
        torch.testing.assert_close(found[name], g, rtol=1e-10, atol=1e-12)
    assert rows
    for name, part in rows.items():
        torch.testing.assert_close(host.state[name], part, rtol=0, atol=0)


def test_last_rows_need_one_row_of_a_vertex() -> None:
    case = make_case(batch=3)
    with pytest.raises(GossamerError, match="one for each time step"):
        make_hosts(case, deliver(case, "last"))
