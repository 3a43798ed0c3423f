"""Pages of studies that have ended, in a real browser: pictures, clicks into figures, links.

Every page at desktop and phone width, light and dark, is a picture for people to look at.

The pictures lie in the folder that `DASHBOARD_PICTURES` names, or in the test's own. The test fails
where a page shows an error, or is wider than a phone.
"""

from __future__ import annotations

import math
import os
import re
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING
from urllib.parse import parse_qs, urlsplit

import optuna
import pytest
from optuna.trial import TrialState, create_trial
from PIL import Image

from tests.e2e.browser import assert_no_error_is_shown, dashboard, errors_of
from tests.e2e.study_folder import StudyFolder
from tests.integration.app.device_week import add_week
from tests.integration.verbs import seeded

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

SPACE: dict[str, optuna.distributions.BaseDistribution] = {
    "lr": optuna.distributions.FloatDistribution(1e-5, 1e-1, log=True),
    "width": optuna.distributions.IntDistribution(16, 512, log=True),
    "dropout": optuna.distributions.FloatDistribution(0.0, 0.5),
}
N_TRIALS, N_STEPS = 240, 27
SIZES = {"desktop": (1280, 900), "phone": (390, 844)}
#: By the name of a picture. The first page has no name of its own in an address.
PAGES = {
    "studies": "?study=digits",
    "convergence": "convergence?study=digits",
    "curves": "curves?study=digits&trial=239",
    "parameters": "parameters?study=digits",
    "trials": "trials?study=digits",
    "trial": "trials?study=first&trial=3",
    "devices": "devices?study=week",
    "best": "best?study=digits",
    "control": "control?study=digits",
}
#: On a page, at least.
FIGURES = {"convergence": 1, "curves": 1, "parameters": 2, "trial": 1, "devices": 2}
DRAWN = '[data-drawn="plotly"]'
_BROWSER_MS = 90_000
_HOVER_MS = 250
#: Every figure is drawn in the colours that the page has now.
IN_ITS_COLOURS = """() => [...document.querySelectorAll("[data-drawn=plotly]")].every(each =>
  each.dataset.colour === getComputedStyle(each).getPropertyValue("--st-text-color").trim())"""

#: Streamlit fades what it shows anew, and a picture does not wait half a second for that.
NOT_FADED = "[data-testid=stElementContainer] { opacity: 1 !important }"
#: Where a point of a trial lies on the screen, once it is drawn; the last one of a curve.
_POINT = """number => {
  const div = document.querySelector(".js-plotly-plot[data-drawn=plotly]");
  const trace = div?._fullData.find(each => each.customdata?.includes?.(number));
  if (!trace) return null;
  const { xaxis, yaxis } = div._fullLayout, at = trace.customdata.indexOf(number);
  const box = div.querySelector(".nsewdrag").getBoundingClientRect();
  return [box.x + xaxis.d2p(trace.x[at]), box.y + yaxis.d2p(trace.y[at])];
}"""
#: Plotly knows what is below the mouse a moment after it has come there.
_IS_BELOW = """number => document.querySelector(".js-plotly-plot")
  ._hoverdata?.some(each => each.customdata === number)"""


def a_trial(random: Random, number: int) -> optuna.trial.FrozenTrial:
    """Accuracy that grows, towards what the learning rate and the width allow."""
    params = {
        "lr": 10 ** random.uniform(-5, -1),
        "width": round(2 ** random.uniform(4, 9)),
        "dropout": random.uniform(0.0, 0.5),
    }
    away = (math.log10(params["lr"]) + 3) ** 2 / 8 + (params["dropout"] - 0.2) ** 2
    end = 0.98 - 0.35 * away - 0.2 / math.log2(params["width"]) + random.gauss(0, 0.004)
    curve = {
        step: end * (1 - math.exp(-step / 5)) + random.gauss(0, 0.004)
        for step in range(1, N_STEPS + 1)
    }
    if number % 23 == 22:
        return create_trial(state=TrialState.FAIL, params=params, distributions=SPACE)
    last = next((rung for rung in (1, 3, 9) if end < 0.62 + 0.08 * math.log(rung, 3)), N_STEPS)
    seen = {step: value for step, value in curve.items() if step <= last}
    return create_trial(
        state=TrialState.COMPLETE if last == N_STEPS else TrialState.PRUNED,
        value=seen[last],
        params=params,
        distributions=SPACE,
        intermediate_values=seen,
    )


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Of a dashboard on studies that nobody works on."""
    study_folder = StudyFolder(path=tmp_path_factory.mktemp("user"))
    url = f"sqlite:///{study_folder.path}/small.db"
    add_week(url, datetime.now(UTC), days=0.5, trial_s=1_800)
    seeded.add_first_study(url)
    random = Random(0)
    trials = [a_trial(random, number) for number in range(N_TRIALS)]
    seeded.add_study(url, "digits", trials, directions=("maximize",), objectives=("accuracy",))
    seeded.add_dispatcher(
        url,
        "digits",
        is_ended=True,
        study_file="pruner: {name: asha, min_resource: 1, reduction_factor: 3}\n"
        "budget: {trials: 300}\n",
    )
    study_folder.write("token", "correct horse battery\n")
    _, where = dashboard(study_folder, "small.db", "--token-file", "token")
    yield where
    study_folder.end_all()


@pytest.mark.timeout(600)
def test_pictures_of_every_page(address: str, browser: Browser, tmp_path: Path) -> None:
    folder = Path(os.environ.get("DASHBOARD_PICTURES", tmp_path))
    folder.mkdir(parents=True, exist_ok=True)
    for size, (width, height) in SIZES.items():
        context = browser.new_context(viewport={"width": width, "height": height})
        page = context.new_page()
        page.set_default_timeout(_BROWSER_MS)
        errors = errors_of(page)
        for name, path in PAGES.items():
            page.goto(f"{address}/{path}")
            page.wait_for_selector('[data-testid="stHeading"]')
            page.wait_for_selector(
                '[data-drawn="plotly"], [data-testid="stDataFrame"], [data-testid="stForm"], pre'
            )
            page.wait_for_function(
                "n => document.querySelectorAll('[data-drawn=plotly]').length >= n",
                arg=FIGURES.get(name, 0),
            )
            # Streamlit scrolls a part of the page: to be seen as a whole it must fit.
            content = page.evaluate("document.querySelector('[data-testid=stMain]').scrollHeight")
            page.set_viewport_size({"width": width, "height": max(height, content)})
            for scheme in ("light", "dark"):
                page.emulate_media(color_scheme="dark" if scheme == "dark" else "light")
                page.wait_for_function(IN_ITS_COLOURS)
                # Colours that are still on their way are there at once.
                picture = folder / f"{name}-{size}-{scheme}.png"
                page.screenshot(path=picture, animations="disabled", style=NOT_FADED)
            assert_no_error_is_shown(page)
            wide = page.evaluate("document.documentElement.scrollWidth")
            assert wide <= width, f"{name} is {wide} px wide"
            page.emulate_media(color_scheme="light")
            page.set_viewport_size({"width": width, "height": height})
        context.close()
        assert errors == []


def click_on(page: Page, number: int) -> None:
    """What is still drawn above a figure moves it, so that its point is looked for anew."""
    page.wait_for_function(_POINT, arg=number)
    for _ in range(_BROWSER_MS // _HOVER_MS):
        found = page.evaluate(_POINT, arg=number)
        if found is not None:
            page.mouse.move(*found)
            page.wait_for_timeout(_HOVER_MS)
            if page.evaluate(_IS_BELOW, arg=number):
                page.mouse.click(*found)
                return
            page.mouse.move(0, 0)
    pytest.fail(f"The mouse never came onto the point of trial {number}.")


def test_a_click_chooses_a_trial(address: str, page: Page) -> None:
    page.goto(f"{address}/convergence?study=first")
    click_on(page, 1)
    page.get_by_role("heading", name="Trial 1", exact=True).wait_for()
    page.wait_for_url(re.compile(r"/trials\?.*trial=1"))
    page.get_by_text("accuracy 0.9", exact=True).first.wait_for()

    page.goto(f"{address}/curves?study=first")
    click_on(page, 0)
    page.get_by_role("heading", name="Trial 0", exact=True).wait_for()
    page.wait_for_function(
        "document.querySelector('.js-plotly-plot')._fullData.some(each => each.name === 'trial 0')"
    )
    page.wait_for_url(re.compile(r"/curves\?.*trial=0"))
    number = page.get_by_label("Trial among its rivals (number)")
    page.wait_for_function("each => each.value === '0'", arg=number.element_handle())
    page.get_by_role("button", name="All about this trial").click()
    page.wait_for_url(re.compile(r"/trials\?.*trial=0"))


def axis_is(page: Page, axis: str, title: str, *, figure: str = DRAWN) -> None:
    """Waits until the first figure has an axis of such a kind."""
    page.wait_for_function(
        """([figure, axis, title]) => {
          const layout = document.querySelector(figure)?._fullLayout;
          return layout && `${layout[axis].type}: ${layout[axis].title.text}` === title;
        }""",
        arg=[figure, axis, title],
    )


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
    other.set_default_timeout(_BROWSER_MS)
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
