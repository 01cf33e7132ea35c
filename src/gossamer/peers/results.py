"""The result of a peer: its folder becomes a run directory (runs/directory.py), with what one agent knows of the run.

run.json               settings, the agent's number, and the summary of the whole network
metrics.jsonl          scores of the whole network at every evaluation, disagreement and g^t where they were measured
weights.safetensors    this agent's weights [1, ...]
mean.safetensors       the mean of all agents' weights [1, ...]
rows.safetensors       rows that neighbours sent in the last forward pass, to predict this agent's vertices alone
transform.safetensors  of features and targets, if they were standardised; encoder.safetensors, if there is an encoder
"""

import logging
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from torch import Tensor

from gossamer.agents.host import Host
from gossamer.agents.scores import Scores, choose_score
from gossamer.errors import GossamerError
from gossamer.files import PRIVATE
from gossamer.machine import as_size
from gossamer.peers.evaluation import Closing, ReceivedRows
from gossamer.peers.evaluation_log import AgentMetrics, read_evaluation_log, score_agents
from gossamer.peers.shards.shard import Shard
from gossamer.runs.encoders import ENCODER_FILE
from gossamer.runs.evaluations import write_evaluations
from gossamer.runs.manifests import DataIdentity
from gossamer.runs.records import Record
from gossamer.runs.run_json import write_manifest
from gossamer.runs.stages import ENCODER
from gossamer.runs.tensors import read_tensors, write_tensors
from gossamer.runs.trained import MEAN_FILE
from gossamer.runs.transforms import TRANSFORM_FILE, write_transform

ROWS_FILE = "rows.safetensors"
MAX_EXCHANGES = 1 << 20  # of a forward pass, in a file that may be damaged
MAX_ROWS_BYTES = 1 << 30  # beyond which rows are not kept: those of many time steps
_logger = logging.getLogger(__name__)


def write_result(folder: Path, shard: Shard, kept: Host, closing: Closing, log: Path) -> None:
    """Write what an agent knows at the end of its run, run.json last; `kept` has the weights that are kept."""
    if closing.mean is None:
        (folder / MEAN_FILE).unlink(missing_ok=True)
    else:
        write_tensors(folder / MEAN_FILE, closing.mean, PRIVATE)
    write_rows(folder, closing.rows)
    share, settings = shard.share, shard.settings
    if share.transform is not None:
        write_transform(folder / TRANSFORM_FILE, share.transform, PRIVATE)
    if settings.encodes:
        weights = read_tensors(folder / ENCODER / "weights.safetensors")
        first = {name: part for name, part in weights.items() if name.startswith("layer.0.")}
        write_tensors(folder / ENCODER_FILE, first, PRIVATE)
    logged = read_evaluation_log(log)
    score = choose_score(settings.score, kept.task).key(binned=True)
    history = make_history(logged, score)
    at_kept = next((one for one in logged if one["step"] == kept.step), None)
    if at_kept is None:
        raise GossamerError(f"{log} has lost the evaluation of step {kept.step}, whose weights are kept; put it back")
    scale = None if share.transform is None else share.transform.find_target_scale()
    width = kept.network.layers[-1].outputs
    summary: dict[str, Any] = {
        "score": score,
        "own": score_agents([at_kept], kept.task, width, scale),
        "disagreement": closing.disagreement,
        "stationarity": closing.stationarity,
        "steps": logged[-1]["step"],
        "best_step": kept.step,
    }
    if history:
        record = next(one for one in history if one["step"] == kept.step)
        record["disagreement"], record["stationarity"] = closing.disagreement, closing.stationarity
        track_best(history)
        write_evaluations(folder / "metrics.jsonl", history, PRIVATE)
        summary["best_stationarity"] = history[-1]["best_stationarity"]
        whole: Scores = {"train": record["train"], "validation": record["validation"], "test": record["test"]}
        summary = {"distributed": whole, **summary}
    identity = shard.identity or DataIdentity(name=settings.dataset, fingerprint="", task=kept.task)
    more = {"agent": shard.membership.agent, **({} if settings.public_randomness else {"secrets": True})}
    write_manifest(folder, settings, identity, logged[-1]["step"], True, more, summary, PRIVATE)


def make_history(logged: Sequence[AgentMetrics], score: str) -> list[Record]:
    """Evaluations of the whole network, as far as the agent knows it: a private run's is not."""
    return [make_record(one, score, one["network"]) for one in logged if "network" in one]


def make_record(logged: AgentMetrics, score: str, whole: Scores) -> Record:
    """The record of an evaluation that an agent has logged, with all agents' scores; `track_best` completes it."""
    record: Record = {
        "step": logged["step"],
        "score": score,
        "train": whole["train"],
        "validation": whole["validation"],
        "test": whole["test"],
        "disagreement": logged.get("disagreement", math.nan),
        "stationarity": logged.get("stationarity", math.nan),
        "best_stationarity": math.nan,
    }
    if "best_step" in logged:
        record["best_step"] = logged["best_step"]
    return record


def track_best(history: Sequence[Record]) -> None:
    """Fill in the least g^t so far, from step 1 on (eq. (20)), of the evaluations where it was measured."""
    best = math.inf
    for record in history:
        now = record["stationarity"]
        if record["step"] > 0 and not math.isnan(now):
            best = min(best, now)
        record["best_stationarity"] = best if math.isfinite(best) else math.nan


def write_rows(folder: Path, rows: ReceivedRows) -> None:
    """Write the neighbours' rows of a forward pass."""
    named = name_rows(rows)
    size = sum(part.numel() * part.element_size() for part in named.values())
    if size > MAX_ROWS_BYTES:
        _logger.warning(
            "the neighbours' rows, %s, are not kept: this agent can predict with its neighbours (gossamer peer "
            "--serve), not alone",
            as_size(size),
        )
        (folder / ROWS_FILE).unlink(missing_ok=True)
        return
    write_tensors(folder / ROWS_FILE, named, PRIVATE)


def read_neighbour_rows(folder: Path) -> ReceivedRows:
    """Rows that neighbours sent in the last forward pass."""
    path = folder / ROWS_FILE
    if not path.is_file():
        raise GossamerError(
            f"{folder} holds no rows of neighbours to predict from; start all agents with gossamer peer --serve, and "
            "predict again"
        )
    return order_rows(read_tensors(path), str(path))


def name_rows(rows: ReceivedRows) -> dict[str, Tensor]:
    """Rows by names of the number of an exchange and the sender."""
    return {f"{number}.{sender}": part for number, one in enumerate(rows) for sender, part in one.items()}


def order_rows(named: Mapping[str, Tensor], source: str) -> ReceivedRows:
    """Rows by exchange and sender again."""
    rows: ReceivedRows = []
    for name, part in named.items():
        number, _, sender = name.partition(".")
        if not (number.isdigit() and sender.isdigit() and len(name) < 40):
            raise GossamerError(f"{source} holds {name!r}, expected the number of an exchange and a sender")
        rows.extend({} for _ in range(len(rows), min(int(number), MAX_EXCHANGES) + 1))
        rows[min(int(number), MAX_EXCHANGES)][int(sender)] = part
    return rows
