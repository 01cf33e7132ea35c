"""Losses and exact gradients as generators of exchanges: `forward` (eq. (5)-(7)) and `backward` (eq. (12)).

Between two exchanges the arithmetic is the layers' own (model/layers), local and differentiated by autograd; across an
exchange the chain rule is its transpose over the same links reversed (propagation).
"""

from collections.abc import Generator
from dataclasses import dataclass
from typing import cast

import torch
from torch import Tensor

from gossamer.agents.batches import split_chunks
from gossamer.agents.exchange import Inbox, Outbox
from gossamer.agents.host import Host
from gossamer.agents.passes import Pass
from gossamer.agents.propagation import ExchangeKey
from gossamer.agents.step_links import StepLinks
from gossamer.model import Params
from gossamer.model.layers import KeepingLayer
from gossamer.model.losses import losses


@dataclass(frozen=True)
class Segment:
    """The local arithmetic between two exchanges, kept for the backward pass: leaves -> results."""

    leaves: Params  # the gathered offers before it, `z`, and what was kept, if there are any, and layers' parameters
    result: Tensor
    kept: Tensor | None = None  # what its layer keeps of its input for the segment after this


def loss_gradient(
    host: Host, on: Pass | None = None, dropout: bool = True, first: int = 0, links: StepLinks | None = None
) -> Generator[Outbox, Inbox, tuple[Tensor, Params]]:
    """The hosted part of L, and every hosted agent's gradient of L with respect to its own weights.

    L is that of all training examples, or its estimate from the mini-batch `on`. Long batch axes go through in chunks,
    numbered from `first` on: row codecs draw other random numbers for other parts. `links` may be down in a step.
    """
    total: Tensor | None = None
    gradient: Params = {}
    for number, part in enumerate(split_chunks(host, host.train_pass if on is None else on), first):
        outputs, segments = yield from forward(host, part, True, dropout, number, links)
        with torch.enable_grad():
            loss = labelled_loss(host, part, outputs)
        segments[-1] = Segment(segments[-1].leaves, loss)
        found = yield from backward(host, part, segments, number, links=links)
        if total is None:
            total, gradient = loss.detach(), found
        else:
            total = total + loss.detach()
            for name, g in found.items():
                gradient[name].add_(g)
    if total is None:
        raise AssertionError("a pass without a time step")
    return total, gradient


def forward(
    host: Host,
    on: Pass,
    differentiate: bool = False,
    dropout: bool = False,
    number: int = 0,
    links: StepLinks | None = None,
) -> Generator[Outbox, Inbox, tuple[Tensor, list[Segment]]]:
    """The network's outputs for the pass's vertices, one exchange for each propagation (eq. (5)-(7)).

    With `differentiate`, the local segments remember their graphs; the last segment's result is the output. `number`
    is that of a part of a long batch. Without `links` of the step all rows arrive.
    """
    key = ExchangeKey(host.training.seed, host.step, number, links)
    segments: list[Segment] = []
    x, leaves = on.features, Params()
    for index, (layer, plan) in enumerate(zip(host.network.layers, on.plan.layers, strict=True)):
        weights = {name: _leaf(host.params[f"layer.{index}.{name}"], differentiate) for name in layer.parameters()}
        named = {f"layer.{index}.{name}": leaf for name, leaf in weights.items()}
        drawn, kept = (key.seed, key.step) if dropout else None, None
        with torch.set_grad_enabled(differentiate):
            offers = layer.offer(on.input(index, x, drawn), weights)
            if layer.gather.own:
                kept = cast(KeepingLayer, layer).keep(on.own_input(index, x, drawn), weights)
        segments.append(Segment({**leaves, **named}, offers, kept))
        z = yield from plan.forward(offers.detach(), key)
        leaves = Params(z=_leaf(z, differentiate), **named)
        if kept is not None:
            leaves["kept"] = _leaf(kept, differentiate)
        with torch.set_grad_enabled(differentiate):
            x = layer.finish(leaves["z"], on.outputs(index, leaves.get("kept"), drawn, links), weights)
    segments.append(Segment(leaves, x))
    return x, segments


def backward(
    host: Host,
    on: Pass,
    segments: list[Segment],
    number: int = 0,
    signals: list[Tensor] | None = None,
    links: StepLinks | None = None,
) -> Generator[Outbox, Inbox, Params]:
    """Each hosted agent's exact gradient of L with respect to its own w_k (eq. (12)).

    `segments` are forward's on the same pass, the last one ending in the loss. From the last layer to the first: the
    gradient of the gathered offers goes back to each offer, one reversed exchange for each propagation, then through
    the local segment before it. Segments are consumed one by one, so that their memory serves the next ones. The
    gradients of the gathered offers are added to `signals`, if it is given, the last layer's first.
    """
    gradient: Params = {}
    g: Tensor | None = None
    g_kept: Tensor | None = None
    key = ExchangeKey(host.training.seed, host.step, number, links)
    for index in reversed(range(len(segments))):
        leaves, result, kept = segments[index].leaves, segments[index].result, segments.pop().kept
        found = _differentiate([(result, g), (kept, g_kept)], list(leaves.values()))
        for name, part in zip(leaves, found, strict=True):  # a parameter may serve offer, finish, or both
            if part is not None:
                gradient[name] = gradient[name] + part if name in gradient else part
        if index == 0:
            break
        signal = gradient.pop("z") if "z" in gradient else torch.zeros_like(leaves["z"])
        g_kept = gradient.pop("kept", None)
        del leaves, result, kept, found
        if signals is not None:
            signals.append(signal)
        g = yield from on.plan.layers[index - 1].backward(signal, key)
    return {name: gradient[name] if name in gradient else torch.zeros_like(w) for name, w in host.params.items()}


def _differentiate(
    results: list[tuple[Tensor | None, Tensor | None]], leaves: list[Tensor]
) -> tuple[Tensor | None, ...]:
    """Gradients of the leaves from those of a segment's results; None where there is none."""
    used = [(part, g) for part, g in results if part is not None and part.requires_grad]
    used = [(part, g) for part, g in used if g is not None or part.ndim == 0]  # the loss is differentiated as it is
    if not used:
        return (None,) * len(leaves)
    parts, given = zip(*used, strict=True)
    return torch.autograd.grad(parts, leaves, given, allow_unused=True)


def labelled_loss(host: Host, on: Pass, outputs: Tensor) -> Tensor:
    """The hosted part of L = 1/|T_D| sum over labelled vertices (eq. (3)); for a mini-batch |T_D| b/T.

    Weights of the examples sum to |T_D| (data/example_weights.py).
    """
    each = losses(outputs, on.targets, on.positive_weight)
    weighted = each if on.weights is None else each * on.weights
    return weighted[on.masks["train"]].sum() / (host.num_labelled * on.fraction)


def _leaf(tensor: Tensor, differentiate: bool) -> Tensor:
    return tensor.detach().requires_grad_(differentiate)
