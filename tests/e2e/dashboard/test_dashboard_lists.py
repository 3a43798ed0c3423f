"""The table of trials in a real browser, while the study that it shows goes on."""

from __future__ import annotations

from typing import TYPE_CHECKING

import optuna
import pytest
from streamlit.proto.BackMsg_pb2 import BackMsg

from tests.e2e.browser import DRAWN, assert_no_error_is_shown, dashboard, errors_of
from tests.e2e.study_folder import StudyFolder, wait_until

if TYPE_CHECKING:
    from playwright.sync_api import Page, WebSocketRoute

pytestmark = pytest.mark.programs

PROGRAM = """
import time
from pathlib import Path

def train(trial):
    while not Path(f"go-{trial.number}").exists():
        time.sleep(0.02)
    return trial.params["x"]
"""
_COMPLETE = "select count(*) from trials where state = 'COMPLETE'"
#: The column next to the one that selects.
_NUMBER = '[data-testid="glide-cell-1-{row}"]'
_N_TRIALS = 12


@pytest.fixture
def folder(study_folder: StudyFolder) -> StudyFolder:
    study_folder.write("forecast.py", PROGRAM)
    study_folder.study(devices="cpu:1", budget={"trials": _N_TRIALS})
    return study_folder


def let_end(folder: StudyFolder, n: int) -> None:
    for number in range(n):
        folder.write(f"go-{number}", "")
    wait_until(lambda: folder.rows(_COMPLETE) == [(n,)], f"{n} trials have ended")


def drawn(page: Page, row: int) -> str:
    """The number of the trial that a row shows."""
    return page.locator(_NUMBER.format(row=row)).inner_text()


def select(page: Page, row: int) -> None:
    box = page.get_by_test_id("stDataFrame").bounding_box()
    assert box is not None
    page.mouse.click(box["x"] + 18, box["y"] + 52 + 35 * row)


def test_a_click_opens_what_was_drawn_and_back_returns_to_the_list(
    folder: StudyFolder, page: Page
) -> None:
    errors = errors_of(page)
    running = folder.start()
    wait_until(lambda: "trial 0: started" in running.out, "there is a study")
    let_end(folder, 3)
    _, where = dashboard(folder, "study.yaml")
    page.goto(f"{where}/trials?where=trial+>=+1")
    page.locator(_NUMBER.format(row=1)).wait_for(state="attached")
    first = drawn(page, 0)
    let_end(folder, 7)
    page.get_by_text("newer trials are at the end").wait_for()
    assert drawn(page, 0) == first
    wanted = drawn(page, 1)
    select(page, 1)
    page.get_by_role("heading", name=f"Trial {wanted}", exact=True).wait_for()
    assert f"trial={wanted}" in page.url
    let_end(folder, 9)
    page.go_back()
    page.get_by_role("heading", name="Trials", exact=True).wait_for()
    page.get_by_role("heading", name=f"Trial {wanted}", exact=True).wait_for(state="detached")
    assert page.get_by_label("Filter").input_value() == "trial >= 1"
    assert drawn(page, 0) == first
    page.go_forward()
    page.get_by_role("heading", name=f"Trial {wanted}", exact=True).wait_for()
    page.get_by_role("button", name="All trials").click()
    page.get_by_role("button", name="Newest first").click()
    page.wait_for_function(
        "([cell, old]) => document.querySelector(cell)?.innerText > old",
        arg=[_NUMBER.format(row=0), first],
    )
    assert page.title() == "small: Trials"
    assert_no_error_is_shown(page)
    assert errors == []


class LateRefresh:
    """Sends a page's refresh once more right after a click, as a slow browser does."""

    def __init__(self, page: Page) -> None:
        self._page = page
        self._server: WebSocketRoute | None = None
        self._refresh: str | bytes | None = None
        page.route_web_socket("**/_stcore/stream", self._join)

    def _join(self, browser: WebSocketRoute) -> None:
        server = self._server = browser.connect_to_server()

        def pass_on(message: str | bytes) -> None:
            asked = BackMsg.FromString(message).rerun_script
            if asked.is_auto_rerun:
                self._refresh = message
            server.send(message)

        browser.on_message(pass_on)
        server.on_message(browser.send)

    def click(self, button: str) -> None:
        while self._refresh is None:
            self._page.wait_for_timeout(100)
        assert self._server is not None
        self._page.get_by_role("button", name=button).click()
        for _ in range(4):
            self._page.wait_for_timeout(40)
            self._server.send(self._refresh)


def test_selected_rows_are_compared(folder: StudyFolder, page: Page) -> None:
    errors = errors_of(page)
    running = folder.start()
    wait_until(lambda: "trial 0: started" in running.out, "there is a study")
    let_end(folder, 4)
    other = optuna.create_study(
        storage=f"sqlite:///{folder.path / 'small.db'}", study_name="other", direction="minimize"
    )
    other.optimize(lambda trial: trial.suggest_float("x", 0, 1), n_trials=2)
    _, where = dashboard(folder, "study.yaml")
    page.goto(f"{where}/trials?study=small&several=true")
    page.locator(_NUMBER.format(row=2)).wait_for(state="attached")
    wanted = sorted(drawn(page, row) for row in (0, 2))
    assert page.get_by_role("button", name="Compare", exact=True).is_disabled()
    select(page, 0)
    let_end(folder, 6)
    select(page, 2)
    page.get_by_role("button", name="Compare 2 trials").click()
    page.get_by_role("heading", name="Compare", exact=True).wait_for()
    page.wait_for_function("() => new URL(location).searchParams.get('trials')")
    chosen = page.evaluate("() => new URL(location).searchParams.get('trials')")
    assert sorted(chosen.split(",")) == wanted
    refresh = LateRefresh(page)
    page.goto(where)
    page.locator(_NUMBER.format(row=1)).wait_for(state="attached")
    for row in (0, 1):
        select(page, row)
    refresh.click("Compare 2 studies")
    page.get_by_role("heading", name="Compare", exact=True).wait_for()
    page.wait_for_selector(DRAWN)
    names = page.evaluate("() => new URL(location).searchParams.getAll('studies')")
    assert sorted(names) == ["other", "small"]
    page.wait_for_timeout(2500)  # The page's next refresh.
    assert page.locator(DRAWN).is_visible()
    assert_no_error_is_shown(page)
    assert errors == []
