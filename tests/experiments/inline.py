"""Trials in this process, one after the other: what a figure shows does not hang on the workers that train its runs."""

from collections.abc import Callable
from concurrent.futures import Executor, Future
from typing import Any

import pytest

from gossamer.experiments import trials


class InlineExecutor(Executor):
    """An executor that calls a function when it is submitted; the initializer of worker processes is not called."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        pass

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        future: Future[Any] = Future()
        try:
            future.set_result(fn(*args, **kwargs))
        except Exception as error:
            future.set_exception(error)
        return future


def train_inline(monkeypatch: pytest.MonkeyPatch) -> None:
    """Replace the worker processes of `run_trials`."""
    monkeypatch.setattr(trials, "ProcessPoolExecutor", InlineExecutor)
