"""Files of transforms: how features and targets were standardised, beside weights that belong to them."""

from pathlib import Path

import torch

from gossamer.array_types import Floats
from gossamer.data.standardisation import Transform
from gossamer.errors import GossamerError
from gossamer.files import ALL_MAY_READ
from gossamer.runs.arrays import StoredArrays
from gossamer.runs.tensors import read_arrays, write_tensors

TRANSFORM_FILE = "transform.safetensors"  # of a run directory
TRANSFORM_PREFIX = "transform."  # of its arrays in a share


def find_transform_beside(path: Path) -> Path:
    """The transform of the weights in a file: model.safetensors has its own in model.transform.safetensors."""
    return path.with_suffix(f".{TRANSFORM_FILE}")


def read_transform_beside(path: Path, num_features: int, num_outputs: int) -> Transform | None:
    """The transform of a model file, if there is one."""
    beside = find_transform_beside(path)
    return read_transform(beside, num_features, num_outputs) if beside.is_file() else None


def write_transform(path: Path, transform: Transform, mode: int = ALL_MAY_READ) -> None:
    write_tensors(path, {name: torch.from_numpy(part) for name, part in transform.arrays().items()}, mode)


def read_transform(path: Path, num_features: int, num_outputs: int) -> Transform:
    """The transform of a file, which must fit the data's features and the network's outputs."""
    arrays = StoredArrays(path, read_arrays(path), "export the model again")
    transform = take_transform(arrays, "", num_features, num_outputs)
    arrays.finish()
    if transform is None:
        raise GossamerError(f"{path} holds no transform: expected feature_offset and feature_scale")
    return transform


def take_transform(arrays: StoredArrays, prefix: str, num_features: int, num_outputs: int) -> Transform | None:
    """The transform among stored arrays, if there is one."""
    if f"{prefix}feature_scale" not in arrays:
        return None

    def take(kind: str, length: int) -> tuple[Floats, Floats]:
        names = f"{prefix}{kind}_offset", f"{prefix}{kind}_scale"
        offset, scale = (arrays.take_finite(name, "float64", length) for name in names)
        if (scale <= 0).any():
            arrays.refuse(f"{prefix}{kind}_scale", "positive numbers", f"{scale.min()}")
        return offset, scale

    targets = take("target", num_outputs) if f"{prefix}target_scale" in arrays else (None, None)
    return Transform(*take("feature", num_features), *targets)
