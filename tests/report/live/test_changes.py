"""A change, applied as browsers apply it, gives the next view, and is no larger than what is new."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from report.live.page_client import a_line, a_view, an_agent, an_evaluation

from gossamer.report.live.changes import GROWING_LISTS, compare, snapshot
from gossamer.report.live.view import RunView

WORDS = st.sampled_from(["a", "b", "c"])


@st.composite
def views(draw: st.DrawFn) -> RunView:
    """Evaluations grow or begin again with other numbers; the log is a window of all lines."""
    loss, count = draw(st.sampled_from([0.1, 0.2])), draw(st.integers(0, 5))
    evaluations = [an_evaluation(step, loss) for step in range(count)]
    first = draw(st.integers(0, 5))
    agents = draw(st.lists(st.integers(0, 4), max_size=4, unique=True))
    names = draw(st.lists(WORDS, unique=True, max_size=2))
    view = a_view(
        title=draw(WORDS),
        step=draw(st.integers(0, 2)),
        agents=[an_agent(agent, state=draw(WORDS)) for agent in agents],
        references=dict.fromkeys(names, evaluations[:2]),
        log=[a_line(str(number)) for number in range(first, first + draw(st.integers(0, 5)))],
    )
    view["evaluations"] = evaluations
    return view


def grow(rows: list[Any], change: dict[str, Any]) -> list[Any]:
    kept = rows[-change["keep"] :] if change["keep"] else []
    return [*kept, *change["add"]]


def apply(old: RunView, change: dict[str, Any]) -> dict[str, Any]:
    new: dict[str, Any] = {**old, "references": dict(old["references"])}
    for name, value in change.items():
        if name in GROWING_LISTS:
            new[name] = grow(new[name], value)
        elif name == "references":
            new[name] |= {key: grow(new[name].get(key, []), rows) for key, rows in value.items()}
        elif name == "agents":
            known = {one["agent"]: one for one in [*old["agents"], *value["add"]]}
            new[name] = [known[agent] for agent in value["order"]]
        else:
            new[name] = value
    return new


@given(views(), views())
def test_a_change_leads_from_one_view_to_the_next(old: RunView, new: RunView) -> None:
    found = apply(old, compare(old, new))
    references = {**old["references"], **new["references"]}  # they are never taken away
    assert {name: rows for name, rows in found.pop("references").items() if rows} == {
        name: rows for name, rows in references.items() if rows
    }
    assert found == {name: value for name, value in new.items() if name != "references"}


@given(views())
def test_equal_views_have_no_change(view: RunView) -> None:
    assert compare(snapshot(view), snapshot(view)) == {}


def test_a_log_that_forgets_its_first_lines_sends_the_new_ones_only() -> None:
    lines = [a_line(str(number)) for number in range(300)]
    change = compare(a_view(log=lines[:200]), a_view(log=lines[3:203]))
    assert change == {"log": {"keep": 197, "add": lines[200:203]}}


def test_a_snapshot_does_not_grow_with_its_view() -> None:
    view = a_view(references={"centralised": [an_evaluation(1)]})
    before = snapshot(view)
    view["evaluations"].append(an_evaluation(3))
    view["references"]["centralised"].append(an_evaluation(2))
    assert [len(before["evaluations"]), len(before["references"]["centralised"])] == [2, 1]
