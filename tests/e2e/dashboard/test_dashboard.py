"""`tuner dashboard` as a user starts it, and its pages in a real browser while a study runs."""

from __future__ import annotations

import re
import signal
from typing import TYPE_CHECKING

import pytest

from tests.e2e.browser import DRAWN, assert_no_error_is_shown, dashboard, errors_of
from tests.e2e.study_folder import Running, StudyFolder, wait_until
from tuner.errors import EXIT_BAD_INPUT

if TYPE_CHECKING:
    from playwright.sync_api import Page

pytestmark = pytest.mark.programs

#: Trials end one after the other, each when its file is there.
STEPWISE = """
import time
from pathlib import Path

def train(trial):
    trial.report(trial.params["x"], 1)
    while not Path(f"go-{trial.number}").exists():
        time.sleep(0.02)
    return trial.params["x"]
"""
#: By title: what a page shows of a study that runs.
_PAGES = {
    "Studies": '[data-testid="stDataFrame"]',
    "Convergence": DRAWN,
    "Learning curves": DRAWN,
    "Parameters": DRAWN,
    "Trials": '[data-testid="stDataFrame"]',
    "Devices": DRAWN,
    "Best": "pre",
    "Control": '[data-testid="stForm"]',
}


@pytest.fixture
def folder(study_folder: StudyFolder) -> StudyFolder:
    study_folder.write("forecast.py", STEPWISE)
    study_folder.study(devices="cpu:1", budget={"trials": 4})
    return study_folder


def let_end(folder: StudyFolder, number: int) -> None:
    folder.write(f"go-{number}", "")
    query = "select count(*) from trials where state = 'COMPLETE'"
    wait_until(lambda: folder.rows(query) == [(number + 1,)], f"trial {number} has ended")


def test_missing_database_is_refused(folder: StudyFolder) -> None:
    ended = folder.tuner("dashboard", "study.yaml")
    assert ended.code == EXIT_BAD_INPUT
    assert re.search("There is no database at .* yet. Run the study first.", ended.err)


def test_unknown_study_is_refused(folder: StudyFolder) -> None:
    running = folder.start()
    wait_until(lambda: "trial 0: started" in running.out, "there is a study")
    ended = folder.tuner("dashboard", "small.db", "--study", "smal")
    assert ended.code == EXIT_BAD_INPUT
    assert "Did you mean 'small'?" in ended.err


def served(folder: StudyFolder, *words: str) -> tuple[Running, str]:
    """The dashboard of a study of which one trial has ended, and its address."""
    query = "select count(*) from sqlite_master where name = 'tuner_leases'"
    wait_until(lambda: (folder.path / "small.db").exists(), "there is a database")
    wait_until(lambda: folder.rows(query) == [(1,)], "it has tables")
    let_end(folder, 0)
    return dashboard(folder, "study.yaml", *words)


TOKEN = "correct horse battery"


@pytest.mark.nightly
def test_a_stop_button_stops_a_trial_that_runs(folder: StudyFolder, page: Page) -> None:
    folder.start()
    folder.write("token", f"{TOKEN}\n")
    server, where = served(folder, "--token-file", "token")
    page.goto(f"{where}/control")
    page.get_by_label("Token", exact=True).fill(TOKEN)
    page.get_by_label("Your name, for the record").fill("Ann")
    page.get_by_role("button", name="Unlock").click()
    page.get_by_role("button", name="Pause study").wait_for()

    page.get_by_role("link", name="Trials").click()
    page.get_by_label("Open trial (number)").fill("1")
    page.get_by_test_id("stBaseButton-secondaryFormSubmit").click()
    page.get_by_role("button", name="Stop trial").click()
    page.get_by_text("Sent to trial 1: stop").wait_for()
    query = "select state from trials where number = 1"
    wait_until(lambda: folder.rows(query) == [("PRUNED",)], "trial 1 was stopped")
    ((who,),) = folder.rows("select asked_by from tuner_commands")
    assert who.startswith("says to be Ann (dashboard)@")
    assert TOKEN not in page.url + page.content() + server.out
    page.get_by_role("button", name="Retry trial").wait_for()


def wait_for_metric(page: Page, place: int, text: str) -> None:
    page.wait_for_function(
        "([place, text]) => document.querySelectorAll('[data-testid=\"stMetricValue\"]')[place]"
        "?.innerText === text",
        arg=[place, text],
    )


def axis_range(page: Page) -> list[float]:
    """Of the first figure's horizontal axis, as it is drawn; instants in milliseconds."""
    found: list[float] = page.evaluate(
        "(({range, r2l}) => range.map(each => r2l(each)))"
        "(document.querySelector('.js-plotly-plot')._fullLayout.xaxis)"
    )
    return found


def zoom(page: Page) -> list[float]:
    """Drags over a part of the first figure; its horizontal axis then."""
    page.wait_for_selector(".js-plotly-plot .main-svg")
    before = axis_range(page)
    area = page.locator(".js-plotly-plot .nsewdrag").first.bounding_box()
    assert area is not None
    at = [area["x"] + 0.3 * area["width"], area["y"] + 0.5 * area["height"]]
    page.mouse.move(*at)
    page.mouse.down()
    page.mouse.move(at[0] + 0.3 * area["width"], at[1], steps=5)
    page.mouse.up()
    page.wait_for_function(
        """least => {
          const { range, r2l } = document.querySelector('.js-plotly-plot')._fullLayout.xaxis;
          return r2l(range[1]) - r2l(range[0]) < least;
        }""",
        arg=0.6 * (before[1] - before[0]),
    )
    zoomed = axis_range(page)
    assert before[0] < zoomed[0] < zoomed[1] < before[1]
    return zoomed


#: What the timeline says of trials that have completed.
_COMPLETED_BARS = """(document.querySelector('.js-plotly-plot')?.calcdata ?? [])
  .filter(each => each[0].trace.name === 'completed')
  .flatMap(each => [...(each[0].trace.customdata ?? [])]).join()"""


_RIGHT_EDGE = """(({range, r2l}) => r2l(range[1]))(
  document.querySelector('.js-plotly-plot')._fullLayout.xaxis)"""


def test_a_zoom_survives_a_refresh(folder: StudyFolder, page: Page) -> None:
    folder.start()
    _, where = served(folder)
    page.goto(f"{where}/convergence")
    zoomed = zoom(page)
    let_end(folder, 1)
    wait_for_metric(page, 1, "2")
    page.wait_for_function(
        "document.querySelector('.js-plotly-plot').calcdata.some("
        "each => each[0].trace.name === 'completed' && each.length === 2)"
    )
    assert axis_range(page) == zoomed

    page.get_by_role("link", name="Devices").click()
    page.get_by_role("heading", name="Devices", exact=True).wait_for()
    # Its figure gives a range by itself, which grows with the time.
    page.wait_for_function(f"/trial 1,/.test({_COMPLETED_BARS})")
    zoomed = zoom(page)
    let_end(folder, 2)
    page.wait_for_function(f"/trial 2,/.test({_COMPLETED_BARS})")
    assert axis_range(page) == zoomed

    # A double click leads back to all of it, which grows on with the study.
    area = page.locator(".js-plotly-plot .nsewdrag").first.bounding_box()
    assert area is not None
    page.mouse.dblclick(area["x"] + 0.5 * area["width"], area["y"] + 0.5 * area["height"])
    page.wait_for_function(f"most => {_RIGHT_EDGE} > most", arg=zoomed[1])
    page.wait_for_function(f"last => {_RIGHT_EDGE} > last", arg=axis_range(page)[1])


def test_a_report_is_one_file_that_asks_for_nothing(folder: StudyFolder, page: Page) -> None:
    for number in range(4):
        folder.write(f"go-{number}", "")
    assert folder.tune().code == 0
    ended = folder.tuner("report", "study.yaml", "-o", "study.html")
    assert (ended.code, ended.out) == (0, "Report of study 'small': study.html\n")
    errors = errors_of(page)
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    page.goto((folder.path / "study.html").as_uri())
    page.wait_for_function("document.querySelectorAll('[data-drawn=plotly]').length >= 3")
    assert page.get_by_role("heading", name="Learning curves").count() == 1
    assert errors == []
    assert [url for url in asked if not url.startswith(("file:", "data:", "blob:"))] == []
    lost = folder.tuner("report", "study.yaml", "-o", "no/such/folder.html")
    assert lost.code == EXIT_BAD_INPUT
    assert "--output" in lost.err


@pytest.mark.timeout(600)
# By day: a refresh below, every page in a browser in test_dashboard_pictures.py, and every page on
# a study that runs in tests/integration/app/test_pages.py.
@pytest.mark.nightly
def test_dashboard_of_a_study_that_runs(folder: StudyFolder, page: Page) -> None:
    errors = errors_of(page)
    asked: set[str] = set()
    page.on("request", lambda request: asked.add(request.url))
    running = folder.start()
    folder.write("token", f"{TOKEN}\n")
    server, where = served(folder, "--token-file", "token")

    page.goto(f"{where}/convergence")
    page.wait_for_selector(".js-plotly-plot .main-svg")
    finished = page.locator('[data-testid="stMetricValue"]').nth(1)
    assert finished.inner_text() == "1"
    assert "study=small" in page.url
    let_end(folder, 1)
    wait_for_metric(page, 1, "2")

    for name, content in _PAGES.items():
        page.get_by_role("link", name=name).click()
        page.get_by_role("heading", name=name, exact=True).wait_for()
        page.wait_for_selector(content)
        assert_no_error_is_shown(page)
        assert "study=small" in page.url
    query = "select state from trials where number = 2"
    wait_until(lambda: folder.rows(query) == [("RUNNING",)], "trial 2 runs")
    page.goto(f"{where}/trials?study=small&trial=2")
    page.get_by_role("heading", name="Usage").wait_for()
    page.wait_for_selector(DRAWN)
    assert_no_error_is_shown(page)
    assert errors == []
    strange = [url for url in asked if not re.match(r"(http://127\.0\.0\.1:|data:|blob:)", url)]
    assert strange == []

    server.signal(signal.SIGINT)
    ended = server.wait()
    assert (ended.code, "Traceback" in ended.text) == (0, False)
    assert running.process.poll() is None
