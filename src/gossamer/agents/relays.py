"""Relays: routes of boundary rows between agents without a link, over the agents between them.

The paper asks for such "multi-hop exchanges" in its conclusions. An agent knows the routes that begin, end or pass at
it, and how many rows each of them carries in every exchange of a forward pass; a backward pass takes them reversed. The
arithmetic is that of a link: peers/protocol/relaying.py moves the rows.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from gossamer.agents.links import Link
from gossamer.array_types import Ints
from gossamer.topology import Routes

BOX_BYTES = 16  # that sealing adds to a relayed message (peers/protocol/boxes.py)
Route = tuple[int, ...]  # agents from the sender to the receiver, both included
RowCounts = Sequence[Mapping[Link, int]]  # rows between each two agents, by exchange of a forward pass
ForwardedRows = (
    tuple[tuple[Link, int], ...] | None
)  # rows between others in an exchange; None: all endpoints have links


@dataclass(frozen=True)
class AgentRoutes:
    """The routes that begin, end or pass at an agent, in both directions, and their rows."""

    agent: int
    longest: int  # links of the longest route of any two agents: rounds of every exchange of rows
    paths: tuple[Route, ...]
    train: Ints  # rows of a training pass [paths, exchanges]
    full: Ints  # rows of a pass over all vertices [paths, exchanges]

    @property
    def by_link(self) -> dict[Link, Route]:
        """The paths by their ends."""
        return {Link(path[0], path[-1]): path for path in self.paths}

    @property
    def far(self) -> tuple[int, ...]:
        """The agents at the other ends of this agent's own routes, ascending."""
        return tuple(sorted(path[-1] for path in self.paths if path[0] == self.agent))

    def list_forwarded(self, training: bool) -> list[ForwardedRows]:
        """The rows that this agent passes on, by exchange of a forward pass."""
        counts = self.train if training else self.full
        passing = [n for n, path in enumerate(self.paths) if self.agent in path[1:-1]]
        return [
            tuple((Link(self.paths[n][0], self.paths[n][-1]), int(column[n])) for n in passing if column[n])
            for column in counts.T
        ]


def join_routes(agents: Iterable[AgentRoutes | None]) -> Routes:
    """The routes that some agents know."""
    paths = {path for one in agents if one is not None for path in one.paths if path[0] < path[-1]}
    return Routes({(path[0], path[-1]): path for path in sorted(paths)})


def select_routes(agent: int, paths: Iterable[Route], longest: int, train: RowCounts, full: RowCounts) -> AgentRoutes:
    """The routes of one agent among the `paths` of all pairs, each given in one direction."""
    both = sorted(one for path in paths if agent in path for one in (path, path[::-1]))
    ends = [Link(path[0], path[-1]) for path in both]

    def tabulate(counts: RowCounts) -> Ints:
        rows = [[exchange.get(link, 0) for exchange in counts] for link in ends]
        return np.array(rows, dtype=np.int64).reshape(len(ends), len(counts))

    return AgentRoutes(agent, longest, tuple(both), tabulate(train), tabulate(full))
