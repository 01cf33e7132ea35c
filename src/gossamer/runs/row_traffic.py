"""Traffic of a forward pass: rows and bytes between agents or hosts, and over the links that carry them."""

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from itertools import pairwise

from gossamer.agents.links import Link
from gossamer.agents.relays import BOX_BYTES
from gossamer.topology import Routes


@dataclass(frozen=True)
class RowTraffic:
    """Rows and bytes by sender and receiver."""

    rows: Counter[Link] = field(default_factory=Counter)
    moved: Counter[Link] = field(default_factory=Counter)  # bytes
    plain: Counter[Link] = field(default_factory=Counter)  # bytes in float32, without a row codec
    exchanges: Counter[Link] = field(default_factory=Counter)  # messages that the rows are sent in

    def add(self, counts: Mapping[Link, int], row_bytes: int, plain_bytes: int, messages: int) -> None:
        """Add the rows of a propagation, which are sent in so many messages."""
        for link, count in counts.items():
            self.rows[link] += count
            self.moved[link] += count * row_bytes
            self.plain[link] += count * plain_bytes
            self.exchanges[link] += messages

    def over_links(self, routes: Routes) -> "RowTraffic":
        """The traffic of each link: relayed rows, in a box for each message, count on every link of their route."""
        found = RowTraffic()
        for ends, count in self.rows.items():
            path = routes.path(*ends)
            boxes = self.exchanges[ends] * BOX_BYTES if len(path) > 2 else 0
            for link in map(Link._make, pairwise(path)):
                found.rows[link] += count
                found.moved[link] += self.moved[ends] + boxes
                found.plain[link] += self.plain[ends] + boxes
                found.exchanges[link] += self.exchanges[ends]
        return found

    def select(self, chosen: Callable[[Link], bool]) -> "RowTraffic":
        """The part between some agents."""
        links = [link for link in self.rows if chosen(link)]
        parts = (self.rows, self.moved, self.plain, self.exchanges)
        return RowTraffic(*(Counter({link: part[link] for link in links}) for part in parts))

    def select_relayed(self, routes: Routes) -> "RowTraffic":
        """The part between agents without a link."""
        return self.select(lambda link: len(routes.path(*link)) > 2)
