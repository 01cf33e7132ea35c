"""Summaries: the scores and costs of a run as one object, that of `--json`."""

from gossamer.agents.measures import Scores
from gossamer.runs.message_counts import total_bytes
from gossamer.runs.records import Record, Summary
from gossamer.runs.run import Run
from gossamer.runs.training import measure_disagreement


def measure_final_scores(run: Run) -> Scores:
    last = run.history[-1]
    return run.scores() if last["step"] != run.host.step else select_scores(last)


def select_scores(record: Record) -> Scores:
    return {"train": record["train"], "validation": record["validation"], "test": record["test"]}


def summarise(run: Run) -> Summary:
    """The object of `--json`, without the references."""
    final, apart = measure_final_scores(run), measure_disagreement(run)  # on all ranks: these are sums over hosts
    if not run.engine.leads:
        return {"distributed": final}
    messages = run.messages
    return {
        "distributed": final,
        "disagreement": apart,
        "stationarity": run.history[-1]["stationarity"],
        "best_stationarity": run.history[-1]["best_stationarity"],
        "steps": run.host.step,
        "edges_kept": run.description["edges_kept"],
        "messages": {**messages, "total_bytes": total_bytes(messages, run.settings, run.host.step)},
        "seconds": run.seconds,
    }
