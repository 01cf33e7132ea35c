"""A torchrun job around a command: a mistake is reported once and ends all ranks."""

from collections.abc import Iterator
from contextlib import contextmanager

import typer

from gossamer.commands.common import MISTAKE, print_error
from gossamer.engines.cluster.distributed import reach_barrier
from gossamer.engines.cluster.engine import LostRank
from gossamer.engines.cluster.heartbeats import GIVE_UP
from gossamer.engines.cluster.job import join_job
from gossamer.errors import GossamerError


@contextmanager
def join_ranks(give_up: float = GIVE_UP) -> Iterator[int]:
    """Join the job of this process; gives its rank."""
    with join_job(give_up) as rank:
        try:
            yield rank
        except LostRank:
            raise
        except GossamerError as error:
            if rank == 0:
                print_error(error)
            if reach_barrier() or rank == 0:  # else the first rank does not know the mistake
                raise typer.Exit(MISTAKE) from None
            raise
