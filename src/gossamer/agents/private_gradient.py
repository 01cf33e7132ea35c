"""Private gradients: DP-SGD of one agent's own examples (Abadi et al. 2016, "Deep learning with differential privacy").

Of a network without the graph, an example's gradient depends on its own vertex alone. Every agent k draws a sample B_k
of its training vertices, each with the same probability q, and sends on nothing of them but

    g_k = (sum_{i in B_k} min(1, c / |g_i|) g_i + noise c N(0, I)) / (q |T_D|)

with the noise of its own secret: neighbours see what it makes of g_k, so that it trusts nobody else's noise. Gradient
tracking and mixing are post-processing. The mean of all agents' g_k times m estimates the gradient of L. Norms of
single gradients come from the layers' inputs x and output gradients delta, |x|^2 |delta|^2 + |delta|^2 for a weight
and a bias (Goodfellow 2015, "Efficient per-example gradient computations"), never from the gradients themselves.
"""

from collections.abc import Generator, Sequence

import torch
from torch import Tensor

from gossamer.agents.exchange import Inbox, Outbox
from gossamer.agents.gradients import Segment, backward, forward
from gossamer.agents.host import Host
from gossamer.agents.passes import Pass
from gossamer.agents.secret_streams import digest_rows, number_key, stream_normal, stream_uniform
from gossamer.agents.training_options import PrivateSteps
from gossamer.model import Params
from gossamer.model.losses import losses


def private_gradient(host: Host, private: PrivateSteps) -> Generator[Outbox, Inbox, tuple[Tensor, Params]]:
    """The hosted part of L on all training examples, and every hosted agent's private gradient g_k."""
    on = host.train_pass
    agent = on.plan.layers[-1].outputs.agent
    keys = [_find_key(host, private, position) for position in range(len(host.agents))]
    sampled = _draw_sample(host, private, agent, keys).to(host.torch_dtype)
    signals: list[Tensor] = []
    inputs: list[Tensor] = []
    loss, _ = yield from _differentiate(host, on, sampled, signals, inputs)
    squares = torch.zeros_like(sampled)
    for layer, x, signal in zip(host.network.layers, inputs, reversed(signals), strict=True):
        squares += (x + len(layer.parameters()) - 1) * signal.square().sum(-1)  # of a weight and, if any, a bias
    factors = sampled * (private.clip / squares.sqrt().clamp(min=private.clip))
    _, gradient = yield from _differentiate(host, on, factors)
    _add_noise(host, private, gradient, keys)
    for part in gradient.values():
        part.div_(private.rate * host.num_labelled)
    return loss / host.num_labelled, gradient


def _differentiate(
    host: Host, on: Pass, factors: Tensor, signals: list[Tensor] | None = None, inputs: list[Tensor] | None = None
) -> Generator[Outbox, Inbox, tuple[Tensor, Params]]:
    """The sum of all examples' losses, and the gradient of the sum with these factors [examples].

    Fills `signals` with each layer's gradients of its outputs before bias and activation, the last layer's first, and
    `inputs` with the squared norms of each layer's inputs.
    """
    outputs, segments = yield from forward(host, on, differentiate=True)
    if inputs is not None:
        inputs += _square_inputs(host, on, segments)
    with torch.enable_grad():
        each = losses(outputs, on.targets, on.positive_weight)
        weighted = (each * factors).sum()
    segments[-1] = Segment(segments[-1].leaves, weighted)
    return each.detach().sum(), (yield from backward(host, on, segments, signals=signals))


def _square_inputs(host: Host, on: Pass, segments: list[Segment]) -> list[Tensor]:
    """|x|^2 of every example's input to each layer."""
    found = [on.input(0, on.features, None).square_norms()]
    for index, layer in enumerate(host.network.layers[:-1]):
        leaves = segments[index + 1].leaves
        weights = {name: leaves[f"layer.{index}.{name}"] for name in layer.parameters()}
        x = layer.finish(leaves["z"].detach(), on.plan.layers[index].outputs, weights)
        found.append(x.detach().square().sum(-1))
    return found


def _find_key(host: Host, private: PrivateSteps, position: int) -> tuple[int, ...]:
    """Key of a hosted agent's random numbers in this step, its data and weights included where they must be fresh."""
    key = host.training.seed, private.stage, host.step, number_key(private.noise)
    own = (part[position] for _, part in sorted(host.params.items()))  # files keep no order
    return key if private.context is None else (*key, private.context, digest_rows(*own))


def _draw_sample(host: Host, private: PrivateSteps, agent: Tensor, keys: Sequence[tuple[int, ...]]) -> Tensor:
    """Mask of the examples that are in this step's sample, by the secrets of their owners."""
    mask = torch.zeros(len(agent), dtype=torch.bool)
    for position, (k, key) in enumerate(zip(host.agents, keys, strict=True)):
        own = agent == position
        drawn = stream_uniform(private.secrets.by_agent[k], "sample", key, int(own.sum()))
        mask[own] = torch.from_numpy(drawn < private.rate)
    return mask


def _add_noise(host: Host, private: PrivateSteps, gradient: Params, keys: Sequence[tuple[int, ...]]) -> None:
    """Add each hosted agent's noise to its clipped sum, in float64 before it is rounded to the weights' type."""
    for position, (k, key) in enumerate(zip(host.agents, keys, strict=True)):
        size = sum(part[position].numel() for part in gradient.values())
        noise = torch.from_numpy(stream_normal(private.secrets.by_agent[k], "gradient", key, size))
        noise.mul_(private.noise * private.clip)
        for _, part in sorted(gradient.items()):
            here, noise = noise[: part[position].numel()], noise[part[position].numel() :]
            part[position] = (part[position].double() + here.view_as(part[position])).to(part.dtype)
