"""Stages of a run: the graph network's and, before it, those that train an encoder (docs/privacy.md).

    teacher   a network like the graph network, on the edges inside each agent alone; it teaches every vertex what to
              expect: knowledge distillation (Hinton, Vinyals and Dean 2015, "Distilling the knowledge in a neural
              network"; from a graph to a network without one, Zhang, Liu, Sun and Shah 2022, "Graph-less neural
              networks: teaching old MLPs new tricks via distillation")
    encoder   a network without the graph, whose first layer becomes the encoder; it learns the teacher's probabilities
              for all vertices. Of private runs it is the first stage, and learns the labels by private gradients
    graph     the network of the settings, on the encodings

A stage before the graph network's has settings of its own: weights are mixed by masked consensus, or hold noise, and
nothing else is sent.
"""

import math
from typing import Any

from gossamer.data import DataGraph
from gossamer.data.tasks import Task
from gossamer.errors import GossamerError
from gossamer.model import Network, build_layers
from gossamer.model.gather import Monomial
from gossamer.model.layers import Convolution
from gossamer.runs.budgets import check_budget, find_noise
from gossamer.runs.settings import Settings

NOISE_DIGITS = 1000
TEACHER, ENCODER, GRAPH = "teacher", "encoder", "graph"
STAGES = (TEACHER, ENCODER, GRAPH)
SCORE_SCALE = 10.0  # by which a private encoder's logarithms of probabilities are divided


def list_stages(settings: Settings) -> tuple[str, ...]:
    """The stages of a run."""
    if settings.privacy_spec is not None:
        return ENCODER, GRAPH
    return STAGES if settings.encoder else (GRAPH,)


def find_input_width(num_features: int, num_outputs: int, settings: Settings) -> int:
    """Width of the graph network's input: features, encodings, or in private runs scores of the classes by the encoder
    and after each hop beside each other."""
    spec = settings.privacy_spec
    if spec is not None:
        return num_outputs * (1 + spec.hops)
    return settings.encoder or num_features


def fit_settings(settings: Settings, graph: DataGraph) -> Settings:
    """The settings with defaults that depend on the data, and the noise that their budget needs; a proof of privacy
    that they do not allow for is refused."""
    fitted = settings.fit_to(graph.task, graph.num_train_times)
    if fitted.encodes:
        check_encoded_data(fitted, graph.task, graph.batch, graph.sample_weights is not None, graph.name)
    return find_private_settings(fitted)


def find_private_settings(settings: Settings) -> Settings:
    """Private settings with the noise that their budget needs; noise that they have must keep within it."""
    spec = settings.privacy_spec
    if spec is None:
        return settings
    if spec.noise is None:
        found = find_noise(spec, settings.encoder_steps, settings.steps)
        noise = math.ceil(found * NOISE_DIGITS) / NOISE_DIGITS  # the same digits wherever it is found
        return settings.model_copy(update={"privacy": str(spec.with_noise(noise))})
    check_budget(spec, settings.encoder_steps, settings.steps)
    return settings


def check_encoded_data(settings: Settings, task: Task, batch: int | None, weighted: bool, name: str) -> None:
    """Refuse data for which there is no encoder, or no proof of privacy."""
    if settings.privacy_spec is not None and task != "multiclass":
        raise GossamerError(f"privacy is for one class a vertex, and {name} is data for {task}; leave out --privacy")
    if batch is not None:
        raise GossamerError(f"an encoder takes one row of features a vertex, and {name} has a time axis")
    if weighted and settings.privacy_spec is not None:
        raise GossamerError(
            f"{name} has sample weights, whose sum over all agents no privacy budget counts; leave them out"
        )


def stage_settings(settings: Settings, stage: str) -> Settings:
    """Settings of a stage. Before the graph network's, weights are masked, unless noise protects what they hold."""
    if stage == GRAPH:
        return settings
    changes: dict[str, Any] = {
        "steps": settings.encoder_steps,
        "patience": 0,
        "boundary_bits": 0,
        "boundary_codec": "none",
    }
    if settings.privacy_spec is None:
        changes |= {"consensus": "masked", "compress": "none"}
        if stage == ENCODER:  # it learns probabilities, of which there is no best
            changes |= {"keep": "last", "score": "auto", "class_weights": "none", "evaluate_every": 10**6}
    return settings.model_copy(update=changes)


def uses_masks(settings: Settings) -> bool:
    """Some stage mixes by masked consensus."""
    return any(stage_settings(settings, stage).masks for stage in list_stages(settings))


def build_stage_network(stage: str, num_inputs: int, num_outputs: int, settings: Settings) -> Network:
    """Build the network of a stage."""
    if stage != ENCODER:
        return build_network(num_inputs, num_outputs, settings)
    dropout, alone = settings.dropout or 0.0, Monomial((0,))
    at_input = dropout if settings.input_dropout is None else settings.input_dropout
    if settings.privacy_spec is not None:
        return Network((Convolution(alone, num_inputs, num_outputs, "identity", True, at_input),))
    first = Convolution(alone, num_inputs, settings.encoder, "tanh", True, at_input)
    return Network((first, Convolution(alone, settings.encoder, num_outputs, "identity", True, dropout)))


def build_network(num_inputs: int, num_outputs: int, settings: Settings) -> Network:
    """Build the network of the settings; of private runs a linear one without the graph, whose hops are behind it."""
    if settings.privacy_spec is not None:
        return Network((Convolution(Monomial((0,)), num_inputs, num_outputs, "identity", True, 0.0),))
    return build_layers(settings.network, num_inputs, num_outputs)
