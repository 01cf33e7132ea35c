"""The live page for everyone: on a phone, in the dark, by keyboard, with a screen reader's names, without motion."""

from collections.abc import Iterator

import pytest
from report.conftest import OpenPage
from report.expectations import expect
from report.live.page_client import a_line, a_view, an_agent

from gossamer.report.live.feed import Feed
from gossamer.report.live.server import serve_page

NARROW = {"width": 375, "height": 800}


@pytest.fixture
def url(feed: Feed) -> Iterator[str]:
    agents = a_view(20)["agents"]
    agents[3]["state"] = "missing"
    agents[4] |= {"waiting_for": [3], "waited": 2.0, "refused": {"bad signature": 3}}
    memberships = [
        {"number": 0, "members": list(range(20)), "from_step": 0, "seconds": 0.0, "stopped": 0.0},
        {"number": 1, "members": [k for k in range(20) if k != 3], "from_step": 9, "seconds": 1.0, "stopped": 0.4},
    ]
    holds = {"A1": True, "A2": True, "A3": False}
    certificate = {
        "holds": holds,
        "spectral_radius": 0.9,
        "needed_links": 20,
        "added_links": 0,
        "edges_kept": 1.0,
        "edges_relayed": 0.0,
    }
    feed.publish(
        a_view(
            title="a" * 120,
            agents=agents,
            evaluations=30,
            memberships=memberships,
            certificate=certificate,
            log=[a_line("w" * 300), a_line("agent 3 is silent " * 30)],
        )
    )
    with serve_page(feed, ("127.0.0.1", 0), None) as url:
        yield url


@pytest.mark.parametrize("width", [320, 375, 768, 1280])
def test_no_width_scrolls_sideways(url: str, open_page: OpenPage, width: int) -> None:
    page = open_page(url, viewport={"width": width, "height": 800})
    expect(page.locator(".mark")).to_have_count(20)
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    beyond = page.evaluate(
        """(width) => [...document.querySelectorAll("body *")]
            .filter((one) => !one.closest(".scroll") && !one.closest(".skip") && !one.closest(".sr"))
            .filter((one) => one.getBoundingClientRect().right > width + 1).map((one) => one.outerHTML.slice(0, 80))""",
        width,
    )
    assert beyond == []


def test_the_page_is_read_in_light_and_dark(url: str, open_page: OpenPage) -> None:
    found = {}
    for scheme in ("light", "dark"):
        page = open_page(url, color_scheme=scheme)
        expect(page.locator(".mark")).to_have_count(20)
        found[scheme] = page.evaluate(
            """() => {
                const light = (colour) => {
                    const [r, g, b] = colour.match(/[\\d.]+/g).slice(0, 3).map((part) => {
                        const share = part / 255;
                        return share <= 0.04045 ? share / 12.92 : ((share + 0.055) / 1.055) ** 2.4;
                    });
                    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
                };
                const contrast = (a, b) => (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
                const style = (where) => getComputedStyle(document.querySelector(where));
                const card = light(style(".card").backgroundColor);
                const text = ["h3", ".label", "#agents td", "th button", "#log li span", "#log time", ".missing .state",
                    ".good", ".bad"];
                return {
                    card,
                    text: Object.fromEntries(text.map((where) => [where, contrast(card, light(style(where).color))])),
                    curve: contrast(card, light(style("#score-chart .lines path").stroke)),
                    missing: contrast(card, light(style(".mark.missing .diamond").fill)),
                };
            }"""
        )
    assert found["light"]["card"] > 0.9
    assert found["dark"]["card"] < 0.05
    for scheme, one in found.items():  # ratios that WCAG 2.2 asks for: 4.5 for text, 3 for graphics
        assert min(one["text"].values()) >= 4.5, (scheme, one)
        assert one["curve"] >= 3, scheme
        assert one["missing"] >= 3, scheme


def test_tab_reaches_every_control_and_each_shows_its_focus(url: str, open_page: OpenPage) -> None:
    page = open_page(url)
    expect(page.locator(".mark")).to_have_count(20)
    visited = []
    for _ in range(60):
        page.keyboard.press("Tab")
        one = page.evaluate(
            """() => {
                const here = document.activeElement;
                if (here === document.body) return null;
                const ring = here.querySelector(".ring");
                const shown = getComputedStyle(here).outlineStyle !== "none" ||
                    (ring !== null && getComputedStyle(ring).stroke !== "none");
                const name = here.getAttribute("aria-label") || here.textContent;
                return [here.closest("[id]")?.id || "", here.tagName.toLowerCase(), name.trim(), shown];
            }"""
        )
        if one is None:
            break
        visited.append(one)
    assert all(name and shown for _, _, name, shown in visited), visited
    places = [place for place, *_ in visited]
    for needed in ("map", "agents", "score-chart", "loss-chart", "disagreement", "members-chart", "log"):
        assert needed in places, (needed, places)
    assert sum(kind == "g" for _, kind, *_ in visited) == 1  # one stop for the whole map


def test_arrow_keys_walk_along_agents_and_curves(url: str, open_page: OpenPage) -> None:
    page = open_page(url)
    expect(page.locator(".mark")).to_have_count(20)
    page.locator('.mark[tabindex="0"]').focus()
    page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowRight")
    expect(page.locator("#map .readout")).to_contain_text("agent 3")
    assert "missing" in (page.locator('.mark[data-agent="3"]').get_attribute("aria-label") or "")
    page.keyboard.press("End")
    expect(page.locator("#map .readout strong")).to_have_text("agent 19")
    page.keyboard.press("Escape")
    expect(page.locator("#map .readout")).to_be_hidden()
    curve = page.locator("#score-chart svg.curves")
    curve.focus()
    page.keyboard.press("Home")
    expect(curve).to_have_attribute("aria-valuetext", "step 1: distributed 80.0 %")
    page.keyboard.press("ArrowRight")
    expect(curve).to_have_attribute("aria-valuetext", "step 2: distributed 80.0 %")
    expect(page.locator("#score-chart .readout")).to_contain_text("step 2")


def test_buttons_sort_the_table_and_change_scales(url: str, open_page: OpenPage) -> None:
    page = open_page(url)
    expect(page.locator(".mark")).to_have_count(20)
    first = page.locator("#agents tbody tr").first
    page.get_by_role("button", name="state").click()
    expect(first).to_have_attribute("data-agent", "3")
    expect(page.locator("#agents th").nth(1)).to_have_attribute("aria-sort", "ascending")
    page.get_by_role("button", name="agent", exact=True).click()
    page.get_by_role("button", name="agent", exact=True).click()
    expect(first).to_have_attribute("data-agent", "19")
    scale = page.locator("#loss-chart .scale")
    scale.press("Enter")
    expect(scale).to_have_text("log scale")
    curve = page.locator("#loss-chart .legend button")
    curve.click()
    expect(curve).to_have_attribute("aria-pressed", "false")
    expect(page.locator("#loss-chart .nothing")).to_be_visible()


def test_landmarks_and_live_regions_have_names(url: str, open_page: OpenPage) -> None:
    page = open_page(url)
    expect(page.locator(".mark")).to_have_count(20)
    assert page.get_by_role("progressbar", name="steps").get_attribute("aria-valuenow") == "30"
    for name in ("Map of agents", "Score", "Loss", "Agents", "Disagreement", "Bytes by phase", "Memberships", "Log"):
        assert page.get_by_role("region", name=name, exact=True).count() == 1, name
    assert page.get_by_role("log").count() == 1
    assert page.get_by_role("main").count() == 1
    assert page.get_by_role("heading", level=1).count() == 1
    assert page.locator("html").get_attribute("lang") == "en"


def test_nothing_moves_for_those_who_want_no_motion(url: str, open_page: OpenPage) -> None:
    seconds = "[...document.querySelectorAll('*')].map((one) => parseFloat(getComputedStyle(one).transitionDuration))"
    page = open_page(url, reduced_motion="reduce")
    expect(page.locator(".mark")).to_have_count(20)
    assert set(page.evaluate(seconds)) == {0}
    page = open_page(url)
    expect(page.locator(".mark")).to_have_count(20)
    assert set(page.evaluate(seconds)) != {0}


def test_a_read_out_follows_the_pointer_and_stays_on_the_page(feed: Feed, url: str, open_page: OpenPage) -> None:
    page = open_page(url, viewport=NARROW)
    expect(page.locator(".mark")).to_have_count(20)
    for agent in (0, 5, 10, 15):
        page.locator(f'.mark[data-agent="{agent}"]').hover()
        box = page.locator("#map .readout").bounding_box()
        assert box is not None
        assert box["x"] >= 0
        assert box["x"] + box["width"] <= NARROW["width"]
    curve = page.locator("#loss-chart svg.curves")
    box = curve.bounding_box()
    assert box is not None
    for share in (0.2, 0.5, 0.95):
        curve.hover(position={"x": share * box["width"], "y": 40})
        shown = page.locator("#loss-chart .readout").bounding_box()
        assert shown is not None
        assert shown["x"] + shown["width"] <= NARROW["width"]
    feed.publish(a_view(agents=[an_agent(0)], evaluations=31))  # agents that are gone leave the map
    expect(page.locator(".mark")).to_have_count(1)
