"""Private gradients against single examples' gradients, taken one by one; their noise, their samples, any hosting."""

from dataclasses import replace

import pytest
import torch
from agents.cases import Case, M, make_case

from gossamer.agents import Host, loss_gradient, training_step
from gossamer.agents.gradients import forward
from gossamer.agents.private_gradient import _draw_sample, _find_key, private_gradient
from gossamer.agents.secret_streams import derive_secrets
from gossamer.agents.training_options import PrivateSteps
from gossamer.engines.simulation import run, run_together
from gossamer.model import Params
from gossamer.model.layers import Convolution
from gossamer.model.losses import losses

SECRETS = derive_secrets(3, range(M))
CLIP = 2.0  # between the norms of the examples' gradients


def steps(rate: float = 1.0, clip: float = 1.0, noise: float = 0.0, context: int | None = None) -> PrivateSteps:
    return PrivateSteps(rate, clip, noise, 0, SECRETS, context)


def hosted(case: Case, private: PrivateSteps, agents: tuple[int, ...] = tuple(range(M))) -> Host:
    own = replace(private, secrets=private.secrets.select(agents))
    return case.host(agents, initial_deviation=1.0, private=own)


def single_gradients(host: Host) -> list[tuple[int, Params]]:
    """Agent and gradient of every example's loss, by whole autograd."""
    on, params = host.train_pass, {name: part.clone().requires_grad_() for name, part in host.params.items()}
    agent, found = on.plan.layers[-1].outputs.agent, []
    x = torch.stack([on.input(0, on.features, None).linear(torch.eye(6, dtype=torch.float64).expand(M, 6, 6))])[0]
    for i, k in enumerate(agent.tolist()):
        h = x[i]
        for index, layer in enumerate(host.network.layers):
            h = h @ params[f"layer.{index}.weight"][k]
            assert isinstance(layer, Convolution)
            h = h + params[f"layer.{index}.bias"][k] if layer.bias else h
            h = torch.tanh(h) if layer.activation == "tanh" else h
        loss = losses(h[None], on.targets[i : i + 1]).sum()
        found.append((k, dict(zip(params, torch.autograd.grad(loss, list(params.values())), strict=True))))
    return found


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("sparse", [False, True])
def test_sums_of_clipped_gradients(bias: bool, sparse: bool) -> None:
    case = make_case("mlp", num_layers=3, bias=bias, sparse_features=sparse, n=40)
    host = hosted(case, steps(clip=CLIP))
    single = single_gradients(host)
    norms = [float(sum(part.square().sum() for part in g.values()) ** 0.5) for _, g in single]
    assert min(norms) < CLIP < max(norms)
    loss, gradient = run(private_gradient(host, steps(clip=CLIP)))
    for name, found in gradient.items():
        expected = sum(min(1.0, CLIP / norm) * g[name] for (_, g), norm in zip(single, norms, strict=True))
        torch.testing.assert_close(found, expected / host.num_labelled, rtol=0, atol=1e-12)
    exact, unclipped = run(loss_gradient(host))
    torch.testing.assert_close(loss, exact, rtol=0, atol=1e-12)
    _, gradient = run(private_gradient(host, steps(clip=1e6)))
    for name, part in unclipped.items():
        torch.testing.assert_close(gradient[name], part, rtol=0, atol=1e-12)


def test_noise_has_the_stated_size_and_is_each_agents_own() -> None:
    case = make_case("mlp", n=40, bias=True)
    host = hosted(case, steps())
    _, clean = run(private_gradient(host, steps(rate=0.5, clip=0.3)))
    draws = []
    for t in range(150):
        at = replace(host, step=t)
        _, noisy = run(private_gradient(at, steps(rate=0.5, clip=0.3, noise=2.0)))
        _, same = run(private_gradient(at, steps(rate=0.5, clip=0.3)))
        draws.append(torch.cat([(noisy[name] - same[name]).flatten(1) for name in clean], dim=1))
    noise = torch.stack(draws) * 0.5 * host.num_labelled / 0.3
    assert abs(float(noise.std()) - 2.0) < 0.02
    assert abs(float(noise.mean())) < 0.02
    flat = noise.permute(1, 0, 2).flatten(1)
    assert float((torch.corrcoef(flat) - torch.eye(M)).abs().max()) < 0.05


def test_samples_have_the_stated_rate_and_differ_between_steps_and_agents() -> None:
    case = make_case("mlp", n=200)
    host, private = hosted(case, steps()), steps(rate=0.3)
    agent = host.train_pass.plan.layers[-1].outputs.agent
    drawn = []
    for t in range(200):
        at = replace(host, step=t)
        drawn.append(_draw_sample(at, private, agent, [_find_key(at, private, k) for k in range(M)]).double())
    samples = torch.stack(drawn)
    assert abs(float(samples.mean()) - 0.3) < 0.01
    assert float((samples.mean(0) - 0.3).abs().max()) < 0.15
    assert float((torch.corrcoef(samples.T) - torch.eye(len(agent))).abs().max()) < 0.4


def test_any_hosting_has_the_same_gradients() -> None:
    case = make_case("mlp", n=40, bias=True)
    private = steps(rate=0.6, noise=1.5)
    _, whole = run(private_gradient(hosted(case, private), private))
    for groups in ([(0,), (1,), (2,), (3,), (4,)], [(2, 0), (1, 3, 4)]):
        hosts = [hosted(case, private, agents) for agents in groups]
        found = run_together([private_gradient(host, host.training.private) for host in hosts if host.training.private])
        for agents, (_, gradient) in zip(groups, found, strict=True):
            for name, part in gradient.items():
                torch.testing.assert_close(part, whole[name][list(agents)], rtol=0, atol=1e-10)


def test_other_weights_have_other_noise_where_it_must_be_fresh() -> None:
    case = make_case("mlp", n=40)
    private = steps(noise=1.0, context=5)
    host = hosted(case, private)
    moved = host.with_params({name: part + 1e-12 for name, part in host.params.items()})
    gradients = [run(private_gradient(at, private))[1]["layer.0.weight"] for at in (host, host, moved)]
    assert torch.equal(gradients[0], gradients[1])
    assert float((gradients[0] - gradients[2]).abs().min()) > 1e-6
    for other in (replace(private, stage=1), replace(private, context=6)):  # another stage, other data
        assert not torch.equal(gradients[0], run(private_gradient(host, other))[1]["layer.0.weight"])


def test_another_budget_has_other_noise() -> None:
    """Else two runs of one seed would show what noise hides: their difference, over that of the two budgets."""
    case = make_case("mlp", n=40)
    host = hosted(case, steps())
    _, clean = run(private_gradient(host, steps()))
    noise = [run(private_gradient(host, steps(noise=s)))[1]["layer.0.weight"] - clean["layer.0.weight"] for s in (1, 2)]
    assert float((2 * noise[0] - noise[1]).abs().max()) > 0.01


def test_a_training_step_takes_private_gradients() -> None:
    case = make_case("mlp", n=40)
    private = steps(rate=0.5, noise=1.0)
    host = hosted(case, private)
    _, gradient = run(private_gradient(host, private))
    before = {name: part.clone() for name, part in host.params.items()}
    after, _ = run(training_step(host))
    for name, part in after.params.items():
        psi = before[name] - 0.1 * M * gradient[name]
        mixed = torch.einsum("kz,z...->k...", torch.from_numpy(case.combination), psi)
        torch.testing.assert_close(part, mixed, rtol=0, atol=1e-12)


def test_outputs_do_not_change() -> None:
    """The forward pass of a private host is that of any other."""
    case = make_case("mlp", n=40)
    one, other = hosted(case, steps()), case.host(initial_deviation=1.0)
    outputs = [run(forward(host, host.train_pass))[0] for host in (one, other)]
    assert torch.equal(*outputs)
