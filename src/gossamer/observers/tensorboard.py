"""Losses and evaluations as scalars for TensorBoard (an extra)."""

from pathlib import Path

from gossamer.errors import GossamerError
from gossamer.runs.observers import Observer
from gossamer.runs.records import Record, flatten_record


def make_tensorboard_observer(folder: str | Path) -> Observer:
    """An observer that writes event files to a folder: `step/loss` of each step, and each number of an evaluation."""
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError:
        raise GossamerError(
            "TensorBoard's event files need the package tensorboard; install it with pip install "
            "'gossamer[tensorboard]'"
        ) from None
    writer = SummaryWriter(str(folder))

    def write(record: Record) -> None:
        for name, value in flatten_record(record).items():
            writer.add_scalar(name, value, record["step"])
        writer.flush()

    return Observer(
        on_step=lambda step, loss: writer.add_scalar("step/loss", loss, step),
        on_record=write,
        on_end=lambda run: writer.close(),
    )
