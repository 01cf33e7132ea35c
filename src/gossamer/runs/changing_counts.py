"""Message counts of a step whose links change: the mean over a period, or over the first steps of random ones.

Rows count on every link that they cross, relays' among them.
"""

from collections import Counter

import numpy as np
from numpy.typing import NDArray

from gossamer.agents.links import Link
from gossamer.runs.deployment import Deployment
from gossamer.runs.records import ByteCount, MessageCounts, RowCount
from gossamer.runs.row_traffic import RowTraffic
from gossamer.topology import Deliveries, Routes, mixed_at, plan_routes

COUNTED_PAIRS = 10_000  # pairs of agents in all steps that are counted
LEAST_STEPS = 8


def count_changing(
    counts: MessageCounts, deployment: Deployment, traffic: RowTraffic, steps: int, every: int
) -> MessageCounts:
    """Counts of a step in the mean, from those with all links up and the `traffic` between each two agents in a forward
    pass. Agents mix `every` so many of the run's `steps`."""
    deliveries = deployment.deliveries
    if deliveries is None:
        raise AssertionError("these links stay")
    counted = _choose_steps(deliveries, deployment.num_agents, steps)
    sends = np.mean([_find_senders(deliveries, step, every) for step in counted], axis=0)
    rows, moved, found = Counter[Link](), Counter[Link](), Counter[str]()
    for step in counted:
        arrived, routes = _take_step(deliveries, deployment, traffic, step)
        over, relayed = arrived.over_links(routes), arrived.select_relayed(routes)
        rows.update(over.rows)
        moved.update(over.moved)
        hops = relayed.over_links(routes)
        found.update(plain=over.plain.total(), relayed=relayed.rows.total())
        found.update(row_hops=hops.rows.total(), bytes=hops.moved.total())

    def mean(total: int) -> int:
        return round(total / len(counted))

    links = []
    for one in counts["links"]:
        here, back = Link(one["sender"], one["receiver"]), Link(one["receiver"], one["sender"])
        changed = dict(one)
        for unit, load in (("rows", rows), ("bytes", moved)):
            changed[f"forward_{unit}"] = mean(load[here])
            changed[f"backward_{unit}"] = mean(load[back])
            changed[f"consensus_{unit}"] = round(one[f"consensus_{unit}"] * sends[here])
        links.append(changed)
    units = ("rows", "bytes")
    per_link = {unit: max((one[f"consensus_{unit}"] for one in counts["links"]), default=0) for unit in units}
    passes: RowCount = {"rows": mean(rows.total()), "bytes": mean(moved.total())}
    consensus: RowCount = {
        "rows": round(per_link["rows"] * sends.sum()),
        "bytes": round(per_link["bytes"] * sends.sum()),
    }
    mixed = consensus["rows"] / counts["consensus"]["rows"] if counts["consensus"]["rows"] else 1.0
    plain: ByteCount = {"bytes": mean(found["plain"])}
    return {
        **counts,
        "forward": passes,
        "backward": passes,
        "consensus": consensus,
        "relayed": {
            "rows": mean(2 * found["relayed"]),
            "row_hops": mean(2 * found["row_hops"]),
            "bytes": mean(2 * found["bytes"]),
        },
        "plain": {
            "forward": plain,
            "backward": plain,
            "consensus": {"bytes": round(counts["plain"]["consensus"]["bytes"] * mixed)},
        },
        "links": links,
    }


def _choose_steps(deliveries: Deliveries, m: int, steps: int) -> range:
    """A period, or the first steps of a run, fewer of many agents."""
    most = max(LEAST_STEPS, COUNTED_PAIRS // m**2)
    return range(min(deliveries.sequence.period or max(1, steps), most))


def _find_senders(deliveries: Deliveries, step: int, every: int) -> NDArray[np.bool_]:
    """Agents k that send their weights to z in a step in which they mix [m, m]."""
    number = mixed_at(deliveries.sequence, (step + 1) * every - 1 if every else step, max(1, every))
    return deliveries.sequence.up(number).T


def _take_step(
    deliveries: Deliveries, deployment: Deployment, traffic: RowTraffic, step: int
) -> tuple[RowTraffic, Routes]:
    """The traffic whose rows arrive in a step, and its routes."""
    if not deliveries.rows_change:
        return traffic, deliveries.routes
    arriving, routes = deliveries.arriving(step), deliveries.routes
    if deliveries.missing == "relay":
        routes = plan_routes(deliveries.sequence.up(step), np.where(arriving, deployment.shared_edges, 0))
    return traffic.select(lambda link: bool(arriving[link])), routes
