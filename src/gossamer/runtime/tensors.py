"""Files of named arrays: safetensors, written whole or not at all."""

from collections.abc import Mapping
from pathlib import Path

import safetensors
from safetensors.torch import load_file, save
from torch import Tensor

from gossamer.errors import GossamerError
from gossamer.files import write_atomically

FORMAT = 1


def write_tensors(path: Path, tensors: Mapping[str, Tensor], **about: str) -> None:
    """Write arrays, with a few words about them in the file's header."""
    content = save({name: t.detach().contiguous() for name, t in tensors.items()}, {"format": str(FORMAT), **about})
    write_atomically(path, content)


def pack_state(params: Mapping[str, Tensor], state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Weights and update statistics under the names of a checkpoint."""
    return {f"params.{name}": t for name, t in params.items()} | {f"state.{name}": t for name, t in state.items()}


def unpack_state(tensors: Mapping[str, Tensor]) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """What `pack_state` was given."""
    params, state = (
        {name.removeprefix(kind): t for name, t in tensors.items() if name.startswith(kind)}
        for kind in ("params.", "state.")
    )
    return params, state


def read_tensors(path: Path) -> dict[str, Tensor]:
    try:
        return load_file(path)
    except (OSError, safetensors.SafetensorError) as error:
        raise GossamerError(f"cannot read {path}: {error}") from None


def read_about(path: Path) -> dict[str, str]:
    """The words that `write_tensors` was given."""
    try:
        with safetensors.safe_open(path, framework="pt") as file:
            return dict(file.metadata() or {})
    except (OSError, safetensors.SafetensorError) as error:
        raise GossamerError(f"cannot read {path}: {error}") from None
