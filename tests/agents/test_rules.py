"""Update rules: the table, and optimisers of torch.optim that serve as rules at every hosting and after a resume."""

from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from agents.cases import Case, M, make_case
from agents.test_hosting import GROUPINGS, stacked
from torch.optim import SGD, Adadelta, Adafactor, Adam, AdamW, NAdam, RMSprop

import gossamer
from gossamer.agents import UPDATE_RULES, Host, make_rule, training_step
from gossamer.agents.rules import UpdateRule, num_statistics, wrap_optimiser
from gossamer.engines.simulation import run_together
from gossamer.errors import GossamerError

WRAPPED = {
    "sgd": wrap_optimiser(partial(SGD, momentum=0.9), scale_free=False),
    "adam": wrap_optimiser(Adam, scale_free=True),
    "adamw": wrap_optimiser(partial(AdamW, weight_decay=0.1), scale_free=True),
    "rmsprop": wrap_optimiser(partial(RMSprop, momentum=0.5), scale_free=True),
    "nadam": wrap_optimiser(NAdam, scale_free=True),
    "adadelta": wrap_optimiser(Adadelta, scale_free=True),
}


def trained(case: Case, grouping: list[list[int]], rule: UpdateRule, steps: int = 5, **options: Any) -> list[Host]:
    hosts = [case.host(group, step_size=0.02, update_rule=rule, **options) for group in grouping]
    for _ in range(steps):
        hosts = [host for host, _ in run_together([training_step(host) for host in hosts])]
    return hosts


@pytest.mark.parametrize(("name", "own"), [("sgd", "momentum"), ("adam", "adam")])
@pytest.mark.parametrize("options", [{}, {"track": True, "compress": "choco:bits=8"}, {"mix_first": True}], ids=str)
def test_a_wrapped_optimiser_equals_our_own_rule(name: str, own: str, options: dict[str, Any]) -> None:
    case = make_case(dropout=0.4, bias=True)
    (host,) = trained(case, [list(range(M))], make_rule(own), **options)
    for grouping in ([list(range(M))], *GROUPINGS):
        found = stacked(trained(case, grouping, WRAPPED[name], **options))
        for key, part in host.params.items():
            torch.testing.assert_close(found[key], part, rtol=0, atol=1e-12)


@pytest.mark.parametrize("name", WRAPPED)
def test_a_hosting_changes_nothing(name: str) -> None:
    case = make_case(dropout=0.4, bias=True)
    (one,) = trained(case, [list(range(M))], WRAPPED[name])
    many = trained(case, GROUPINGS[2], WRAPPED[name])
    for key, part in stacked(many).items():
        torch.testing.assert_close(part, one.params[key], rtol=1e-10, atol=1e-12)
    for host in (one, *many):
        assert all(len(part) == len(host.agents) for part in host.state.values())


@pytest.mark.parametrize("name", WRAPPED)
def test_a_resumed_run_has_the_same_bits(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Chosen by name, through a run directory: the optimiser's state is in the checkpoint."""
    monkeypatch.setitem(UPDATE_RULES, "mine", lambda decay: WRAPPED[name])
    graph = make_case(n=40).graph
    options: dict[str, Any] = {
        "preset": "paper",
        "agents": 4,
        "hidden": 4,
        "update": "mine",
        "step_size": 0.05,
        "baselines": False,
        "threads": 1,
    }
    whole = gossamer.train(graph, steps=7, **options)
    gossamer.train(graph, steps=4, out=tmp_path / "run", **options)
    resumed = gossamer.resume(tmp_path / "run", steps=7, graph=graph)
    for key, part in whole.run.host.params.items():
        assert torch.equal(part, resumed.run.host.params[key])
    assert all(part.any() for part in resumed.run.host.state.values())


def test_the_gradients_memory_is_used_and_parameters_are_only_read() -> None:
    rules = [*WRAPPED.values(), *(make_rule(name) for name in UPDATE_RULES)]
    for rule in rules:
        params = {"w": torch.randn(3, 2, dtype=torch.float64)}
        before, gradient, state = params["w"].clone(), {"w": torch.randn(3, 2, dtype=torch.float64)}, rule.init(params)
        for step in range(3):
            psi = rule.update(gradient, state, params, 0.1, step)
            assert psi["w"].data_ptr() == gradient["w"].data_ptr()
            assert torch.equal(params["w"], before)


def test_an_optimiser_that_is_not_element_wise_is_refused() -> None:
    rule = wrap_optimiser(Adafactor, scale_free=True)
    with pytest.raises(GossamerError, match=r"element-wise optimiser.*\(2, 4, 3\).*'row_var' of shape \(2, 4, 1\)"):
        rule.init({"w": torch.zeros(2, 4, 3)})


def test_the_arrays_that_a_rule_keeps_are_counted() -> None:
    assert {name: num_statistics(make_rule(name)) for name in UPDATE_RULES} == {"gd": 0, "momentum": 1, "adam": 2}
    assert {name: num_statistics(rule) for name, rule in WRAPPED.items()} == {
        "sgd": 1, "adam": 2, "adamw": 2, "rmsprop": 2, "nadam": 2, "adadelta": 2
    }  # fmt: skip


def test_an_unknown_rule_is_refused() -> None:
    with pytest.raises(GossamerError, match="expected an update rule among gd, momentum, adam, got 'lion'"):
        make_rule("lion")
