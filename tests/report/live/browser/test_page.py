"""The live page in a real browser: what it shows, how it follows the run, and that it stays quick."""

from collections.abc import Iterator
from contextlib import ExitStack

import pytest
from report.conftest import OpenPage
from report.expectations import Page, expect
from report.live.page_client import EventReader, a_line, a_view, an_agent, an_evaluation

from gossamer.report.live.feed import Feed
from gossamer.report.live.server import serve_page
from gossamer.report.live.streams import MAX_STREAMS
from gossamer.report.style import agent_colour

LOOPBACK = ("127.0.0.1", 0)
NAMES = ("agents-card", "map", "score-chart", "loss-chart", "disagreement", "bytes", "log-card")


@pytest.fixture
def url(feed: Feed) -> Iterator[str]:
    with serve_page(feed, LOOPBACK, None) as url:
        yield url


def count_points(page: Page, chart: str = "score-chart") -> int:
    """Points of a chart's first curve, as drawn."""
    return int(page.locator(f"#{chart} .lines path").first.get_attribute("data-points") or 0)


def wait_for_points(page: Page, count: int, chart: str = "score-chart") -> None:
    expect(page.locator(f"#{chart} .lines path").first).to_have_attribute("data-points", str(count))


def test_the_map_and_the_table_show_every_agent_by_number_and_colour(feed: Feed, url: str, open_page: OpenPage) -> None:
    feed.publish(a_view(12))
    page = open_page(url)
    expect(page.locator(".mark")).to_have_count(12)
    expect(page.locator(".links line")).to_have_count(12)
    assert page.locator(".mark text").all_text_contents() == [str(agent) for agent in range(12)]
    assert page.locator("#agents tbody tr").count() == 12
    for agent in (0, 5, 11):
        disc = page.locator(f'.mark[data-agent="{agent}"] .disc')
        red, green, blue = (int(agent_colour(agent)[place : place + 2], 16) for place in (1, 3, 5))
        assert disc.evaluate("node => getComputedStyle(node).fill") == f"rgb({red}, {green}, {blue})"
    places = {(box["x"], box["y"]) for mark in page.locator(".mark .disc").all() if (box := mark.bounding_box())}
    assert len(places) == 12  # no two on one place


def test_links_are_as_wide_as_their_bytes_and_coloured_by_waiting_time(
    feed: Feed, url: str, open_page: OpenPage
) -> None:
    agents = [an_agent(0, (1, 2)), an_agent(1, (0,)), an_agent(2, (0,))]
    agents[0]["neighbours"][0] |= {"sent": {"forward": 1_000_000}, "waited": 8.0}
    feed.publish(a_view(agents=agents))
    page = open_page(url)
    wide, narrow = (page.locator(f'[data-link="0-{end}"]') for end in (1, 2))
    expect(wide).to_have_count(1)
    widths = [float(line.evaluate("node => parseFloat(node.style.strokeWidth)")) for line in (wide, narrow)]
    assert widths[0] > 3 * widths[1]
    assert wide.evaluate("node => node.style.stroke") == "var(--wait-4)"
    assert narrow.evaluate("node => node.style.stroke") == "var(--wait-0)"
    assert "8.0 s" in page.locator("#map .keys").inner_text()


def test_curves_grow_while_views_are_published(feed: Feed, url: str, open_page: OpenPage) -> None:
    view = a_view(evaluations=1)
    view["references"] = {"centralised": [an_evaluation(step) for step in (1, 50, 100)]}
    feed.publish(view)
    page = open_page(url)
    for count in (1, 2, 3, 10):
        while len(view["evaluations"]) < count:
            view["evaluations"].append(an_evaluation(10 * len(view["evaluations"])))
        feed.publish(view | {"step": 10 * count})
        wait_for_points(page, count)
        wait_for_points(page, count, "loss-chart")
    assert page.locator("#score-chart .legend button").all_inner_texts()[1].startswith("centralised")
    expect(page.locator("#step")).to_have_text("100 of 100")


def test_a_run_that_has_just_begun_is_not_squeezed(feed: Feed, url: str, open_page: OpenPage) -> None:
    references = {"centralised": [an_evaluation(step) for step in range(0, 3001, 100)]}
    feed.publish(a_view(evaluations=35, steps=3000, references=references))
    page = open_page(url)
    wait_for_points(page, 35)
    share = page.locator("#score-chart svg.curves").evaluate(
        "svg => svg.querySelector('.lines path').getBBox().width / svg.getBBox().width"
    )
    assert 0.3 < share < 0.9
    feed.publish(a_view(evaluations=3000, steps=3000, references=references))
    expect(page.locator("#score-chart .lines path").nth(1)).to_have_attribute("data-points", "31")


def test_an_evaluation_without_a_finite_loss_leaves_a_gap(feed: Feed, url: str, open_page: OpenPage) -> None:
    losses = [1.0, 0.9, float("nan"), 0.7, 0.6]
    view = a_view()
    view["evaluations"] = [an_evaluation(step, loss) for step, loss in enumerate(losses)]
    feed.publish(view)
    page = open_page(url)
    wait_for_points(page, 4, "loss-chart")
    assert (page.locator("#loss-chart .lines path").get_attribute("d") or "").count("M") == 2


def test_an_agent_that_goes_missing_turns_red_and_its_return_green(feed: Feed, url: str, open_page: OpenPage) -> None:
    feed.publish(a_view(4))
    page = open_page(url)
    mark, row = page.locator('.mark[data-agent="2"]'), page.locator('#agents tr[data-agent="2"]')
    expect(mark.locator(".disc")).to_be_visible()
    for state, missing in (("missing", True), ("training", False), ("missing", True)):
        agents = a_view(4)["agents"]
        agents[2]["state"] = state
        agents[1] |= {"waiting_for": [2] if missing else [], "waited": 4.2}
        feed.publish(a_view(4, agents=agents))
        expect(mark).to_have_attribute("data-state", state)
        expect(mark.locator(".diamond")).to_be_visible(visible=missing)  # another shape, not only another colour
        expect(mark.locator(".disc")).to_be_visible(visible=not missing)
        expect(row.locator("td").nth(1)).to_have_text(state)
        assert row.locator(".icon").count() == missing
        if missing:
            assert mark.locator(".diamond").evaluate("node => getComputedStyle(node).fill") == "rgb(193, 18, 31)"
            assert page.locator('#agents tr[data-agent="1"]').inner_text().count("2, 4.2 s") == 1
            expect(page.locator("#map .label")).to_contain_text("missing: 2")


def test_hostile_names_and_log_lines_are_shown_as_text(feed: Feed, url: str, open_page: OpenPage) -> None:
    hostile = "<img src=x onerror=\"document.title='broken'\"><script>document.title='broken'</script>"
    agents = [an_agent(0, (1,), state=hostile), an_agent(1, (0,))]
    agents[1]["refused"] = {hostile: 1}
    agents[1]["neighbours"][0]["sent"] = {hostile: 10, "forward": 5}
    log = [a_line(hostile), {**a_line("x"), "level": hostile}]
    feed.publish(a_view(title=hostile, score=hostile, agents=agents, log=log, references={hostile: [an_evaluation(1)]}))
    page = open_page(url)
    expect(page.locator("#title")).to_have_text(hostile)
    expect(page.locator("#log li span").first).to_have_text(hostile)
    expect(page.locator("#refusals td").first).to_have_text(hostile)
    page.locator('.mark[data-agent="0"]').hover()
    expect(page.locator("#map .readout")).to_contain_text(hostile)
    assert page.locator("img").count() == 0
    assert page.locator("script").count() == 5
    assert "broken" not in page.title().removesuffix(hostile)


def test_the_policy_keeps_scripts_and_addresses_from_elsewhere_out(feed: Feed, url: str, open_page: OpenPage) -> None:
    feed.publish(a_view())
    page = open_page(url, errors_allowed=("Content Security Policy",))
    expect(page.locator(".mark")).to_have_count(3)
    page.evaluate("document.body.append(Object.assign(document.createElement('script'), {text: 'window.ran = true'}))")
    assert page.evaluate("window.ran") is None
    assert page.evaluate("fetch('http://127.0.0.1:9/').then(() => 'sent', () => 'refused')") == "refused"


def test_the_token_is_asked_for(feed: Feed, open_page: OpenPage) -> None:
    feed.publish(a_view())
    with serve_page(feed, LOOPBACK, "open sesame") as url:
        page = open_page(url, errors_allowed=("401",))
        expect(page.locator("#title")).to_have_count(0)
        page.get_by_label("Token").fill("guess")
        page.keyboard.press("Enter")
        expect(page.get_by_role("alert")).to_have_text("That is not the token.")
        page.get_by_label("Token").fill("open sesame")
        page.get_by_role("button").click()
        expect(page.locator(".mark")).to_have_count(3)
        assert page.url == url
        page.reload()
        expect(page.locator(".mark")).to_have_count(3)
        other = open_page(f"{url}?token=open+sesame")
        expect(other.locator(".mark")).to_have_count(3)
        assert other.url == url  # the token is no longer in the address
        assert other.evaluate("document.cookie") == ""  # nor for scripts to read


def test_a_page_whose_cookie_no_longer_holds_asks_for_the_token_again(feed: Feed, open_page: OpenPage) -> None:
    feed.publish(a_view())
    with serve_page(feed, LOOPBACK, "open sesame") as url:
        page = open_page(f"{url}?token=open+sesame", errors_allowed=("401", "ERR_"))
        expect(page.locator(".mark")).to_have_count(3)
    with serve_page(feed, ("127.0.0.1", int(url.rstrip("/").rpartition(":")[2])), "open sesame"):
        expect(page.get_by_label("Token")).to_be_visible()


def test_one_browser_too_many_is_told_so_and_tries_again(feed: Feed, url: str, open_page: OpenPage) -> None:
    feed.publish(a_view())
    with ExitStack() as others:
        for _ in range(MAX_STREAMS):
            others.enter_context(EventReader(url)).read()
        page = open_page(url, errors_allowed=("503",))
        expect(page.locator("#banner")).to_have_text("This page is watched by too many browsers, retrying.")
    expect(page.locator(".mark")).to_have_count(3)
    expect(page.locator("#banner")).to_be_hidden()


def test_the_end_of_a_run_and_a_lost_connection_are_said(feed: Feed, open_page: OpenPage) -> None:
    feed.publish(a_view())
    with serve_page(feed, LOOPBACK, None) as url:
        page = open_page(url, errors_allowed=("ERR_CONNECTION", "ERR_INCOMPLETE", "ERR_EMPTY"))
        expect(page.locator(".mark")).to_have_count(3)
        expect(page.locator("#banner")).to_be_hidden()
    expect(page.locator("#banner")).to_have_text("Connection lost, retrying.")
    feed.publish(a_view(evaluations=4))
    port = int(url.rstrip("/").rpartition(":")[2])
    with serve_page(feed, ("127.0.0.1", port), None):
        expect(page.locator("#banner")).to_be_hidden()
        wait_for_points(page, 4)
        feed.publish(a_view(evaluations=4, state="finished"))
        expect(page.locator("#banner")).to_have_text("The run has ended.")
    expect(page.locator("#state")).to_have_text("finished")
    expect(page.locator("#banner")).to_have_text("The run has ended.")


def test_an_agents_own_page_shows_it_and_its_neighbours(feed: Feed, url: str, open_page: OpenPage) -> None:
    others = [an_agent(agent) | {"step": None, "loss": None, "vertices": None, "labels": None} for agent in (2, 7)]
    feed.publish(
        a_view(own=4, agents=[an_agent(4, (2, 7)), *others], positions={"4": (0, 0), "2": (1, 0), "7": (-1, 0)})
    )
    page = open_page(url)
    expect(page.locator(".mark")).to_have_count(3)
    expect(page.locator(".mark.own")).to_have_attribute("data-agent", "4")
    expect(page.locator(".links line")).to_have_count(2)
    expect(page.locator("#map h3")).to_have_text("This agent and its neighbours")
    expect(page.locator('#agents tr[data-agent="4"] td').first).to_have_text("4this")
    assert page.locator("#agent-bars .name").all_inner_texts() == ["to 2", "to 7"]


def test_a_table_of_the_widest_cells_is_not_cut_off(feed: Feed, url: str, open_page: OpenPage) -> None:
    wide = {"step": 100_000, "loss": 0.0123, "vertices": 12_000, "labels": 1_200, "checkpoint_age": 119.0}
    others = [an_agent(agent) | {"step": None, "loss": None, "vertices": None, "labels": None} for agent in (2, 7)]
    feed.publish(a_view(own=4, agents=[an_agent(4, (2, 7)) | wide, *others]))
    page = open_page(url)
    region = page.locator("#agents-card .scroll")
    expect(page.locator("#agents .badge")).to_have_text("this")
    assert region.evaluate("node => node.scrollWidth <= node.clientWidth")
    page.set_viewport_size({"width": 375, "height": 800})
    assert region.evaluate("node => node.scrollWidth > node.clientWidth")
    assert "linear-gradient" in region.evaluate("node => getComputedStyle(node).backgroundImage")  # that says so


def test_what_a_simulation_does_not_know_is_not_shown(feed: Feed, url: str, open_page: OpenPage) -> None:
    view = a_view(3)
    for one in view["agents"]:
        one["loss"] = None
        for link in one["neighbours"]:
            link["waited"] = None
    feed.publish(view)
    page = open_page(url)
    expect(page.locator(".links line")).to_have_count(3)
    expect(page.get_by_text("waited 0")).to_be_hidden()
    expect(page.locator("#agents th", has_text="loss")).to_be_hidden()
    feed.publish(a_view(3))
    expect(page.get_by_text("waited 0")).to_be_visible()
    expect(page.locator("#agents th", has_text="loss")).to_be_visible()


def test_a_disagreement_of_zero_is_drawn_although_its_scale_is_logarithmic(
    feed: Feed, url: str, open_page: OpenPage
) -> None:
    view = a_view(evaluations=3)
    for one in view["evaluations"]:
        one["disagreement"] = 0.0
    feed.publish(view)
    page = open_page(url)
    wait_for_points(page, 3, "disagreement")
    chart = page.locator("#disagreement")
    expect(chart.get_by_text("no evaluation yet")).to_be_hidden()
    expect(chart.locator(".scale")).to_be_hidden()
    view["evaluations"].append(an_evaluation(4))
    feed.publish(view | {"step": 4})
    wait_for_points(page, 1, "disagreement")  # zeros are gaps again
    expect(chart.locator(".scale")).to_have_text("log scale")


def test_numbers_are_written_alike(feed: Feed, url: str, open_page: OpenPage) -> None:
    view = a_view(evaluations=2, steps=6000, step=6000)
    view["certificate"] = {
        "holds": {"A1": True}, "spectral_radius": 5.55e-17, "needed_links": 3, "added_links": 0, "edges_kept": 1.0,
        "edges_relayed": 0.25,
    }  # fmt: skip
    feed.publish(view)
    page = open_page(url)
    expect(page.locator("#step")).to_have_text("6\u202f000 of 6\u202f000")
    expect(page.locator("#score-chart .grid text", has_text="6\u202f000")).to_have_count(1)
    expect(page.locator("#certificate dd").first).to_have_text("0")
    expect(page.locator("#certificate dd").last).to_have_text(page.evaluate("gossamer.percent(0.25)"))
    texts = [page.evaluate(f"gossamer.number({value})") for value in (-2.5e-7, -1234, 12.345)]
    assert texts == ["\u22122.50e\u22127", "\u22121234", "12.35"]
    texts = [page.evaluate(f"gossamer.group('{text}')") for text in ("-1234567", "999", "0.12345", "1e5")]
    assert texts == ["\u22121\u202f234\u202f567", "999", "0.12345", "1e5"]


def test_what_is_done_after_training_and_the_end_are_said(feed: Feed, url: str, open_page: OpenPage) -> None:
    feed.publish(a_view(step=100, activity="training the centralised reference"))
    page = open_page(url)
    expect(page.locator("#state")).to_have_text("training the centralised reference")
    expect(page).to_have_title("100/100 \u00b7 digits, 3 agents")
    feed.publish(a_view(step=100, state="finished"))
    expect(page.locator("#state")).to_have_text("finished")
    expect(page).to_have_title("finished \u00b7 digits, 3 agents")


def test_a_page_of_a_run_that_has_ended_stays(feed: Feed, open_page: OpenPage) -> None:
    feed.publish(a_view(state="finished", title="the first"))
    requests: list[str] = []
    with serve_page(feed, LOOPBACK, None) as url:
        page = open_page(url)
        page.on("request", lambda request: requests.append(request.url))
        page.evaluate(
            """() => {
                const close = EventSource.prototype.close;
                EventSource.prototype.close = function () { close.call(this); window.ended = true; };
            }"""
        )
        expect(page.locator("#title")).to_have_text("the first")
    page.wait_for_function("() => window.ended")
    feed.publish(a_view(title="the second"))
    with serve_page(feed, ("127.0.0.1", int(url.rstrip("/").rpartition(":")[2])), None) as again:
        other = open_page(again)
        expect(other.locator("#title")).to_have_text("the second")
        expect(page.locator("#title")).to_have_text("the first")
        assert not requests


def test_two_hundred_agents_and_ten_thousand_evaluations_stay_light(feed: Feed, url: str, open_page: OpenPage) -> None:
    view = a_view(200, evaluations=10_000, log=[a_line(str(place)) for place in range(200)])
    for place, one in enumerate(view["evaluations"]):
        one["loss"] = one["validation"] = 0.5 + 0.4 * ((place * 7919) % 101) / 101
    feed.publish(view)
    page = open_page(url)
    expect(page.locator(".mark")).to_have_count(200)
    assert page.locator("#agents tbody tr").count() == 200
    width = page.locator("#loss-chart svg.curves").bounding_box()
    assert width is not None
    assert 200 < count_points(page, "loss-chart") <= 4 * width["width"]
    assert page.evaluate("document.querySelectorAll('*').length") < 8_000
    page.evaluate(
        """() => {
            window.changes = 0;
            new MutationObserver((records) => { window.changes += records.length; })
                .observe(document.querySelector("#agents tbody"), {subtree: true, childList: true});
        }"""
    )
    agents = list(view["agents"])
    agents[77] = {**agents[77], "loss": 0.123}
    view["evaluations"].append(an_evaluation(10_001, 0.25))
    feed.publish(view | {"agents": agents, "step": 10_001})
    expect(page.locator('#agents tr[data-agent="77"] td').nth(3)).to_have_text("0.123")
    expect(page.locator("#loss-chart .legend b").first).to_have_text("0.250")
    assert page.evaluate("window.changes") == 1  # the one cell that differs
