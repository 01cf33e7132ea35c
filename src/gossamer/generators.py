"""Drivers of generators: the one place where the end of a generator is noticed.

An algorithm that needs answers from elsewhere (a propagation, messages of neighbours, rows of a shift operator) is
written as a generator that yields questions and is sent the answers. What runs it decides how answers are found.
"""

from collections.abc import Callable, Generator
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

Question = TypeVar("Question")
Answer = TypeVar("Answer")
Result = TypeVar("Result")
Outer = TypeVar("Outer")
Reply = TypeVar("Reply")


@dataclass(frozen=True)
class Returned(Generic[Result]):
    """Return value of a generator that has ended."""

    value: Result


def advance(generator: Generator[Question, Answer, Result], answer: Any = None) -> Question | Returned[Result]:
    """Send an answer (None starts a generator) and return the next question, or what the generator returned."""
    try:
        return generator.send(answer)
    except StopIteration as done:
        return Returned(done.value)


def drive(generator: Generator[Question, Answer, Result], answer: Callable[[Question], Answer]) -> Result:
    """Run a generator to its end, with a function that answers its questions."""
    reached = advance(generator)
    while not isinstance(reached, Returned):
        reached = advance(generator, answer(reached))
    return reached.value


def delegate(
    generator: Generator[Question, Answer, Result], answer: Callable[[Question], Generator[Outer, Reply, Answer]]
) -> Generator[Outer, Reply, Result]:
    """Run a generator inside another one, which answers its questions by questions of its own."""
    reached = advance(generator)
    while not isinstance(reached, Returned):
        reached = advance(generator, (yield from answer(reached)))
    return reached.value
