"""The token of Control in a browser: typed once, kept over a reload, in no other browser."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.e2e.browser import assert_no_error_is_shown, dashboard
from tests.e2e.study_folder import StudyFolder, wait_until

if TYPE_CHECKING:
    from playwright.sync_api import Page

pytestmark = pytest.mark.programs

TOKEN = "correct horse battery"
PROGRAM = """
import time
from pathlib import Path

def train(trial):
    while not Path("go").exists():
        time.sleep(0.02)
    return trial.params["x"]
"""


@pytest.fixture
def folder(study_folder: StudyFolder) -> StudyFolder:
    study_folder.write("forecast.py", PROGRAM)
    study_folder.study(devices="cpu:1", budget={"trials": 2})
    study_folder.write("token", f"{TOKEN}\n")
    return study_folder


def test_the_token_is_kept_by_this_browser_until_it_is_locked(
    folder: StudyFolder, page: Page
) -> None:
    running = folder.start()
    wait_until(lambda: "trial 0: started" in running.out, "there is a study")
    _server, where = dashboard(folder, "study.yaml", "--token-file", "token")
    page.goto(f"{where}/control?study=small")
    page.get_by_label("Token", exact=True).fill(TOKEN)
    page.get_by_label("Your name, for the record").fill("Ann")
    with page.expect_response(lambda answer: "/control-session?" in answer.url) as kept:
        page.get_by_role("button", name="Unlock").click()
    assert kept.value.status == 204
    page.get_by_role("button", name="Pause study").wait_for()

    page.reload()
    page.get_by_role("button", name="Pause study").click()
    page.get_by_text("Sent to study 'small': pause").wait_for()
    ((who,),) = folder.rows("select asked_by from tuner_commands")
    assert who.startswith("says to be Ann (dashboard)@")
    (cookie,) = [
        each for each in page.context.cookies() if each["name"].startswith("tuner-control-")
    ]
    assert (cookie["httpOnly"], cookie["sameSite"], cookie["expires"]) == (True, "Strict", -1)
    assert TOKEN not in cookie["value"] + page.evaluate("document.cookie") + page.content()

    browser = page.context.browser
    assert browser is not None
    stranger = browser.new_context()
    other = stranger.new_page()
    other.goto(f"{where}/control?study=small")
    other.get_by_label("Token", exact=True).wait_for()
    assert other.get_by_role("button", name="Resume study").count() == 0
    stranger.close()

    page.get_by_role("button", name="Lock").click()
    page.get_by_label("Token", exact=True).wait_for()
    page.reload()
    page.get_by_label("Token", exact=True).wait_for()
    assert_no_error_is_shown(page)
