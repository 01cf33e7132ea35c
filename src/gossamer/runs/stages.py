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

from typing import Any

from gossamer.data import DataGraph
from gossamer.errors import GossamerError
from gossamer.model import Network, make_network
from gossamer.model.gather import Monomial
from gossamer.model.layers import Convolution
from gossamer.runs.budgets import check_budget, find_noise
from gossamer.runs.settings import Settings

PRIVATE_WIDTH = 16  # of the encodings of private runs, unless `encoder` says otherwise
TEACHER, ENCODER, GRAPH = "teacher", "encoder", "graph"
STAGES = (TEACHER, ENCODER, GRAPH)


def list_stages(settings: Settings) -> tuple[str, ...]:
    """The stages of a run."""
    if settings.privacy_spec is not None:
        return ENCODER, GRAPH
    return STAGES if settings.encoder else (GRAPH,)


def find_encoding_width(settings: Settings) -> int:
    """Numbers that an encoder makes of a vertex's features."""
    return settings.encoder or PRIVATE_WIDTH


def find_input_width(num_features: int, settings: Settings) -> int:
    """Width of the graph network's input: features, encodings, or in private runs those after each hop beside each
    other."""
    spec = settings.privacy_spec
    if not settings.encodes:
        return num_features
    return find_encoding_width(settings) * (1 if spec is None else 1 + spec.hops)


def fit_settings(settings: Settings, graph: DataGraph) -> Settings:
    """The settings with defaults that depend on the data, and the noise that their budget needs; a proof of privacy
    that they do not allow for is refused."""
    fitted = settings.fit_to(graph.task, graph.num_train_times)
    if fitted.encodes:
        check_encoded_data(fitted, graph.batch, graph.sample_weights is not None, graph.name)
    return find_private_settings(fitted)


def find_private_settings(settings: Settings) -> Settings:
    """Private settings with the noise that their budget needs; noise that they have must keep within it."""
    spec = settings.privacy_spec
    if spec is None:
        return settings
    if spec.noise is None:
        noise = find_noise(spec, settings.encoder_steps, settings.steps)
        return settings.model_copy(update={"privacy": str(spec.with_noise(noise))})
    check_budget(spec, settings.encoder_steps, settings.steps)
    return settings


def check_encoded_data(settings: Settings, batch: int | None, weighted: bool, name: str) -> None:
    """Refuse data for which there is no encoder, or no proof of privacy."""
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
    width, dropout = find_encoding_width(settings), settings.dropout or 0.0
    at_input = dropout if settings.input_dropout is None else settings.input_dropout
    alone = Monomial((0,))
    first = Convolution(alone, num_inputs, width, "tanh", True, at_input)
    return Network((first, Convolution(alone, width, num_outputs, "identity", True, dropout)))


def build_network(num_inputs: int, num_outputs: int, settings: Settings) -> Network:
    """Build the network of the settings; of private runs without the graph, whose hops its input has behind it."""
    return make_network(
        settings.layers if settings.privacy_spec is None else "mlp",
        num_inputs,
        num_outputs,
        hidden=settings.hidden,
        order=settings.order,
        activation=settings.activation,
        bias=settings.bias,
        dropout=settings.dropout or 0.0,
        input_dropout=settings.input_dropout,
    )
