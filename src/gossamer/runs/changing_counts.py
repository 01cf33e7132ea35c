"""Message counts of a step whose links change: the mean over a period, or over the first steps of random ones.

Rows count on every link that they cross, relays' among them.
"""

from collections import Counter
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gossamer.agents.links import Link
from gossamer.runs.deployment import Deployment
from gossamer.runs.records import MessageCounts, RowCount
from gossamer.topology import Deliveries, link_load, mixed_at, plan_routes

COUNTED_PAIRS = 10_000  # pairs of agents in all steps that are counted
LEAST_STEPS = 8


def count_changing(
    counts: MessageCounts, deployment: Deployment, rows: Counter[Link], moved: Counter[Link], steps: int, every: int
) -> MessageCounts:
    """Counts of a step in the mean, from those with all links up and the `rows` and bytes `moved` between each two
    agents in a forward pass. Agents mix `every` so many of the run's `steps`."""
    deliveries = deployment.deliveries
    if deliveries is None:
        raise AssertionError("these links stay")
    m = deployment.num_agents
    counted = _choose_steps(deliveries, m, steps)
    sends = np.mean([_find_senders(deliveries, step, every) for step in counted], axis=0)
    forward = {"rows": _tabulate(rows, m), "bytes": _tabulate(moved, m)}
    whole = float(forward["bytes"].sum())
    if deliveries.rows_change:
        loads = [_load(deliveries, deployment.shared_edges, forward, step) for step in counted]
        forward = {unit: np.mean([load[unit] for load in loads], axis=0) for unit in forward}
    links = []
    for one in counts["links"]:
        k, z = one["sender"], one["receiver"]
        changed = dict(one)
        for unit, load in forward.items():
            changed[f"forward_{unit}"] = round(load[k, z])
            changed[f"backward_{unit}"] = round(load[z, k])
            changed[f"consensus_{unit}"] = round(one[f"consensus_{unit}"] * sends[k, z])
        links.append(changed)
    per_link = {unit: max((one[f"consensus_{unit}"] for one in counts["links"]), default=0) for unit in forward}
    passes: RowCount = {"rows": round(forward["rows"].sum()), "bytes": round(forward["bytes"].sum())}
    consensus: RowCount = {
        "rows": round(per_link["rows"] * sends.sum()),
        "bytes": round(per_link["bytes"] * sends.sum()),
    }
    share = passes["bytes"] / whole if whole else 1.0
    mixed = consensus["rows"] / counts["consensus"]["rows"] if counts["consensus"]["rows"] else 1.0
    plain = counts["plain"]
    return {
        **counts,
        "forward": passes,
        "backward": passes,
        "consensus": consensus,
        "plain": {
            "forward": {"bytes": round(plain["forward"]["bytes"] * share)},
            "backward": {"bytes": round(plain["backward"]["bytes"] * share)},
            "consensus": {"bytes": round(plain["consensus"]["bytes"] * mixed)},
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


def _load(
    deliveries: Deliveries, shared: NDArray[np.int64], forward: dict[str, NDArray[np.float64]], step: int
) -> dict[str, NDArray[np.float64]]:
    """Rows and bytes on each direction of each link in a step."""
    arriving, routes = deliveries.arriving(step), deliveries.routes
    if deliveries.missing == "relay":
        routes = plan_routes(deliveries.sequence.up(step), np.where(arriving, shared, 0))
    return {unit: link_load(routes, np.where(arriving, one, 0.0)) for unit, one in forward.items()}


def _tabulate(found: Counter[Link], m: int) -> Any:
    """Numbers by sender and receiver [m, m]."""
    table = np.zeros((m, m))
    for link, number in found.items():
        table[link] = number
    return table
