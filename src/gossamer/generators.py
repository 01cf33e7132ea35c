"""Drivers of generators: the one place where the end of a generator is noticed.

An algorithm that needs answers from elsewhere (a propagation, messages of neighbours, rows of a shift operator) is
written as a generator that yields questions and is sent the answers. What runs it decides how answers are found.
"""

from collections.abc import Callable, Generator
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

_Question = TypeVar("_Question")
_Answer = TypeVar("_Answer")
_Result = TypeVar("_Result")
_Outer = TypeVar("_Outer")
_Reply = TypeVar("_Reply")


@dataclass(frozen=True)
class Returned(Generic[_Result]):
    """Return value of a generator that has ended."""

    value: _Result


def advance(generator: Generator[_Question, _Answer, _Result], answer: Any = None) -> _Question | Returned[_Result]:
    """Send an answer (None starts a generator) and return the next question, or what the generator returned."""
    try:
        return generator.send(answer)
    except StopIteration as done:
        return Returned(done.value)


def drive(generator: Generator[_Question, _Answer, _Result], answer: Callable[[_Question], _Answer]) -> _Result:
    """Run a generator to its end, with a function that answers its questions."""
    reached = advance(generator)
    while not isinstance(reached, Returned):
        reached = advance(generator, answer(reached))
    return reached.value


def delegate(
    generator: Generator[_Question, _Answer, _Result], answer: Callable[[_Question], Generator[_Outer, _Reply, _Answer]]
) -> Generator[_Outer, _Reply, _Result]:
    """Run a generator inside another one, which answers its questions by questions of its own."""
    reached = advance(generator)
    while not isinstance(reached, Returned):
        reached = advance(generator, (yield from answer(reached)))
    return reached.value
