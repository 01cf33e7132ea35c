"""The data graph of a run: loaded as its settings say, or given from memory."""

from typing import Any

from gossamer.data import DataGraph, load
from gossamer.data.fetch import DownloadProgress
from gossamer.runs.settings import Settings


def load_dataset(settings: Settings, progress: DownloadProgress | None = None) -> DataGraph:
    """Load the data set that settings name."""
    return load(
        settings.dataset,
        settings.seed,
        progress,
        symmetrise=settings.symmetrise,
        task=settings.task,
        split=settings.split,
    )


def take_graph(data: Any, settings: Settings) -> DataGraph:
    """Take a graph that a caller gives from memory, a DataGraph or one of another library. A DataGraph of the data set
    that settings name has their split already."""
    loaded = isinstance(data, DataGraph) and "dataset" in settings.model_fields_set
    split = None if loaded else settings.split
    return load(data, symmetrise=settings.symmetrise, task=settings.task, split=split)
