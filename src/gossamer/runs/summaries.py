"""Summaries: the scores and costs of a run as one object, that of `--json`."""

from gossamer.agents.scores import Scores, find_task, list_scores
from gossamer.runs.message_counts import total_bytes
from gossamer.runs.records import Record, Summary
from gossamer.runs.run import Run
from gossamer.runs.training import measure_disagreement


def measure_final_scores(run: Run) -> Scores:
    """All scores that fit the task, ranking scores included, unless the last evaluation has them. A call of all
    ranks."""
    last = run.history[-1]
    known = last["step"] == run.host.step and {*list_scores(find_task(run.host.full_pass.targets))} <= {*last["test"]}
    return select_scores(last) if known else run.scores(ranking=True)


def select_scores(record: Record) -> Scores:
    return {"train": record["train"], "validation": record["validation"], "test": record["test"]}


def summarise(run: Run) -> Summary:
    """The object of `--json`, without the references."""
    final, apart = measure_final_scores(run), measure_disagreement(run)  # on all ranks: these are sums over hosts
    if not run.engine.leads:
        return {"score": run.score.name, "distributed": final}
    messages = run.messages
    return {
        "score": run.score.name,
        "distributed": final,
        "disagreement": apart,
        "stationarity": run.history[-1]["stationarity"],
        "best_stationarity": run.history[-1]["best_stationarity"],
        "steps": run.host.step,
        "edges_kept": run.description["edges_kept"],
        "messages": {**messages, "total_bytes": total_bytes(messages, run.settings, run.host.step)},
        "seconds": run.seconds,
    }
