"""A trained network, apart from the data that it was trained on: the agents' weights, and what is known of them."""

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from gossamer.data.standardisation import Transform
from gossamer.data.tasks import Task, infer_stored_task
from gossamer.errors import GossamerError
from gossamer.model import Network, Params
from gossamer.model.modules import GIVEN_SHIFT, GraphNetwork, make_module
from gossamer.runs.directory import name_command
from gossamer.runs.encoders import ENCODER_FILE, read_encoder
from gossamer.runs.run import SHIFT_MARK, Run
from gossamer.runs.run_json import find_run_folder, read_manifest, read_run_settings
from gossamer.runs.settings import Settings
from gossamer.runs.stages import build_network, find_input_width
from gossamer.runs.tensors import check_tensors, read_tensors
from gossamer.runs.transforms import TRANSFORM_FILE, read_transform

MEAN_FILE = "mean.safetensors"  # in the directory of one agent, of all agents' weights


@dataclass(frozen=True)
class Trained:
    """All agents' weights; `class_names` are those of classes or labels, None for real values."""

    settings: Settings
    network: Network
    params: Params  # stacked over all agents
    step: int
    data_name: str
    fingerprint: str  # of the data that it was trained on
    class_names: list[str] | None
    task: Task
    summary: Mapping[str, Any]
    transform: Transform | None = None  # by which features and targets were standardised
    encoder: Params | None = None  # stacked likewise; the network takes its encodings for features
    agent: int | None = None  # whose weights alone are known, beside the mean of all
    mean: Params | None = None  # [1, ...]

    @property
    def num_agents(self) -> int:
        return self.settings.agents

    @property
    def num_features(self) -> int:
        """Columns of the data's features, which an encoder takes if there is one."""
        return self.network.layers[0].inputs if self.encoder is None else self.encoder["layer.0.weight"].shape[1]

    @property
    def num_outputs(self) -> int:
        return self.network.layers[-1].outputs

    @property
    def own_shift(self) -> bool:
        """The user gave D."""
        return SHIFT_MARK in self.fingerprint

    @property
    def shift(self) -> str:
        """Name of the shift operator, or GIVEN_SHIFT."""
        return GIVEN_SHIFT if self.own_shift else self.settings.shift_kind

    def require_features(self) -> None:
        """Refuse the network of a private run, which is no function of features and a graph."""
        if self.settings.privacy_spec is not None:
            raise GossamerError(
                f"expected a network that takes features, and this run is private ({self.settings.privacy}): its "
                "network's input, scores and noisy sums over neighbours, was computed once, for the run's own graph, "
                "so that no model can be exported and no other data predicted; gossamer predict RUN predicts the run's "
                "own vertices"
            )

    def select(self, agent: int | None = None) -> Params:
        """Weights of one agent, or the mean over all of them."""
        if agent is None and self.agent is not None and self.mean is None:
            raise GossamerError(
                f"agent {self.agent} does not know the mean of all weights, which masked consensus hides by default; "
                f"give --agent {self.agent} for its own, or train with --measure end"
            )
        if agent is None and self.mean is not None:
            return {name: part[0].clone() for name, part in self.mean.items()}
        return self._select(self.params, agent)

    def select_encoder(self, agent: int | None = None) -> Params | None:
        """Encoder of one agent, or the mean over all of them, if there is one."""
        return None if self.encoder is None else self._select(self.encoder, agent)

    def _select(self, params: Params, agent: int | None) -> Params:
        if agent is None:
            return {name: _average(part) for name, part in params.items()}
        if not 0 <= agent < self.num_agents:
            raise GossamerError(f"expected an agent from 0 to {self.num_agents - 1}, got {agent}")
        if self.agent not in (None, agent):
            raise GossamerError(f"this folder holds the weights of agent {self.agent}, not of agent {agent}")
        return {name: part[agent if self.agent is None else 0].clone() for name, part in params.items()}

    def module(self, agent: int | None = None) -> GraphNetwork:
        """The network as a plain PyTorch module, with one agent's weights or the mean over all of them; so its
        encoder."""
        self.require_features()
        return make_module(self.network, self.select(agent), self.shift, self.transform, self.select_encoder(agent))


def _average(part: Tensor) -> Tensor:
    """The mean over agents, as each has it where all have the same."""
    wide = part.double()
    return (wide[0] + (wide - wide[0]).mean(0)).to(part.dtype)


def trained_of_run(run: Run, summary: Mapping[str, Any]) -> Trained:
    """The network of a run as it stands. A call of all ranks; the leading one has the weights."""
    kept = run.kept
    params = run.engine.gathered(kept.params)
    if not params:
        raise GossamerError("the rank that leads has all agents' weights; ask it for the model")
    if run.settings.encodes and run.encoder is None:
        raise GossamerError(f"expected the agents' encoder, and the run directory holds no {ENCODER_FILE}; train again")
    return Trained(
        run.settings,
        run.host.network,
        params,
        kept.step,
        run.description["name"],
        run.fingerprint,
        run.description.get("class_names"),
        infer_stored_task(run.description.get("task"), run.description.get("class_names")),
        summary,
        run.transform,
        run.encoder,
    )


def read_trained(folder: Path) -> Trained:
    """The network that a run directory, or an agent's folder, holds; the data need not be there."""
    folder = find_run_folder(folder)
    manifest, settings = read_manifest(folder), read_run_settings(folder)
    path = folder / "weights.safetensors"
    if not path.is_file():
        raise GossamerError(f"{folder} holds no weights yet: finish it with gossamer {name_command(folder)}")
    params, agent = read_tensors(path), manifest.agent
    agents = settings.agents if agent is None else 1
    network = _find_network(params, settings, path)
    outputs = network.layers[-1].outputs
    expected = {name: (settings.torch_dtype, (agents, *shape)) for name, shape in network.shapes().items()}
    mean = read_tensors(folder / MEAN_FILE) if agent is not None and (folder / MEAN_FILE).is_file() else None
    for source, weights in ((path, params), (folder / MEAN_FILE, mean)):
        if weights is not None:
            check_tensors(weights, expected, str(source))
            if not all(bool(torch.isfinite(part).all()) for part in weights.values()):
                raise GossamerError(f"{source} holds NaN or infinite numbers")
    names = manifest.data.class_names
    if names is None and "accuracy" in manifest.summary.get("distributed", {}).get("test", {}):
        names = [str(c) for c in range(outputs)]  # of a run from before names were stored
    encoder = read_encoder(folder, settings, outputs, agents) if settings.encodes else None
    num_features = network.layers[0].inputs if encoder is None else encoder["layer.0.weight"].shape[1]
    beside = folder / TRANSFORM_FILE
    return Trained(
        settings,
        network,
        params,
        manifest.step,
        manifest.data.name,
        manifest.data.fingerprint,
        names,
        infer_stored_task(manifest.data.task, names),
        manifest.summary,
        read_transform(beside, num_features, outputs) if beside.is_file() else None,
        encoder,
        agent,
        mean,
    )


def _find_network(params: Params, settings: Settings, path: Path) -> Network:
    """The network of the settings with the widths of stored weights, which may be of any kind of layers: of all widths
    at both ends that occur, those that fit most weights."""
    numbers = [int(name.split(".")[1]) for name in params if name.split(".")[1:2] and name.split(".")[1].isdigit()]
    first = [part for name, part in params.items() if name.startswith("layer.0.") and part.ndim > 2]
    last = [part for name, part in params.items() if name.startswith(f"layer.{max(numbers, default=0)}.")]
    if not first:
        raise GossamerError(f"{path} does not fit the run's settings: expected layer.0.weight [agents, in, out]")
    widths = sorted({(i.shape[-2], o.shape[-1]) for i in first for o in last})
    found: list[Network] = []
    for inputs, outputs in widths:
        with suppress(GossamerError):  # of heads that a width cannot be split into
            found.append(build_network(find_input_width(inputs, outputs, settings), outputs, settings))
    if not found:
        raise GossamerError(f"{path} does not fit the run's settings: no network of theirs has its widths")

    def count_fitting(network: Network) -> int:
        return sum(name in params and params[name].shape[1:] == shape for name, shape in network.shapes().items())

    return max(found, key=count_fitting)
