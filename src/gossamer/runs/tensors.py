"""Files of named arrays: safetensors with a checksum, written whole or not at all."""

import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import safetensors
import torch
from numpy.typing import NDArray
from safetensors.torch import load, save
from torch import Tensor

from gossamer.errors import GossamerError
from gossamer.files import ALL_MAY_READ, write_atomically
from gossamer.runs.documents import FORMAT

CHECKSUM = "checksum"  # in a file's header; files of older versions have none
HEADER_KEYS = {"format", "step", "seconds", "model", "run", "agent"}  # the others in a header


def write_tensors(
    path: Path, tensors: Mapping[str, Tensor], mode: int = ALL_MAY_READ, previous: Path | None = None, **about: str
) -> None:
    """Write arrays, with values `about` them in the file's header; an existing file becomes `previous`."""
    stored = {name: t.detach().contiguous() for name, t in tensors.items()}
    words = {"format": str(FORMAT), **about}
    write_atomically(path, save(stored, words | {CHECKSUM: _digest(stored, words)}), mode, previous)


def pack_tensors(tensors: Mapping[str, Tensor]) -> bytes:
    """Arrays as the bytes of a file."""
    return save({name: t.detach().contiguous() for name, t in tensors.items()})


def unpack_tensors(content: bytes) -> dict[str, Tensor]:
    """The arrays of such bytes."""
    return load(content)


def pack_state(params: Mapping[str, Tensor], state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Weights and update statistics under the names of a checkpoint."""
    return {f"params.{name}": t for name, t in params.items()} | {f"state.{name}": t for name, t in state.items()}


def unpack_state(tensors: Mapping[str, Tensor]) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """Weights and update statistics from the names of a checkpoint."""
    params, state = (
        {name.removeprefix(kind): t for name, t in tensors.items() if name.startswith(kind)}
        for kind in ("params.", "state.")
    )
    return params, state


def read_tensors(path: Path) -> dict[str, Tensor]:
    """Arrays of a file, verified by its checksum if it has one."""
    return read_file(path)[0]


def read_file(path: Path) -> tuple[dict[str, Tensor], dict[str, str]]:
    """Arrays of a file and the header's values that `write_tensors` was given. Both are bounded by the file's size."""
    try:
        if not path.is_file():
            raise OSError("there is no such file")
        with safetensors.safe_open(path, framework="pt") as file:
            about: dict[str, str] = dict(file.metadata() or {})
            tensors: dict[str, Tensor] = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except (OSError, safetensors.SafetensorError, RuntimeError, ValueError, OverflowError) as error:
        raise GossamerError(f"cannot read {path}: {str(error)[:200]}") from None
    checksum = about.pop(CHECKSUM, None)
    if set(about) - HEADER_KEYS:  # the key of the checksum itself may be damaged
        raise GossamerError(f"{path} is damaged: its header has an unknown word {min(set(about) - HEADER_KEYS)[:40]!a}")
    if checksum is not None and checksum != _digest(tensors, about):
        raise GossamerError(f"{path} is damaged: its content does not have the checksum in its header")
    return tensors, about


def read_metadata(path: Path) -> dict[str, str]:
    """Words in a file's header, which no checksum verifies before the arrays are read as well."""
    try:
        with safetensors.safe_open(path, framework="pt") as file:
            return dict(file.metadata() or {})
    except (OSError, safetensors.SafetensorError) as error:
        raise GossamerError(f"cannot read {path}: {str(error)[:200]}") from None


def read_arrays(path: Path) -> dict[str, NDArray[Any]]:
    """Arrays of a file for NumPy, which lacks some of PyTorch's types."""
    arrays = {}
    for name, tensor in read_tensors(path).items():
        try:
            arrays[name] = tensor.numpy()
        except TypeError:
            raise GossamerError(f"{path}: {name[:80]!a} should hold numbers, found {tensor.dtype}") from None
    return arrays


Expected = Mapping[str, tuple[torch.dtype, tuple[int, ...]]]  # type and shape of each array


def check_tensors(found: Mapping[str, Tensor], expected: Expected, source: str) -> None:
    """Refuse arrays of other names, types or shapes."""
    missing, unknown = sorted(set(expected) - set(found)), sorted(set(found) - set(expected))
    if missing or unknown:
        what = f"it has no {missing[0]}" if missing else f"unknown array {unknown[0][:80]!a}"
        raise GossamerError(f"{source} does not fit the run's settings: {what}")
    for name, (dtype, shape) in expected.items():
        if found[name].dtype != dtype or tuple(found[name].shape) != shape:
            raise GossamerError(
                f"{source} does not fit the run's settings: {name} should be {str(dtype)[6:]} {list(shape)}, found "
                f"{str(found[name].dtype)[6:]} {list(found[name].shape)}"
            )


def _digest(tensors: Mapping[str, Tensor], about: Mapping[str, str]) -> str:
    """Digest of names, types, shapes and numbers of all arrays, and of the header's values."""
    digest = hashlib.blake2b(digest_size=32)
    for key, word in sorted(about.items()):
        digest.update(f"{len(key)} {key} {len(word)} {word}\n".encode())
    for name, tensor in sorted(tensors.items()):
        digest.update(f"{len(name)} {name} {tensor.dtype} {list(tensor.shape)}\n".encode())
        if not tensor.numel():  # an array without numbers may have strides of 0, which cannot be viewed as bytes
            continue
        numbers: Any = tensor.reshape(-1).view(torch.uint8).numpy()
        digest.update(numbers)
    return digest.hexdigest()
