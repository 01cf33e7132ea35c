"""Reports in a real browser: everything is drawn, nothing is loaded, and scripts may be off."""

from pathlib import Path

import pytest
from report.conftest import OpenPage
from report.expectations import Page, expect
from report.html.made_runs import HOSTILE, reproduce_fake, train_classes, train_small

from gossamer.reporting import write_report


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("runs") / "one & <two>"
    other = train_small(folder.with_name("other"), agents=2, baselines=False)
    return write_report(train_small(folder), [other]).path


def overflows(page: Page) -> bool:
    """The page is wider than the window."""
    return bool(page.evaluate("document.documentElement.scrollWidth > window.innerWidth"))


def test_charts_maps_and_bars_are_drawn(written: Path, open_page: OpenPage) -> None:
    page = open_page(written.as_uri())
    expect(page.locator("html.drawn")).to_have_count(1)
    assert page.locator("figure.drawing").count() == 8  # three charts of both runs, three of one, the map, the bars
    for path in page.locator(".chart .lines path").all():
        assert int(path.get_attribute("data-points") or 0) > 1
    expect(page.locator(".mark")).to_have_count(3)
    expect(page.locator(".links line")).to_have_count(3)
    expect(page.locator(".bars li")).to_have_count(3)
    assert not overflows(page)


def test_a_choice_of_vertices_draws_their_curve(written: Path, open_page: OpenPage) -> None:
    page = open_page(written.as_uri())
    loss = page.locator("#curves figure").first
    before = loss.locator(".lines path").first.get_attribute("d")
    button = loss.locator(".choices button", has_text="validation")
    button.click()
    expect(button).to_have_attribute("aria-pressed", "true")
    expect(loss.locator(".lines path").first).not_to_have_attribute("d", before or "")


@pytest.mark.parametrize("options", [{"viewport": {"width": 390, "height": 800}}, {"color_scheme": "dark"}])
def test_phones_and_dark_mode(written: Path, open_page: OpenPage, options: dict[str, object]) -> None:
    page = open_page(written.as_uri(), **options)
    expect(page.locator("html.drawn")).to_have_count(1)
    assert not overflows(page)
    dark = page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(15, 19, 24)"
    assert dark == ("color_scheme" in options)


def test_without_scripts_tables_remain(written: Path, open_page: OpenPage) -> None:
    page = open_page(written.as_uri(), java_script_enabled=False)
    assert page.locator("svg").count() == 0
    expect(page.locator("#agents tbody tr")).to_have_count(3)
    expect(page.locator("#messages tbody tr")).to_have_count(4)


def test_figures_of_a_reproduction_are_shown_and_hostile_claims_are_text(tmp_path: Path, open_page: OpenPage) -> None:
    page = open_page(write_report(reproduce_fake(tmp_path / "paper")).path.as_uri())
    assert page.locator("img").evaluate_all("all => all.map((one) => one.naturalWidth > 0)") == [True, True]
    assert page.get_by_text(HOSTILE).count() == 2


def test_many_links_are_thin_and_added_ones_lie_above(tmp_path: Path, open_page: OpenPage) -> None:
    run = train_small(tmp_path / "many", agents=20, steps=1, topology="complete", baselines=False)
    page = open_page(write_report(run, with_predictions=False).path.as_uri())
    lines = page.locator(".links line")
    expect(lines).to_have_count(190)
    looks = lines.evaluate_all(
        "all => all.map((one) => [parseFloat(one.style.strokeWidth), one.classList.contains('added')])"
    )
    assert max(width for width, _ in looks) <= 4.5
    added = [is_added for _, is_added in looks]
    assert any(added)
    assert added == sorted(added)
    assert lines.first.evaluate("one => getComputedStyle(one).strokeOpacity") == "0.6"


def test_a_page_is_printed_dark_on_white_in_dark_mode_too(written: Path, open_page: OpenPage) -> None:
    page = open_page(written.as_uri(), color_scheme="dark")
    page.emulate_media(media="print", color_scheme="dark")
    assert page.evaluate("getComputedStyle(document.body).color") == "rgb(27, 35, 48)"


def test_pictures_are_as_wide_as_the_page(tmp_path: Path, open_page: OpenPage) -> None:
    page = open_page(write_report(reproduce_fake(tmp_path / "paper")).path.as_uri())
    assert page.locator(".picture img").first.evaluate("one => getComputedStyle(one).maxWidth") == "100%"


def test_long_names_of_classes_are_wrapped_and_cut_off(tmp_path: Path, open_page: OpenPage) -> None:
    names = [f"class {c} with a very{'long' * 30} name" for c in range(6)]
    page = open_page(write_report(train_classes(tmp_path / "run", names)).path.as_uri())
    table = page.locator("table.confusion").first
    assert table.locator("thead .class").evaluate_all("all => all.map((one) => one.title)") == names
    assert table.evaluate("one => one.getBoundingClientRect().width") < 1000
    assert table.locator("tbody th").first.evaluate("one => one.getBoundingClientRect().width") < 220
