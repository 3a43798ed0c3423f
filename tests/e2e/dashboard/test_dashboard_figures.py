"""Figures in a real browser: clicks into them, links to what was chosen, and saving them."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import parse_qs, urlsplit

import pytest
from PIL import Image

from tests.e2e.browser import BROWSER_MS, DRAWN, errors_of
from tests.e2e.ended_studies import N_TRIALS, address

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

pytestmark = pytest.mark.programs

__all__ = ["address"]

_HOVER_MS = 250
#: Where a point of a trial lies on the screen, once it is drawn; the last one of a curve.
_POINT = """number => {
  const div = document.querySelector(".js-plotly-plot[data-drawn=plotly]");
  const trace = div?._fullData.find(each => each.customdata?.includes?.(number));
  if (!trace) return null;
  const { xaxis, yaxis } = div._fullLayout, at = trace.customdata.indexOf(number);
  const box = div.querySelector(".nsewdrag").getBoundingClientRect();
  return [box.x + xaxis.d2p(trace.x[at]), box.y + yaxis.d2p(trace.y[at])];
}"""
#: A click on a figure that is being drawn anew is lost, for people as well.
_HEARD_MS = 25_000
#: Plotly knows what is below the mouse a moment after it has come there.
_IS_BELOW = """number => document.querySelector(".js-plotly-plot")
  ._hoverdata?.some(each => each.customdata === number)"""


def click_on(page: Page, number: int) -> None:
    """What is still drawn above a figure moves it, so that its point is looked for anew."""
    page.wait_for_function(_POINT, arg=number)
    for _ in range(BROWSER_MS // _HOVER_MS):
        found = page.evaluate(_POINT, arg=number)
        if found is not None:
            page.mouse.move(*found)
            page.wait_for_timeout(_HOVER_MS)
            if page.evaluate(_IS_BELOW, arg=number):
                page.mouse.click(*found)
                return
            page.mouse.move(0, 0)
    pytest.fail(f"The mouse never came onto the point of trial {number}.")


def choose(page: Page, number: int) -> None:
    """Clicks on a trial, and once more where it was not heard."""
    heading = page.get_by_role("heading", name=f"Trial {number}", exact=True)
    click_on(page, number)
    for _ in range(_HEARD_MS // _HOVER_MS):
        if heading.is_visible():
            break
        page.wait_for_timeout(_HOVER_MS)
    else:
        # Heard late on a busy machine: the figure may be gone by now.
        if page.evaluate(_POINT, arg=number) is not None:
            click_on(page, number)
    heading.wait_for()


def test_a_click_chooses_a_trial(address: str, page: Page) -> None:
    page.goto(f"{address}/convergence?study=first")
    choose(page, 1)
    page.wait_for_url(re.compile(r"/trials\?.*trial=1"))
    page.get_by_text("accuracy 0.9", exact=True).first.wait_for()

    page.goto(f"{address}/curves?study=first")
    choose(page, 0)
    page.wait_for_function(
        "document.querySelector('.js-plotly-plot')._fullData.some(each => each.name === 'trial 0')"
    )
    page.wait_for_url(re.compile(r"/curves\?.*trial=0"))
    number = page.get_by_label("Trial among its rivals (number)")
    page.wait_for_function("each => each.value === '0'", arg=number.element_handle())
    page.get_by_role("button", name="All about this trial").click()
    page.wait_for_url(re.compile(r"/trials\?.*trial=0"))


#: Labels of the axes from left to right, and the range that was selected on `lr`.
_AXES = """() => {
  const axes = document.querySelector(".js-plotly-plot[data-drawn=plotly]:has(.parcoords)")
    ?.data[0].dimensions;
  return [axes?.map(each => each.label), axes?.find(each => each.label === "lr")?.constraintrange];
}"""


def drag(page: Page, start: tuple[float, float], end: tuple[float, float]) -> None:
    page.mouse.move(*start)
    page.mouse.down()
    page.mouse.move(*end, steps=8)
    page.mouse.up()


@pytest.mark.timeout(300)
def test_ranges_and_moved_axes_of_parallel_coordinates_stay(address: str, page: Page) -> None:
    page.goto(f"{address}/parameters?study=digits")
    page.wait_for_selector(f"{DRAWN} .parcoords")
    page.wait_for_timeout(1_000)
    titles = page.locator(".parcoords .axis-title")
    assert titles.nth(1).text_content() == "lr"
    (names, before) = page.evaluate(_AXES)
    assert (names, before) == (["accuracy (maximize)", "lr", "width", "dropout"], None)
    lr, last = titles.nth(1).bounding_box(), titles.nth(3).bounding_box()
    assert lr is not None
    assert last is not None
    across = lr["x"] + lr["width"] / 2
    drag(page, (across, lr["y"] + 120), (across, lr["y"] + 200))
    page.wait_for_function(f"({_AXES})()[1]?.length === 2")
    (_, chosen) = page.evaluate(_AXES)
    middle = lr["y"] + lr["height"] / 2
    drag(page, (across, middle), (last["x"] + last["width"] + 20, middle))
    page.wait_for_function(f"({_AXES})()[0].at(-1) === 'lr'")
    page.get_by_text("with pruned trials, at their last value").click()
    page.wait_for_function(
        "document.querySelector('.js-plotly-plot:has(.parcoords)').data[0].customdata.length > 214"
    )
    (names, after) = page.evaluate(_AXES)
    assert names == ["accuracy (maximize)", "width", "dropout", "lr"]
    assert after == pytest.approx(chosen)


def axis_is(page: Page, axis: str, title: str, *, figure: str = DRAWN) -> None:
    """Waits until the first figure has an axis of such a kind."""
    page.wait_for_function(
        """([figure, axis, title]) => {
          const layout = document.querySelector(figure)?._fullLayout;
          return layout && `${layout[axis].type}: ${layout[axis].title.text}` === title;
        }""",
        arg=[figure, axis, title],
    )


# By day, tests/integration/app/test_links.py opens such links without a browser.
@pytest.mark.nightly
@pytest.mark.timeout(600)
def test_a_link_leads_to_what_was_chosen(address: str, page: Page, browser: Browser) -> None:
    page.goto(f"{address}/convergence?study=digits")
    page.get_by_role("radio", name="wall time").click()
    page.wait_for_url(re.compile(r"against=wall(\+|%20)time"))
    page.get_by_text("log y", exact=True).click()
    page.wait_for_url(re.compile(r"log_y=true"))
    axis_is(page, "yaxis", "log: accuracy (maximize)")

    # Each page has its own choices, and the study stays.
    page.get_by_role("link", name="Learning curves").click()
    page.get_by_role("heading", name="Learning curves", exact=True).wait_for()
    page.get_by_text("log x", exact=True).click()
    page.wait_for_url(re.compile(r"log_step=true"))
    page.get_by_label("Trial among its rivals (number)").fill("5")
    page.keyboard.press("Enter")
    page.wait_for_url(re.compile(r"trial=5"))
    axis_is(page, "xaxis", "log: Step (as reported)")
    query = parse_qs(urlsplit(page.url).query)
    assert query == {"study": ["digits"], "log_step": ["true"], "trial": ["5"]}

    other = browser.new_page()
    other.set_default_timeout(BROWSER_MS)
    other.goto(page.url)
    axis_is(other, "xaxis", "log: Step (as reported)")
    other.get_by_role("heading", name="Trial 5", exact=True).wait_for()
    other.close()

    page.get_by_role("link", name="Convergence").click()
    axis_is(page, "yaxis", "log: accuracy (maximize)")
    page.wait_for_url(re.compile(r"log_y=true"))


def saved(page: Page, button: str, folder: Path) -> Path:
    """The file that a button of the first figure gives."""
    page.locator(DRAWN).first.hover()
    with page.expect_download() as download:
        page.locator(f'{DRAWN} [data-title="{button}"]').first.click()
    path = folder / download.value.suggested_filename
    download.value.save_as(path)
    return path


@pytest.mark.timeout(600)
def test_a_figure_is_saved_as_html_and_as_png(
    address: str, page: Page, browser: Browser, tmp_path: Path
) -> None:
    page.goto(f"{address}/convergence?study=digits")
    page.wait_for_selector(DRAWN)
    html = saved(page, "Save as HTML", tmp_path)
    assert html.name == "convergence.html"
    other = browser.new_context(offline=True).new_page()
    errors = errors_of(other)
    asked: list[str] = []
    other.on("request", lambda request: asked.append(request.url))
    other.goto(html.as_uri())
    axis_is(other, "yaxis", "linear: accuracy (maximize)", figure=".js-plotly-plot")
    n_points = "document.querySelector('.js-plotly-plot').calcdata.map(each => each.length)"
    assert sum(other.evaluate(n_points)) > N_TRIALS
    assert errors == []
    assert [url for url in asked if not url.startswith(("file:", "data:", "blob:"))] == []

    png = saved(page, "Download plot as a PNG", tmp_path)
    assert png.name == "convergence.png"
    with Image.open(png) as picture:
        box = page.locator(DRAWN).first.bounding_box()
        assert box is not None
        assert picture.width == pytest.approx(2 * box["width"], abs=4)
        assert picture.height == pytest.approx(2 * box["height"], abs=4)
        colours = picture.convert("RGBA").getcolors(maxcolors=2**24)
    # Points, lines and text, and not one plain area.
    assert len(colours or ()) > 50
