"""A layer of your own, trained across five agents, and its gradients against autograd of the whole graph.

h_i = activation(max over neighbours j of (W_{a(j)}^T x_j) - V_{a(i)}^T x_i + b_{a(i)})
"""

from dataclasses import dataclass

import torch
from torch import Tensor

import gossamer
from gossamer.agents import loss_gradient
from gossamer.engines.simulation import run
from gossamer.model.gather import Edgewise
from gossamer.model.layers import ACTIVATIONS, LAYERS, Input, LayerKind, Outputs, Parameter, Weights


@dataclass(frozen=True)
class Contrast:
    """What a vertex's most active neighbours have beyond the vertex itself."""

    inputs: int
    outputs: int
    activation: str
    dropout: float
    gather = Edgewise(loops=False, own=True)  # every offer by itself, no self-loops; something of x_i is kept
    width = property(lambda self: self.outputs)  # numbers in a row that travels

    def parameters(self) -> dict[str, Parameter]:
        matrix = Parameter((self.inputs, self.outputs))
        return {"weight": matrix, "root": matrix, "bias": Parameter((self.outputs,), random=False)}

    def offer(self, x: Input, weights: Weights) -> Tensor:
        return x.linear(weights["weight"])  # by the vertex's own agent, with its own matrix

    def keep(self, x: Input, weights: Weights) -> Tensor:
        return x.linear(weights["root"])  # stays there

    def finish(self, z: Tensor, at: Outputs, weights: Weights) -> Tensor:
        edges, own = at.require_edges(), at.require_kept()
        target, offers = edges.target[:, None].expand(-1, self.outputs), z[edges.source]
        largest = torch.full_like(own, -torch.inf).scatter_reduce(0, target, offers, "amax")
        largest = largest.where(largest > -torch.inf, 0.0)  # vertices without neighbours
        return ACTIVATIONS[self.activation](largest - own + at.spread(weights["bias"], own.ndim))


LAYERS["contrast"] = LayerKind(lambda of: Contrast(of.inputs, of.outputs, of.activation, of.dropout), shift=None)
result = gossamer.train(
    gossamer.load("digits"),
    agents=5,
    layers="contrast",
    hidden=32,
    dropout=0.0,
    steps=20,
    same_initial=False,  # agents start apart
    dtype="float64",
    baselines=False,
)
print(f"test accuracy {result.summary['distributed']['test']['accuracy']:.3f}")

# The same network without agents: every vertex has the weights of its own agent, and autograd differentiates it all.
host, deployment = result.run.host, result.run.deployment
graph, owner = deployment.graph, torch.from_numpy(deployment.assignment)
weights = {name: part.clone().requires_grad_() for name, part in host.params.items()}
h = torch.from_numpy(graph.features).double()
for index, activation in enumerate(["relu", "identity"]):
    W, V, b = (weights[f"layer.{index}.{name}"][owner] for name in ("weight", "root", "bias"))
    offers = torch.einsum("ni,nio->no", h, W)
    largest = torch.stack([offers[row.indices].amax(0) for row in graph.adjacency])
    h = ACTIVATIONS[activation](largest - torch.einsum("ni,nio->no", h, V) + b)
train = torch.from_numpy(graph.train)
loss = torch.nn.functional.cross_entropy(h[train], torch.from_numpy(graph.targets)[train])
expected = torch.autograd.grad(loss, list(weights.values()))

_, found = run(loss_gradient(host))  # what the agents compute from their own rows and their neighbours' messages
error = max(float((found[name] - g).norm() / g.norm()) for name, g in zip(weights, expected, strict=True))
print(f"relative difference of the agents' gradients: {error:.1e}")
assert error < 1e-10
