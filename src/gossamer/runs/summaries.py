"""Summaries: the scores and costs of a run as one object, that of `--json`."""

from collections.abc import Sequence

from gossamer.agents.scores import Scores, list_scores
from gossamer.runs.message_counts import total_bytes
from gossamer.runs.records import Record, Summary
from gossamer.runs.run import Run
from gossamer.runs.settings import Settings
from gossamer.runs.training import count_rows_of, measure_disagreement

COUNTED_STEPS = 1000  # at the end, whose boundary rows are counted


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


def measure_final_scores(run: Run) -> Scores:
    """All scores of the kept weights that fit the task, ranking scores included, unless their evaluation has them. A
    call of all ranks."""
    kept = find_kept_record(run.history)
    wanted = {*list_scores(run.host.task)}
    known = kept["step"] == run.kept.step and wanted <= {*kept["test"]}
    return select_scores(kept) if known else run.final_scores()


def summarise(run: Run) -> Summary:
    """The object of `--json`, without the references."""
    final, apart = measure_final_scores(run), measure_disagreement(run, run.kept)  # on all ranks: sums over hosts
    if not run.engine.leads:
        return {"score": run.score.name, "distributed": final}
    messages, kept = run.messages, find_kept_record(run.history)
    if run.since == 0:  # else earlier steps have sent other messages, which nobody has counted
        messages = {**messages, "total_bytes": total_bytes(messages, run.settings, run.host.step)}
    summary: Summary = {
        "score": run.score.name,
        "distributed": final,
        "disagreement": apart,
        "stationarity": kept["stationarity"],
        "best_stationarity": run.history[-1]["best_stationarity"],
        "steps": run.host.step,
        "best_step": run.kept.step,
        "edges_kept": run.description["edges_kept"],
        "edges_relayed": run.description["edges_relayed"],
        "messages": messages,
        "seconds": run.seconds,
    }
    rows = count_rows_of(run.host, max(0, run.host.step - COUNTED_STEPS))
    return summary if rows is None else {**summary, "rows": rows}
