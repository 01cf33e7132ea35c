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
