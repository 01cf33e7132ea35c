"""Every agent's gradient equals whole-graph autograd of L with respect to w_k (eq. (12))."""

from typing import Any

import pytest
import torch
from agents.cases import M, make_case
from oracles.whole_graph import gradients, loss, outputs

from gossamer.agents import loss_gradient
from gossamer.agents.measures import evaluate
from gossamer.engines.simulation import run
from gossamer.model import selected_product
from gossamer.model.selected_product import SelectedProduct

CASES = [
    *({"kind": "gcn", "order": order, "num_layers": layers} for order in (1, 2, 3) for layers in (1, 2, 3)),
    *(
        {"kind": "chebyshev", "order": order, "num_layers": layers, "shift": "scaled-laplacian"}
        for order in (1, 2, 3)
        for layers in (1, 2, 3)
    ),
    {"kind": "mlp", "num_layers": 3},
    {"kind": "gcn", "sparse_features": False},
    {"kind": "gcn", "shift": "random-walk", "order": 2},
    {"kind": "polynomial", "order": 1, "bias": True},
    {"kind": "polynomial", "order": 1, "num_layers": 3, "dropout": 0.4},
    {"kind": "chebyshev", "shift": "laplacian", "order": 2, "bias": True},
    {"kind": "gcn", "bias": True, "activation": "elu", "num_layers": 3},
    {"kind": "gcn", "activation": "relu", "sparse_features": False, "order": 2},
    {"kind": "gcn", "batch": 4},
    {"kind": "chebyshev", "batch": 4, "order": 2, "bias": True, "shift": "scaled-laplacian"},
    {"kind": "gcn", "dropout": 0.4},
    {"kind": "gcn", "dropout": 0.4, "sparse_features": False, "order": 2},
    {"kind": "gcn", "dropout": 0.4, "batch": 3},
    {"task": "multilabel", "dropout": 0.4, "bias": True},
    {"task": "multilabel", "balanced": True},
    {"task": "multilabel", "balanced": True, "sampled": True, "kind": "chebyshev", "order": 2, "dropout": 0.4},
    {"sampled": True, "dropout": 0.4},
    {"balanced": True},
    {"balanced": True, "sampled": True, "kind": "polynomial", "order": 2, "sparse_features": False},
    {"task": "regression", "sampled": True},
    {"batch": 4, "sampled": True, "order": 2},
]


@pytest.mark.parametrize("options", CASES, ids=lambda o: "-".join(str(v) for v in o.values()))
@pytest.mark.parametrize("seed", [0, 1])
def test_gradient_is_exact(options: dict[str, Any], seed: int) -> None:
    case = make_case(**options, seed=seed)
    host = case.host()
    if case.network.layers[0].bias:
        for index in range(len(host.network.layers)):
            host.params[f"layer.{index}.bias"].normal_(generator=torch.Generator().manual_seed(index))
    expected = gradients(case.problem, case.weights(host), case.biases(host), step=0)
    value, gradient = run(loss_gradient(host))
    torch.testing.assert_close(value, loss(case.problem, case.weights(host), case.biases(host), 0), rtol=1e-12, atol=0)
    names = [f"layer.{i}.weight" for i in range(len(case.problem.layers))]
    if case.network.layers[0].bias:
        names += [f"layer.{i}.bias" for i in range(len(case.problem.layers))]
    assert list(gradient) == list(host.params)
    for name, reference in zip(names, expected, strict=True):
        scale = float(reference.abs().max())
        torch.testing.assert_close(gradient[name], reference, rtol=0, atol=1e-10 * scale)
        assert scale > 0


def test_agents_without_labels_have_gradients_and_an_empty_agent_has_none() -> None:
    case = make_case()
    assert not case.graph.train[case.owner == 3].any()
    assert not (case.owner == M - 1).any()
    _, gradient = run(loss_gradient(case.host()))
    assert gradient["layer.0.weight"][3].abs().max() > 0
    assert gradient["layer.0.weight"][M - 1].abs().max() == 0


@pytest.mark.parametrize("options", CASES[:18:4] + CASES[18:], ids=lambda o: "-".join(str(v) for v in o.values()))
def test_inference_equals_the_whole_graph(options: dict[str, Any]) -> None:
    """Eq. (5)-(7): every vertex's output, dropout off."""
    case = make_case(**options)
    host = case.host()
    found, _ = run(evaluate(host))
    expected = outputs(case.problem, case.weights(host), case.biases(host), step=None)
    torch.testing.assert_close(found, expected[host.full_pass.vertices], rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("dropout", [0.0, 0.4])
@pytest.mark.parametrize("kind", ["gcn", "chebyshev"])
def test_gradient_of_selected_entries_is_exact(kind: str, dropout: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """As above, for features with many entries."""
    monkeypatch.setattr(selected_product, "MANY_ENTRIES", 0)
    case = make_case(kind, dropout=dropout)
    host = case.host()
    assert isinstance(host.train_pass.products[0], SelectedProduct)
    expected = gradients(case.problem, case.weights(host), case.biases(host), step=0)
    _, gradient = run(loss_gradient(host))
    for index, reference in enumerate(expected):
        torch.testing.assert_close(gradient[f"layer.{index}.weight"], reference, rtol=1e-10, atol=1e-12)
