"""Debian's Chromium, and dashboards for it to look at."""

from __future__ import annotations

import os
import shutil
import socket
from collections.abc import Iterator
from typing import TYPE_CHECKING, NoReturn

import pytest

from tests.e2e.study_folder import Running, StudyFolder, wait_until

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

BROWSER_MS = 90_000
#: A figure that is no sketch any more.
DRAWN = '[data-drawn="plotly"]'


_REMEDY = "pip install playwright; apt-get install chromium fonts-dejavu-core"


def missing(what: str, remedy: str = _REMEDY) -> NoReturn:
    reason = f"{what}: {remedy}"
    if os.environ.get("CI"):
        pytest.fail(reason)
    pytest.skip(reason)


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """One for all tests of a module, which have pages and cookies of their own."""
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
        yield browser
        browser.close()


@pytest.fixture
def page(browser: Browser) -> Iterator[Page]:
    page = browser.new_page(viewport={"width": 1280, "height": 900})
    page.set_default_timeout(BROWSER_MS)
    yield page
    for context in browser.contexts:  # Those of the test itself as well.
        context.close()


def errors_of(page: Page) -> list[str]:
    """What the browser's console and the page's scripts complain about, as it comes."""
    found: list[str] = []
    page.on("pageerror", lambda error: found.append(str(error)))
    page.on(
        "console",
        lambda told: found.append(f"{told.text} {told.location}") if told.type == "error" else None,
    )
    return found


def assert_no_error_is_shown(page: Page) -> None:
    """Neither an exception nor a message about the database, once the page has been drawn."""
    page.wait_for_selector('[data-testid="stApp"][data-test-script-state="notRunning"]')
    for box in ("stException", "stAlertContentError"):
        assert page.get_by_test_id(box).all_inner_texts() == []
    assert page.get_by_role("dialog").count() == 0


def free_port() -> int:
    with socket.socket() as lent:
        lent.bind(("127.0.0.1", 0))
        return int(lent.getsockname()[1])


def dashboard(folder: StudyFolder, *words: str, port: int | None = None) -> tuple[Running, str]:
    """`tuner dashboard WORDS` once it answers, and its address."""
    port = port or free_port()
    server = folder.start_tuner("dashboard", *words, "--port", str(port))
    where = f"http://127.0.0.1:{port}"
    wait_until(lambda: where in server.out, "it says where it is")
    return server, where
