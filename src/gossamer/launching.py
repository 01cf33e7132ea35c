"""A launched training as a run: what the agents' processes left behind, gathered into one run directory."""

import math
from pathlib import Path

import torch

from gossamer.agents import MASKS
from gossamer.agents.measures import disagreement, scores
from gossamer.api import HooksFor, Result, finish
from gossamer.data import DataGraph
from gossamer.engines.simulation import start
from gossamer.peers.metrics import read_metrics_log
from gossamer.peers.process import run_folder
from gossamer.peers.shards.shard import read_shard
from gossamer.runs.advice import warn_before
from gossamer.runs.deployment import Progress
from gossamer.runs.records import Record
from gossamer.runs.settings import Settings
from gossamer.runs.tensors import check_tensors, read_tensors
from gossamer.runs.training import Run, stationarity, with_weights


def prepare(graph: DataGraph, settings: Settings, progress: Progress | None) -> Run:
    """The run at step 0."""
    if "dataset" not in settings.model_fields_set:
        settings = settings.model_copy(update={"dataset": graph.name})
    state = start(graph, settings, progress=progress)
    warn_before(state.deployment, settings)
    return state


def gather(graph: DataGraph, state: Run, folders: list[Path], folder: Path, hooks: HooksFor | None) -> Result:
    """The finished run from the agents' weights and sums, then its references, as `train` leaves them."""
    folders = [run_folder(path, read_shard(path).membership) for path in folders]
    parts = []
    for path in folders:
        parts.append(read_tensors(path / "weights.safetensors"))
        expected = {name: (part.dtype, (1, *part.shape[1:])) for name, part in state.host.params.items()}
        check_tensors(parts[-1], expected, str(path / "weights.safetensors"))
    params = {name: torch.cat([part[name] for part in parts]) for name in parts[0]}
    done = with_weights(state, params, state.host.state, state.settings.steps)
    done.history = _history(done, folders)
    return finish(Result(done), graph, folder, hooks)


def _history(state: Run, folders: list[Path]) -> list[Record]:
    """The agents' sums added up, as scores. What needs all weights at once is known of the last step only."""
    classes = state.deployment.graph.num_classes is not None
    tables = [read_metrics_log(path / "metrics.jsonl") for path in folders]
    history: list[Record] = []
    for records in zip(*tables, strict=True):
        sums = [{name: torch.tensor(record[name], dtype=torch.float64) for name in MASKS} for record in records]
        found = scores(sums, classes)
        history.append(
            {
                "step": records[0]["step"],
                "train": found["train"],
                "validation": found["validation"],
                "test": found["test"],
                "disagreement": math.nan,
                "stationarity": math.nan,
                "best_stationarity": math.nan,
            }
        )
    history[-1]["disagreement"] = disagreement(state.host.params)
    history[-1]["stationarity"] = stationarity(state.host, state.engine)
    return history
