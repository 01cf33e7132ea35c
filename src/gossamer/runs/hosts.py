"""Hosts of a run's agents, from a deployment or a share: of the network, or of the one that trains its encoder."""

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import sparse

from gossamer.agents.consensus.plain import PlainMethod
from gossamer.agents.encoding import make_local_share
from gossamer.agents.host import Host, draw_initial_params, make_share_host
from gossamer.agents.rules import make_rule
from gossamer.agents.salts import Secrets
from gossamer.agents.scores import choose_score
from gossamer.agents.secret_streams import derive_secrets, digest_rows
from gossamer.agents.share import Share, Whole, make_share, make_whole
from gossamer.agents.training_options import PrivateSteps, TrainingOptions
from gossamer.model import Network
from gossamer.runs.capacity import check_host
from gossamer.runs.deployment import Deployment
from gossamer.runs.initial_weights import start_from
from gossamer.runs.settings import Settings
from gossamer.runs.stages import ENCODER, GRAPH, SCORE_SCALE, STAGES, build_stage_network, stage_settings

LARGEST_BUDGET, LARGEST_STEP = 10.0, 200.0  # of private gradients: beyond, noise is not what limits steps
NEIGHBOUR_WEIGHT = 3.0  # of a hop's estimate in an output, before training


def training_of(settings: Settings, private: PrivateSteps | None = None) -> TrainingOptions:
    """Training options of the settings."""
    return TrainingOptions(
        rule=make_rule(settings.update, settings.momentum),
        step_size=settings.step_size,
        step_decay=settings.step_decay,
        weight_decay=settings.weight_decay,
        decay_layers=settings.decay_layers,
        consensus_every=settings.consensus_every,
        mix_first=settings.mix_first,
        batch=settings.batch or 0,
        seed=settings.seed,
        track=settings.tracks,
        keep_best=settings.keep == "best",
        row_codec=settings.row_codec,
        consensus=settings.consensus_method if settings.agents > 1 else PlainMethod(),
        private=private,
    )


def find_secrets(share: Share, settings: Settings, secrets: Secrets | None) -> tuple[Secrets, int | None]:
    """Secrets of a share's agents for noise and, where they are real ones, a digest of the agent's data: no noise of a
    secret serves two data sets. A simulation derives them from the seed."""
    if secrets is None:
        return derive_secrets(settings.seed, share.agents), None
    features = share.features
    parts = (features.data, features.indices, features.indptr) if sparse.issparse(features) else (features,)
    i, j, _ = share.topologies[0].entries
    apart = i != j
    edges = np.stack([share.vertices[i[apart]], share.vertices[j[apart]]])
    arrays = (*parts, share.targets, share.masks["train"], edges[:, np.lexsort(edges)])
    return secrets, digest_rows(*(torch.from_numpy(np.ascontiguousarray(part)) for part in arrays))


def find_private_steps(settings: Settings, stage: str, share: Share, secrets: Secrets | None) -> PrivateSteps | None:
    """Options of private gradients; None where gradients are exact: noise in the sums protects edges alone."""
    spec = settings.privacy_spec
    if spec is None or spec.level != "node":
        return None
    if spec.noise is None:
        raise AssertionError("the noise of a private run is found before its hosts are built")
    own, context = find_secrets(share, settings, secrets)
    releases = spec.split(settings.encoder_steps, settings.steps)
    noise = releases.encoder if stage == ENCODER else releases.classifier
    return PrivateSteps(spec.rate, spec.clip, noise, STAGES.index(stage), own, context)


def find_private_step_size(settings: Settings, private: PrivateSteps, num_labelled: int) -> float:
    """Step size of a stage with private gradients.

    T steps of size eta add noise of about eta sqrt(T) c noise sqrt(m) / (q n) to a weight, and so to an output of an
    input with unit norm; momentum makes a step 1 / (1 - decay) times as large. The setting says how much that may be,
    over sqrt(T): so it holds for any number of examples, features and agents, and any budget. Steps are no larger than
    those at a small noise, or than LARGEST_STEP.
    """
    T = max(settings.steps, 1)
    reach = min(math.sqrt(T) / private.noise if private.noise else math.inf, LARGEST_BUDGET)
    share = private.rate * num_labelled / (math.sqrt(settings.agents) * T)
    return min(settings.step_size * reach * share, LARGEST_STEP) * (1 - settings.momentum) / private.clip


def prepare_cut(deployment: Deployment, settings: Settings) -> Whole:
    """Prepare the whole from which shares are cut."""
    topologies = [(one.shift, one.certificate.combination) for one in deployment.topologies]
    balanced = settings.class_weights == "balanced"
    gathers = deployment.network.gathers
    whole = make_whole(deployment.graph, topologies, gathers, deployment.assignment, balanced=balanced)
    initial = None if deployment.initial is None else deployment.initial.params
    return replace(whole, initial=initial, transform=deployment.transform, deliveries=deployment.deliveries)


def cut_share(
    deployment: Deployment,
    settings: Settings,
    agents: Sequence[int] | None = None,
    hosting: NDArray[np.int64] | None = None,
) -> Share:
    """The share of all agents, or of the given ones."""
    hosted = range(deployment.num_agents) if agents is None else agents
    return make_share(prepare_cut(deployment, settings), hosted, hosting)


def build_host(
    deployment: Deployment,
    settings: Settings,
    agents: Sequence[int] | None = None,
    hosting: NDArray[np.int64] | None = None,
    secrets: Secrets | None = None,
) -> Host:
    """Build the host of all agents, or of the given ones, in the deployment's stage; `hosting` [m] is the host of each
    agent."""
    share = cut_share(deployment, settings, agents, hosting)
    handed = None if deployment.handed is None else deployment.handed[share.vertices[share.hosted]]
    return build_stage_host(deployment.stage, share, handed, settings, secrets)


def build_stage_host(
    stage: str, share: Share, handed: NDArray[Any] | None, settings: Settings, secrets: Secrets | None = None
) -> Host:
    """Build the host of a share's agents at step 0 of a stage. `handed` [hosted, width] is what the stage before has
    handed over: soft targets to an encoder, encodings to a graph network."""
    own, private = stage_settings(settings, stage), find_private_steps(settings, stage, share, secrets)
    if stage == GRAPH:
        at = share if handed is None else replace(share, features=handed)
    elif stage == ENCODER and handed is not None:
        at = give_soft_targets(share, handed)
    else:
        at = share
    if private is not None and stage == ENCODER:
        at = replace(at, features=normalise_features(at.features))
    choose_score(own.score, at.task)
    outputs = at.num_classes if at.num_classes is not None else int(at.targets.shape[-1])
    network = build_stage_network(stage, int(at.features.shape[-1]), outputs, settings)
    if stage != GRAPH or private is not None:
        at = make_local_share(at, network.gathers)
    check_host(network, own, len(share.agents), int(share.hosted.sum()))
    params = draw_initial_params(
        network, share.agents, own.seed, own.initial_deviation, own.starts_alike, own.torch_dtype
    )
    training = training_of(own, private)
    if private is not None:
        training = replace(training, step_size=find_private_step_size(own, private, at.num_labelled))
    host = make_share_host(at, network, training, params, secrets)
    if stage != GRAPH:
        return host
    return start_from(host, share.initial if settings.privacy_spec is None else make_prior(network, outputs))


def make_prior(network: Network, outputs: int) -> dict[str, NDArray[np.float64]]:
    """Weights that a private graph network starts from: an encoder's scores as they were, and those of neighbours."""
    blocks = network.layers[0].inputs // outputs
    factors = [SCORE_SCALE, *[NEIGHBOUR_WEIGHT] * (blocks - 1)]
    weight = np.concatenate([factor * np.eye(outputs) for factor in factors])
    return {"layer.0.weight": weight, "layer.0.bias": np.zeros(outputs)}


def build_share_host(share: Share, settings: Settings, secrets: Secrets | None = None) -> Host:
    """Build the host of a share's agents at step 0, for the network of settings without an encoder."""
    return build_stage_host(GRAPH, share, None, settings, secrets)


def give_soft_targets(share: Share, soft: NDArray[Any]) -> Share:
    """The share with real-valued targets for all of its vertices, which are all training examples."""
    count = len(soft)
    masks = {name: np.full(count, name == "train") for name in share.masks}
    return replace(
        share,
        targets=soft,
        masks=masks,
        num_classes=None,
        num_labelled=share.num_vertices,
        example_weights=None,
        positive_weight=None,
    )


def normalise_features(features: Any) -> Any:
    """Features with every vertex's norm 1, which no other vertex takes part in; zeros stay."""
    if sparse.issparse(features):
        norms = np.sqrt(features.multiply(features).sum(1))
        return sparse.csr_array(sparse.diags_array(1.0 / np.maximum(norms, 1e-30)) @ features).astype(features.dtype)
    return features / np.maximum(np.linalg.norm(features, axis=-1, keepdims=True), 1e-30)
