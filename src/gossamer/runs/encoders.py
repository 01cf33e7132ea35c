"""Files of a run with an encoder: all agents' weights of it, and what it made of the run's own vertices."""

from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from gossamer.data import DataGraph
from gossamer.errors import GossamerError
from gossamer.model import Params
from gossamer.runs.arrays import StoredArrays
from gossamer.runs.settings import Settings
from gossamer.runs.stages import find_input_width
from gossamer.runs.tensors import check_tensors, read_arrays, read_tensors

ENCODER_FILE, ENCODINGS_FILE = "encoder.safetensors", "encodings.safetensors"  # of a run directory


def read_encodings(folder: Path, graph: DataGraph, settings: Settings) -> NDArray[Any]:
    """Input of the graph network [n, width]."""
    width, path = find_input_width(0, graph.num_outputs, settings), folder / ENCODINGS_FILE
    stored = StoredArrays(path, read_arrays(path), "train the run again")
    encodings = stored.take_finite("encodings", settings.dtype, graph.num_vertices, width)
    stored.finish()
    return encodings


def read_encoder(folder: Path, settings: Settings, num_outputs: int, agents: int | None = None) -> Params:
    """Weights of all agents' encoders, or of so many: `layer.0.weight` [agents, features, width] and `layer.0.bias`
    [agents, width]; a private run's has a column for each class."""
    path = folder / ENCODER_FILE
    found = read_tensors(path)
    weight, width = found.get("layer.0.weight"), num_outputs if settings.privacy_spec else settings.encoder
    if weight is None or weight.ndim != 3:
        raise GossamerError(f"{path} does not fit the run's settings: expected layer.0.weight [agents, in, out]")
    m = settings.agents if agents is None else agents
    shapes = {"layer.0.weight": (m, weight.shape[1], width), "layer.0.bias": (m, width)}
    check_tensors(found, {name: (settings.torch_dtype, shape) for name, shape in shapes.items()}, str(path))
    if not all(bool(part.isfinite().all()) for part in found.values()):
        raise GossamerError(f"{path} holds NaN or infinite numbers")
    return found
