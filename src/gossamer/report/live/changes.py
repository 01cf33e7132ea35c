"""Changes of a view since a browser has last been sent one, so that ten thousand evaluations travel once.

A change is an object with the fields of the view that differ. In the place of a list that grows it has `{"keep": n,
"add": [...]}`: the last n items that the browser has stay, and `add` follows them. In the place of `agents` it has
`{"order": [...], "add": [...]}`: all ids, and the agents that differ.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from gossamer.report.live.view import RunView

GROWING_LISTS = ("evaluations", "memberships", "log")


def snapshot(view: RunView) -> RunView:
    """A copy whose lists no longer grow while it is sent and compared."""
    copy: dict[str, Any] = dict(view)
    for name in (*GROWING_LISTS, "agents"):
        copy[name] = list(copy[name])
    copy["references"] = {name: list(rows) for name, rows in view["references"].items()}
    return copy  # type: ignore[return-value]


def compare(old: RunView, new: RunView) -> dict[str, Any]:
    """The change from one snapshot to the next."""
    before: Mapping[str, Any] = old
    after: Mapping[str, Any] = new
    change = {
        name: value
        for name, value in after.items()
        if name not in (*GROWING_LISTS, "agents", "references") and value != before[name]
    }
    for name in GROWING_LISTS:
        if (grown := _compare_lists(before[name], after[name])) is not None:
            change[name] = grown
    references = {
        name: grown
        for name, rows in new["references"].items()
        if (grown := _compare_lists(old["references"].get(name, []), rows)) is not None
    }
    if references:
        change["references"] = references
    known = {one["agent"]: one for one in old["agents"]}
    differing = [one for one in new["agents"] if known.get(one["agent"]) != one]
    order = [one["agent"] for one in new["agents"]]
    if differing or order != [one["agent"] for one in old["agents"]]:
        change["agents"] = {"order": order, "add": differing}
    return change


def _compare_lists(old: Sequence[Any], new: Sequence[Any]) -> dict[str, Any] | None:
    """None if nothing differs. Lists grow at their ends, or lose their first items as they do."""
    count = len(old)
    if count <= len(new) and (not count or (new[count - 1] == old[-1] and new[0] == old[0])):
        return {"keep": count, "add": list(new[count:])} if len(new) > count else None
    for keep in range(min(count, len(new)) - 1, 0, -1):
        if old[count - keep] == new[0] and old[-1] == new[keep - 1]:
            return {"keep": keep, "add": list(new[keep:])}
    return {"keep": 0, "add": list(new)}
