"""A run followed by MLflow, or by any tracker with a call for each evaluation; without MLflow its lines are printed."""

import gossamer
from gossamer.runs.records import Record, flatten_record

try:
    from mlflow import log_metrics
except ImportError:  # a stand-in

    def log_metrics(metrics: dict[str, float], step: int) -> None:
        print(step, {name: round(value, 3) for name, value in metrics.items() if name.startswith("validation")})


def track(record: Record) -> None:
    log_metrics(flatten_record(record), step=record["step"])


graph = gossamer.load("digits")
result = gossamer.train(graph, agents=4, steps=40, baselines=False, observers=[gossamer.Observer(on_record=track)])
print(result.summary["distributed"]["test"])
# With Weights & Biases: wandb.init(project="gossamer") first, and in track
# wandb.log(flatten_record(record), step=record["step"])
