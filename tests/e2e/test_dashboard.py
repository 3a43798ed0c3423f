"""`tuner dashboard` as a user starts it, and its pages in a real browser while a study runs."""

from __future__ import annotations

import os
import re
import shutil
import signal
import socket
from collections.abc import Iterator
from typing import TYPE_CHECKING, NoReturn

import pytest

from tests.e2e.study_folder import StudyFolder, wait_until
from tuner.errors import EXIT_BAD_INPUT

if TYPE_CHECKING:
    from playwright.sync_api import Page

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
_BROWSER_MS = 30_000
_PAGES = ("Studies", "Convergence", "Trials", "Devices", "Best")


def missing(what: str) -> NoReturn:
    reason = f"{what}: pip install playwright; apt-get install chromium fonts-dejavu-core"
    if os.environ.get("CI"):
        pytest.fail(reason)
    pytest.skip(reason)


@pytest.fixture
def page() -> Iterator[Page]:
    """Of Debian's Chromium."""
    try:
        from playwright.sync_api import sync_playwright
    except ImportError:
        missing("There is no Playwright")
    chromium = shutil.which("chromium")
    if chromium is None:
        missing("There is no Chromium")
    quiet = ("disable-background-networking", "disable-component-update", "disable-sync")
    words = [f"--{each}" for each in ("no-sandbox", "disable-gpu", "no-first-run", *quiet)]
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=words)
        page = browser.new_page(viewport={"width": 1280, "height": 900})
        page.set_default_timeout(_BROWSER_MS)
        yield page
        browser.close()


@pytest.fixture
def folder(study_folder: StudyFolder) -> StudyFolder:
    study_folder.write("forecast.py", STEPWISE)
    study_folder.study(devices="cpu:1", budget={"trials": 4})
    return study_folder


def free_port() -> int:
    with socket.socket() as lent:
        lent.bind(("127.0.0.1", 0))
        return int(lent.getsockname()[1])


def let_end(folder: StudyFolder, number: int) -> None:
    folder.write(f"go-{number}", "")
    query = "select count(*) from trials where state = 'COMPLETE'"
    wait_until(lambda: folder.rows(query) == [(number + 1,)], f"trial {number} has ended")


def test_missing_database_is_refused(folder: StudyFolder) -> None:
    ended = folder.tuner("dashboard", "study.yaml")
    assert ended.code == EXIT_BAD_INPUT
    assert re.search("There is no database at .* yet. Run the study first.", ended.err)


def test_unknown_study_is_refused(folder: StudyFolder) -> None:
    folder.start()
    wait_until(lambda: (folder.path / "small.db").exists(), "there is a database")
    wait_until(lambda: folder.tuner("studies").code == 0, "it can be read")
    ended = folder.tuner("dashboard", "small.db", "--study", "smal")
    assert ended.code == EXIT_BAD_INPUT
    assert "Did you mean 'small'?" in ended.err


def test_dashboard_of_a_study_that_runs(folder: StudyFolder, page: Page) -> None:
    errors: list[str] = []
    page.on("pageerror", lambda error: errors.append(str(error)))
    asked: set[str] = set()
    page.on("request", lambda request: asked.add(request.url))
    running = folder.start()
    query = "select count(*) from sqlite_master where name = 'tuner_leases'"
    wait_until(lambda: (folder.path / "small.db").exists(), "there is a database")
    wait_until(lambda: folder.rows(query) == [(1,)], "it has tables")
    let_end(folder, 0)
    port = free_port()
    server = folder.start_tuner("dashboard", "study.yaml", "--port", str(port))
    wait_until(lambda: f"http://127.0.0.1:{port}" in server.out, "it says where it is")

    page.goto(f"http://127.0.0.1:{port}/convergence")
    page.wait_for_selector(".js-plotly-plot .main-svg")
    finished = page.locator('[data-testid="stMetricValue"]').nth(1)
    assert finished.inner_text() == "1"
    assert "study=small" in page.url
    let_end(folder, 1)
    page.wait_for_function(
        "document.querySelectorAll('[data-testid=\"stMetricValue\"]')[1].innerText === '2'"
    )

    for name in _PAGES:
        page.get_by_role("link", name=name).click()
        page.get_by_role("heading", name=name, exact=True).wait_for()
        page.wait_for_selector('[data-testid="stDataFrame"], .js-plotly-plot, pre')
        assert page.locator('[data-testid="stException"]').count() == 0
        assert "study=small" in page.url
    assert errors == []
    strange = [url for url in asked if not re.match(r"(http://127\.0\.0\.1:|data:|blob:)", url)]
    assert strange == []

    server.signal(signal.SIGINT)
    ended = server.wait()
    assert (ended.code, "Traceback" in ended.text) == (0, False)
    assert running.process.poll() is None
