"""Model cards: a page of Markdown beside a model file (Mitchell et al. 2019, Model cards for model reporting)."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from torch import Tensor

from gossamer.data.tasks import Task, infer_stored_task
from gossamer.model import Network
from gossamer.model.encoder import ENCODING_LEVELS
from gossamer.model.pyg_layers import PYG_MODELS, WEIGHTED_CONVS, describe_layer
from gossamer.runs.manifests import ModelHeader
from gossamer.runs.trained import Trained
from gossamer.runs.transforms import find_transform_beside

OUTPUTS: dict[Task, str] = {"multiclass": "classes", "multilabel": "labels", "regression": "values"}
CARD_TITLE = "# Gossamer model"
CARD_MODELS = ("distributed", "centralised", "graphless")
CARD_MASKS = ("train", "validation", "test")
MOST_NAMES = 50  # of classes that a card lists
PYG_LOADING = """\
import torch
from safetensors.torch import load_file
from torch_geometric.nn import {classes}


class Network(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.convs = torch.nn.ModuleList([{convs}])

    def forward(self, x, {named}):
        for conv in self.convs[:-1]:
            x = {activation}(conv(x, {given}))
        return self.convs[-1](x, {given})


network = Network().eval()
"""
PYG_STATE = """\
network.load_state_dict(load_file({name!r}))
"""
PYG_ENCODER_STATE = """\
state = load_file({name!r})
weight, bias = state.pop("encoder.weight"), state.pop("encoder.bias")
network.load_state_dict(state)
"""
PYG_STANDARDISE = """\
transform = load_file({name!r})
x = ((x - transform["feature_offset"]) / transform["feature_scale"]).float()  # as it was standardised for training
"""
PYG_ENCODE = """\
x = (torch.tanh(torch.nn.functional.linear(x, weight, bias)) * {levels}).round() / {levels}  # what the layers take
"""
PYG_OUTPUTS = """\
outputs = network(x, edge_index)
"""
PYG_RESTORE = """\
outputs = outputs * transform["target_scale"] + transform["target_offset"]  # in the units of the targets
"""
PYG_MODEL = """\
network = gossamer.load_model({name!r}).to_pyg()  # a torch_geometric.nn.{model}; takes features as they are
outputs = network(x, edge_index)
"""
PLAIN_LOADING = """\
import gossamer

model = gossamer.load_model({name!r})  # a torch.nn.Module
outputs = model(x, edge_index)  # [vertices, {outputs}]; edge_weight may follow
"""
ACTIVATION_CODE = {"relu": "torch.relu", "tanh": "torch.tanh", "elu": "torch.nn.functional.elu", "identity": ""}


def write_card(
    name: str, header: ModelHeader, state: Mapping[str, Tensor], trained: Trained, versions: Mapping[str, str]
) -> str:
    """The card of the model file `name`."""
    task = infer_stored_task(header.task, header.class_names)
    parts = [
        f"{CARD_TITLE} {_plain(name)}\n",
        f"A graph neural network of {header.layers} layers, trained by {trained.num_agents} agents on "
        f"{_plain(trained.data_name)} for {trained.step} steps. Weights: {header.weights}. "
        f"{header.inputs} features in, {header.outputs} {OUTPUTS[task]} out.\n",
        *_describe_encoder(header),
        "## Data\n",
        f"- name: {_plain(trained.data_name)}",
        f"- fingerprint (SHA-256): `{trained.fingerprint}`",
        *_list_classes(header.class_names, task),
        "\n## Load it\n",
        f"As a plain PyTorch module:\n\n```python\n{PLAIN_LOADING.format(name=name, outputs=header.outputs)}```\n",
        _pyg_section(name, header, trained.network),
        "## Arrays\n",
        "| name | shape | type |\n| --- | --- | --- |",
        *(f"| `{key}` | {list(part.shape)} | {str(part.dtype)[6:]} |" for key, part in state.items()),
        "\n## Scores\n",
        *_list_scores(trained.summary),
        "\n## Settings\n",
        "| setting | value |\n| --- | --- |",
        *(f"| {key} | {_plain(str(value))} |" for key, value in trained.settings.model_dump(mode="json").items()),
        "\n## Versions\n",
        *(f"- {key} {value}" for key, value in versions.items()),
    ]
    return "\n".join(parts) + "\n"


def _pyg_section(name: str, header: ModelHeader, network: Network) -> str:
    activation = getattr(network.layers[0], "activation", None)
    if header.pyg is None or activation not in ACTIVATION_CODE:
        return (
            "PyTorch Geometric has no layer that computes the same: the names below are those of the plain module "
            "alone.\n"
        )
    if header.pyg in PYG_MODELS.values():
        code = PYG_MODEL.format(name=name, model=header.pyg)
        return f"In PyTorch Geometric, where the outputs are the same:\n\n```python\nimport gossamer\n\n{code}```\n"
    convs = [part for layer in network.layers if (part := describe_layer(layer, header.shift)) is not None]
    weighted = header.pyg in WEIGHTED_CONVS
    more = ", lambda_max=2.0" if header.pyg == "ChebConv" else ""
    code = PYG_LOADING.format(
        classes=", ".join(sorted(set[str]().union(*(part.list_classes() for part in convs)))),
        convs=", ".join(map(str, convs)),
        activation=ACTIVATION_CODE[activation],
        named="edge_index, edge_weight=None" if weighted else "edge_index",
        given=f"edge_index, edge_weight{more}" if weighted else "edge_index",
    )
    code += (PYG_ENCODER_STATE if header.encoder else PYG_STATE).format(name=name)
    if header.standardised:
        code += PYG_STANDARDISE.format(name=find_transform_beside(Path(name)).name)
    if header.encoder:
        code += PYG_ENCODE.format(levels=ENCODING_LEVELS)
    if header.standardised or header.encoder:
        code += PYG_OUTPUTS
    if header.standardised and header.class_names is None:
        code += PYG_RESTORE
    return f"In PyTorch Geometric, where the outputs are the same:\n\n```python\n{code}```\n"


def _describe_encoder(header: ModelHeader) -> list[str]:
    if not header.encoder:
        return []
    return [
        f"It has an encoder: each vertex's features x become the {header.encoder} numbers tanh(W x + b), rounded to "
        "8 bits, which the layers take for features. The encoder is frozen.\n"
    ]


def _list_classes(names: list[str] | None, task: Task) -> list[str]:
    if names is None:
        return []
    more = f" and {len(names) - MOST_NAMES} more" if len(names) > MOST_NAMES else ""
    lines = [f"- {OUTPUTS[task]}, by the column of the output: {', '.join(map(_plain, names[:MOST_NAMES]))}{more}"]
    if task == "multilabel":
        lines.append("- a vertex may have any number of labels; the probability of each is the sigmoid of its column")
    return lines


def _list_scores(summary: Mapping[str, Any]) -> list[str]:
    """A table of what the summary holds; the distributed model predicts each vertex with its own agent's weights."""
    models = [model for model in CARD_MODELS if model in summary]
    if not models:
        return ["None: the run has not been evaluated."]
    names = list(summary[models[0]]["test"])
    rows = [
        [model, mask, *(_number(summary[model][mask].get(name)) for name in names)]
        for model in models
        for mask in CARD_MASKS
    ]
    table = [["model", "mask", *names], ["---"] * (len(names) + 2), *rows]
    lines = [f"| {' | '.join(row)} |" for row in table]
    apart = _number(summary.get("disagreement"))
    return [*lines, f"\nDistributed: each vertex with its own agent's weights, which disagree by {apart}."]


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.4g}"


def _plain(text: str) -> str:
    """A user's text without what Markdown or HTML would read as its own."""
    return " ".join(text.split()).translate({ord(character): f"&#{ord(character)};" for character in "\\`*[]<>&|"})
