"""Summaries: the scores and costs of a run as one object, that of `--json`."""

from collections.abc import Sequence

from gossamer.agents.measures import Scores
from gossamer.runs.message_counts import total_bytes
from gossamer.runs.records import Record, Summary
from gossamer.runs.run import Run
from gossamer.runs.settings import Settings
from gossamer.runs.training import measure_scores


def select_scores(record: Record) -> Scores:
    return {"train": record["train"], "validation": record["validation"], "test": record["test"]}


def find_kept_record(history: Sequence[Record]) -> Record:
    """The evaluation of the weights that are kept: the best one, or the last."""
    step = history[-1].get("best_step", history[-1]["step"])
    return next(record for record in history if record["step"] == step)


def has_ended(history: Sequence[Record], settings: Settings) -> bool:
    """Return whether evaluations are those of a whole run: up to the last step, or as long as patience lasted."""
    last = history[-1]
    waited = last["step"] - last.get("best_step", last["step"])
    return last["step"] >= settings.steps or 0 < settings.patience <= waited


def evaluate_kept(run: Run) -> Record:
    """The evaluation of the weights that are kept; a run that was stopped between two evaluations is evaluated now."""
    kept = run.kept
    found = next((record for record in run.history if record["step"] == kept.step), None)
    return found or {**measure_scores(run), "stationarity": run.history[-1]["stationarity"]}


def summarise(run: Run) -> Summary:
    """The object of `--json`, without the references."""
    kept = evaluate_kept(run)  # on all ranks: it holds sums over hosts
    if not run.engine.leads:
        return {"distributed": select_scores(kept)}
    messages = run.messages
    return {
        "distributed": select_scores(kept),
        "disagreement": kept["disagreement"],
        "stationarity": kept["stationarity"],
        "best_stationarity": run.history[-1]["best_stationarity"],
        "steps": run.host.step,
        "best_step": kept["step"],
        "edges_kept": run.description["edges_kept"],
        "messages": {**messages, "total_bytes": total_bytes(messages, run.settings, run.host.step)},
        "seconds": run.seconds,
    }
