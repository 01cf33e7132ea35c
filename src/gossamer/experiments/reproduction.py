"""Parts that all reproduced figures share: a cache of results, and claims with their measurements."""

import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from gossamer.errors import GossamerError
from gossamer.files import write_atomically
from gossamer.runs.documents import read_json, to_json
from gossamer.runs.run_json import GOSSAMER_VERSION

ExperimentProgress = Callable[[int, int, str], None]  # called with the parts done, all parts, and the last one's text


@dataclass(frozen=True)
class Claim:
    """A statement with its measurement."""

    claim: str
    measured: str
    holds: bool
    ours: bool = False  # of this project, not of the paper: not counted in the verdict


@dataclass(frozen=True)
class Outcome:
    """The claims and files of one figure or table."""

    name: str
    claims: list[Claim]
    files: list[str]
    quick: bool | None = None  # fewer steps and points; this and `seeds`: None in files of older versions
    seeds: int | None = None  # repetitions that were asked for

    def to_dict(self) -> dict[str, Any]:
        return {name: value for name, value in asdict(self).items() if value is not None}


@dataclass(frozen=True)
class Cache:
    """Results on disk, one file for each key, so that an interrupted reproduction continues where it stopped."""

    folder: Path

    def get_or_compute(self, key: Mapping[str, Any], compute: Callable[[], Any]) -> Any:
        """Return the result stored under this key, or compute and store it."""
        stored = self.find(key)
        return self.store(key, compute()) if stored is None else stored

    def find(self, key: Mapping[str, Any]) -> Any:
        """Return the result stored under this key by this version of Gossamer, or None. Refuse a damaged file."""
        path, key = self._path(key), _add_version(key)
        if not path.is_file():
            return None
        try:
            stored = read_json(path)
            if not isinstance(stored, dict) or not {"key", "result"} <= set(stored):
                raise GossamerError("it has no key or no result")
            # Files written before checksums were have none.
            if "checksum" in stored and stored["checksum"] != _compute_checksum(stored["key"], stored["result"]):
                raise GossamerError("its content does not have its checksum")
        except (OSError, GossamerError) as error:
            raise GossamerError(f"{path} is damaged ({error}); remove it and start again") from None
        # JSON turns tuples into lists: so must the key, to be compared.
        return stored["result"] if stored["key"] == json.loads(json.dumps(key)) else None

    def store(self, key: Mapping[str, Any], result: Any) -> Any:
        """Store a result and return it as `find` would."""
        self.folder.mkdir(parents=True, exist_ok=True)
        stored = json.loads(to_json({"key": _add_version(key), "result": result}))
        content = to_json({**stored, "checksum": _compute_checksum(stored["key"], stored["result"])})
        write_atomically(self._path(key), content.encode())
        return stored["result"]

    def _path(self, key: Mapping[str, Any]) -> Path:
        # 64 bits are enough for a name: `find` compares the whole key.
        name = hashlib.sha256(json.dumps(_add_version(key), sort_keys=True).encode()).hexdigest()[:16]
        return self.folder / f"{name}.json"


def _add_version(key: Mapping[str, Any]) -> dict[str, Any]:
    return {"gossamer": GOSSAMER_VERSION, **key}


def _compute_checksum(key: Any, result: Any) -> str:
    return hashlib.blake2b(json.dumps([key, result], sort_keys=True).encode(), digest_size=32).hexdigest()
