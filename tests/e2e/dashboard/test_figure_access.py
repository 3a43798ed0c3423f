"""Figures on a phone, in the dark and for a screen reader, in a real browser."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.e2e.browser import DRAWN, errors_of
from tests.e2e.ended_studies import address

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page
import pytest

pytestmark = pytest.mark.programs

__all__ = ["address"]

_TABLES = """() => Object.fromEntries([...document.querySelectorAll("caption")].map(
  each => [each.textContent, [...each.parentElement.querySelectorAll("tr")].map(
    row => [...row.children].map(cell => cell.textContent))]))"""
_DEVICES = "[...document.querySelectorAll('.js-plotly-plot')].at(-1)._fullData[0].y"
_BACKGROUND = "getComputedStyle(document.querySelector('[data-testid=stApp]')).backgroundColor"
#: Whether the last figure has so many panels side by side.
_N_COLUMNS = """n => {
  const all = [...document.querySelectorAll(".js-plotly-plot")].at(-1)?._fullLayout ?? {};
  const axes = Object.keys(all).filter(key => /^xaxis\\d*$/.test(key)).map(key => all[key]);
  return axes.length === 3 && new Set(axes.map(each => each.domain[0])).size === n;
}"""
#: Where the title of the last figure's x axis begins, and where its ticks' texts end.
_TITLE_AND_TICKS = """() => {
  const figure = [...document.querySelectorAll(".js-plotly-plot")].at(-1);
  const ticks = [...figure.querySelectorAll(".xtick text")];
  const title = figure.querySelector(".xtitle").getBoundingClientRect();
  return [title.top, Math.max(...ticks.map(each => each.getBoundingClientRect().bottom))];
}"""
_LEGEND_IS_BELOW = """() => {
  const top = name => document.querySelector(name).getBoundingClientRect();
  return top(".js-plotly-plot .legend").top >= top(".js-plotly-plot .nsewdrag").bottom;
}"""


def test_a_figure_has_a_name_and_a_table_for_screen_readers(address: str, page: Page) -> None:
    page.goto(f"{address}/convergence?study=first")
    page.wait_for_selector(DRAWN)
    name = "Convergence: accuracy (maximize) against Trial (number)"
    page.get_by_role("group", name=name).wait_for()
    table = page.get_by_role("table", name=name)
    rows = [each.inner_text().split("\t") for each in table.get_by_role("row").all()]
    assert rows[0] == ["Series", "Trial (number)", "accuracy (maximize)"]
    # As the database says: trial 1 completed with 0.9.
    assert ["completed", "1", "0.9"] in rows


def tables(page: Page) -> dict[str, list[list[str]]]:
    """The rows of the tables for screen readers, by their captions."""
    found: dict[str, list[list[str]]] = page.evaluate(_TABLES)
    return found


def test_tables_for_screen_readers_say_what_the_figure_shows(address: str, page: Page) -> None:
    page.goto(f"{address}/convergence?study=first")
    page.wait_for_selector(DRAWN)
    # A failed trial has no value: it is not one of 0.
    said = tables(page)
    assert said["no value"][0] == ["Series", "Trial (number)"]
    assert ["out of memory", "3"] in said["no value"]
    assert all(row[0] != "out of memory" for row in next(iter(said.values())))

    page.goto(f"{address}/parameters?study=digits&figure=slices")
    page.wait_for_function("document.querySelectorAll('[data-drawn=plotly]').length == 2")
    heads = [rows[0] for name, rows in tables(page).items() if "against" in name]
    # Each parameter has a table of its own, with the values beside it.
    assert {head[-1] for head in heads} == {"accuracy (maximize)"}
    assert len({head[-2] for head in heads}) == len(heads) > 1


def test_maps_of_colours_have_a_row_for_each_device(address: str, page: Page) -> None:
    page.goto(f"{address}/devices?study=week")
    page.wait_for_function("document.querySelectorAll('[data-drawn=plotly]').length == 2")
    heat = next(rows for name, rows in tables(page).items() if name.startswith("Heat map"))
    assert heat[0][-2:] == ["Device", "Utilization (%)"]
    devices = page.evaluate(_DEVICES)
    assert [row[-2] for row in heat[1:]] == devices


def test_on_a_phone_there_are_no_buttons_and_the_legend_is_below(
    address: str, browser: Browser
) -> None:
    page = browser.new_page(viewport={"width": 390, "height": 844})
    errors = errors_of(page)
    page.goto(f"{address}/convergence?study=digits")
    page.wait_for_selector(DRAWN)
    assert page.locator(".modebar-btn").count() == 0
    assert page.evaluate(_LEGEND_IS_BELOW)
    page.set_viewport_size({"width": 1280, "height": 900})
    page.wait_for_selector(".modebar-btn", state="attached")
    page.wait_for_function(f"!({_LEGEND_IS_BELOW})()")
    assert errors == []


def test_on_a_phone_slices_are_two_in_a_row(address: str, browser: Browser) -> None:
    page = browser.new_page(viewport={"width": 390, "height": 844})
    page.goto(f"{address}/parameters?study=digits&figure=slices")
    page.wait_for_function(_N_COLUMNS, arg=2)
    page.set_viewport_size({"width": 1280, "height": 900})
    page.wait_for_function(_N_COLUMNS, arg=3)


@pytest.mark.parametrize("figure", ["contour", "rank"])
def test_titles_of_axes_are_clear_of_the_ticks(address: str, page: Page, figure: str) -> None:
    page.goto(f"{address}/parameters?study=digits&figure={figure}")
    page.wait_for_function("document.querySelectorAll('[data-drawn=plotly]').length == 2")
    title, ticks = page.evaluate(_TITLE_AND_TICKS)
    assert title >= ticks


def test_a_scale_is_reversed_in_the_dark(address: str, browser: Browser) -> None:
    found = {}
    for scheme in ("light", "dark"):
        page = browser.new_page(color_scheme=scheme)
        page.goto(f"{address}/parameters?study=digits&figure=slices")
        page.wait_for_function("document.querySelectorAll('[data-drawn=plotly]').length == 2")
        shown = "[...document.querySelectorAll('.js-plotly-plot')].at(-1)._fullData[0].marker"
        found[scheme] = page.evaluate(f"{shown}.reversescale"), page.evaluate(_BACKGROUND)
        page.close()
    # The palette's contrast was computed for these.
    backgrounds = found["light"][1], found["dark"][1]
    assert backgrounds == ("rgb(255, 255, 255)", "rgb(23, 22, 20)")
    assert found["light"][0] != found["dark"][0]


def test_times_are_those_of_the_browser_with_utc_beside_them(
    address: str, browser: Browser
) -> None:
    context = browser.new_context(timezone_id="Asia/Kolkata")
    page = context.new_page()
    page.goto(f"{address}/devices?study=week")
    page.wait_for_selector(DRAWN)
    page.wait_for_function("document.querySelectorAll('[data-drawn=plotly]').length == 2")
    axis = "each => each.layout.xaxis.title.text"
    titles = f"[...document.querySelectorAll('.js-plotly-plot')].map({axis})"
    assert page.evaluate(titles) == ["Time (UTC+05:30)"] * 2
    hover = page.evaluate("document.querySelector('.js-plotly-plot')._fullData[0].customdata[0]")
    assert "UTC)" in hover
    context.close()
