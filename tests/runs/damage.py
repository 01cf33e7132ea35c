"""Seeded damage to files: bytes flipped and cut off, every key of a JSON file and every array changed to what it must
not be, with the checksums made right again so that what lies behind them is reached."""

import copy
import hashlib
import json
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch

from gossamer.runs.tensors import read_file, write_tensors

REMOVED, RENAMED = object(), object()
VALUES: list[Any] = [
    None, True, False, -1, 0, 1, 7, 10**15, 2**63, -(2**70), 10**400, 0.5, -2.5, 1e300, float("nan"),
    float("inf"), "", "x", "../../x", "höst-b:45802", "host/5:45802", "a:1", "\ud800", "x" * 5000, [], {}, [[]], [-1],
    {"x": 1}, [10**12],
]  # fmt: skip
TEXTS = [
    b"", b"{", b"null", b"[]", b"3", b"[" * 100_000, b'{"a":' * 50_000, b"1" * 5000, b"\xff\xfe", b'{"format": NaN}',
    b'{"format": 1, "settings": ' + b"[" * 500 + b"]" * 500 + b"}",
]  # fmt: skip


def damaged_bytes(content: bytes, count: int, seed: int) -> Iterator[bytes]:
    """A bit flipped somewhere, a piece cut off or out, or a piece of noise."""
    draw = random.Random(seed)
    for _ in range(count):
        changed = bytearray(content)
        place = draw.randrange(len(changed))
        match draw.randrange(4):
            case 0:
                changed[place] ^= 1 << draw.randrange(8)
            case 1:
                del changed[place:]
            case 2:
                del changed[place : place + draw.randrange(1, 9)]
            case _:
                changed[place : place + 4] = draw.randbytes(4)
        yield bytes(changed)


def damaged_json(content: Any, seed: int = 0) -> Iterator[str]:
    """Every value of a document, one after the other, gone, of another name, and in place of things that somebody might
    write there."""
    draw = random.Random(seed)
    for path in _paths(content):
        for value in [REMOVED, RENAMED, *draw.sample(VALUES, 8)]:
            changed = copy.deepcopy(content)
            parent = changed
            for step in path[:-1]:
                parent = parent[step]
            old = parent.pop(path[-1])
            if value is RENAMED and isinstance(parent, dict):
                parent[f"{path[-1]}\u202e x"] = old
            elif value is not REMOVED:
                parent.insert(path[-1], value) if isinstance(parent, list) else parent.update({path[-1]: value})
            yield json.dumps(changed, default=str)


def _paths(content: Any, before: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Where the values of a document stand; of a list the first."""
    listed = enumerate(content[:1]) if isinstance(content, list) else ()
    for key, value in content.items() if isinstance(content, dict) else listed:
        yield (*before, key)
        yield from _paths(value, (*before, key))


def damaged_tensors(tensors: dict[str, torch.Tensor], seed: int) -> Iterator[dict[str, torch.Tensor]]:
    """Every array gone, of another name, type, shape or order, or with one number that it must not have."""
    draw = random.Random(seed)
    for name, tensor in tensors.items():
        others = {key: part for key, part in tensors.items() if key != name}
        yield others
        yield {**others, f"{name}.x": tensor}
        for changed in _damaged(tensor, draw):
            yield {**others, name: changed}
    yield {**tensors, "more": torch.zeros(3)}
    yield {}


def _damaged(tensor: torch.Tensor, draw: random.Random) -> Iterator[torch.Tensor]:
    for dtype in (torch.bool, torch.uint8, torch.int16, torch.int32, torch.int64, torch.float32, torch.float64,
                  torch.bfloat16, torch.complex64):  # fmt: skip
        if dtype != tensor.dtype:
            yield tensor.to(dtype)
    yield tensor[None]
    yield tensor.reshape(-1)
    yield torch.cat([tensor, tensor[-1:]]) if len(tensor) else tensor.new_zeros(1, *tensor.shape[1:])
    yield tensor.new_zeros(0, *tensor.shape[1:])
    yield torch.empty(0, 2**40, dtype=tensor.dtype)
    yield torch.empty(2**40, 0, dtype=tensor.dtype)
    if len(tensor):
        yield tensor[:-1]
        yield tensor[torch.tensor([0])].expand_as(tensor) if tensor.ndim else tensor
        yield tensor.flip(0)
    if tensor.ndim == 2:
        yield tensor.T.contiguous()
    values: list[Any] = [-1, 0, 3, len(tensor), 2**31 - 1, -(2**31)]
    if tensor.dtype == torch.bool:
        yield ~tensor
        values = [True, False]
    elif tensor.is_floating_point():
        values = [float("nan"), float("inf"), -float("inf"), 1e30, -1.0, 0.0]
    elif tensor.dtype == torch.int64:
        values += [2**62, -(2**62)]
    for value in values if tensor.numel() else ():
        changed = tensor.clone().reshape(-1)
        changed[draw.randrange(len(changed))] = value
        yield changed.reshape(tensor.shape)


def store(path: Path, tensors: dict[str, torch.Tensor]) -> None:
    """Write arrays in the place of a file's, with right checksums in the file and in the manifest beside it."""
    _, about = read_file(path)
    words: dict[str, Any] = {key: word for key, word in about.items() if key != "format"}
    write_tensors(path, {name: part.contiguous() for name, part in tensors.items()}, **words)
    manifest = path.parent / "shard.json"
    if manifest.is_file():
        content = json.loads(manifest.read_text())
        content["checksums"] = {path.name: hashlib.sha256(path.read_bytes()).hexdigest()}
        manifest.write_text(json.dumps(content))
