"""run.json of a run directory: settings, data, versions and the summary of a run."""

import platform
from collections.abc import Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import torch

from gossamer.errors import GossamerError
from gossamer.files import ALL_MAY_READ, write_atomically
from gossamer.runs.documents import FORMAT, check_format, read_json, to_json, validate
from gossamer.runs.manifests import DataIdentity, RunManifest
from gossamer.runs.settings import Settings
from gossamer.runs.shares import MANIFEST, MAX_MANIFEST_BYTES
from gossamer.runs.stored_settings import read_stored_settings

GOSSAMER_VERSION = version("gossamer")


def write_manifest(
    folder: Path,
    settings: Settings,
    data: DataIdentity,
    step: int,
    complete: bool,
    more: Mapping[str, Any],
    summary: Mapping[str, Any],
    mode: int = ALL_MAY_READ,
) -> None:
    """Write run.json."""
    content = {
        "format": FORMAT,
        "settings": settings.model_dump(mode="json"),
        "data": data.model_dump(),
        "versions": {
            "gossamer": GOSSAMER_VERSION,
            "torch": torch.__version__,
            "numpy": np.__version__,
            "python": platform.python_version(),
        },
        "step": step,
        "complete": complete,
        **more,
        "summary": dict(summary),
    }
    write_atomically(folder / "run.json", (to_json(content, indent=2) + "\n").encode(), mode)


def read_manifest(folder: Path) -> RunManifest:
    """Read and validate run.json."""
    path = folder / "run.json"
    try:
        content = read_json(path)
    except OSError:
        agents = sorted(folder.glob(f"*/{MANIFEST}")) if folder.is_dir() else []
        hint = f"; it holds folders of agents: give one of them, such as {agents[0].parent}" if agents else ""
        raise GossamerError(f"{folder} is not a run directory: it has no run.json{hint}") from None
    check_format(content, path)
    return validate(RunManifest, content, str(path))


def read_run_settings(folder: Path) -> Settings:
    """Settings of a run directory."""
    return read_stored_settings(read_manifest(folder).settings, str(folder / "run.json"))


def find_run_folder(folder: Path) -> Path:
    """The run directory that a user means: the folder itself, or the run within an agent's folder."""
    if (folder / "run.json").is_file() or not (folder / MANIFEST).is_file():
        return folder
    state = folder / f"run-{read_json(folder / MANIFEST, MAX_MANIFEST_BYTES).get('run')}"
    if not (state / "run.json").is_file():
        raise GossamerError(
            f"{folder} is the folder of an agent that has not finished its run; see gossamer status {folder}"
        )
    return state
