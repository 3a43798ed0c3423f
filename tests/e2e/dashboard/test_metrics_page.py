"""The page Metrics in a real browser, while the study that it shows goes on."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.e2e.browser import DRAWN, assert_no_error_is_shown, dashboard, errors_of
from tests.e2e.study_folder import StudyFolder, wait_until

if TYPE_CHECKING:
    from playwright.sync_api import Page
import pytest

pytestmark = pytest.mark.programs

PROGRAM = """
import time
from pathlib import Path

def train(trial):
    for step in range(1, 4):
        trial.report(trial.number + step, step=step, latency_ms=10.0 * trial.number)
    while not Path(f"go-{trial.number}").exists():
        time.sleep(0.02)
    return float(trial.number)
"""
#: Numbers and values of the points that are drawn.
_POINTS = """() => (document.querySelector(".js-plotly-plot[data-drawn=plotly]")?._fullData ?? [])
    .flatMap(trace => Array.from(trace.customdata, (number, at) => [number, trace.y[at]]))"""


def test_points_are_those_of_the_database_and_follow_it(
    study_folder: StudyFolder, page: Page
) -> None:
    errors = errors_of(page)
    study_folder.write("forecast.py", PROGRAM)
    study_folder.study(devices="cpu:1", budget={"trials": 4})
    running = study_folder.start()
    wait_until(lambda: "trial 0: started" in running.out, "there is a study")
    for number in range(2):
        study_folder.write(f"go-{number}", "")
    wait_until(lambda: "trial 2: started" in running.out, "two trials have ended")
    _, where = dashboard(study_folder, "study.yaml")
    page.goto(f"{where}/metrics?metric_y=latency_ms")
    page.locator(DRAWN).wait_for()
    page.wait_for_function(f"() => ({_POINTS})().length >= 3")
    study_folder.write("go-2", "")
    page.wait_for_function(f"() => ({_POINTS})().length >= 4")
    assert sorted(page.evaluate(_POINTS)) == [[n, 10.0 * n] for n in range(4)]
    study_folder.write("go-3", "")
    page.get_by_text("trials per hour", exact=True).click()
    page.get_by_text("trials ended in").wait_for()
    assert "view=trials" in page.url
    assert "per+hour" in page.url or "per%20hour" in page.url
    page.set_viewport_size({"width": 390, "height": 844})
    page.get_by_text("distribution", exact=True).click()
    page.get_by_text("Trials with at most this value").first.wait_for()
    assert page.evaluate("() => document.documentElement.scrollWidth") <= 390
    assert_no_error_is_shown(page)
    assert errors == []
