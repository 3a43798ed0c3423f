"""Every page in a real browser at desktop and phone width, light and dark, for people to look at.

The pictures lie in the folder that `DASHBOARD_PICTURES` names, or in the test's own. The test fails
where a page shows an error, or is wider than a phone.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.e2e.browser import BROWSER_MS, assert_no_error_is_shown, dashboard, errors_of
from tests.e2e.ended_studies import address
from tests.e2e.study_folder import StudyFolder, wait_until
from tests.nvml_stub import NvmlStub, StubGpu

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

pytestmark = pytest.mark.programs

__all__ = ["address"]

SIZES = {"desktop": (1280, 900), "phone": (390, 844)}
#: Every figure is drawn in the colours that the page has now.
IN_ITS_COLOURS = """() => [...document.querySelectorAll("[data-drawn=plotly]")].every(each =>
  each.dataset.colour === getComputedStyle(each).getPropertyValue("--st-text-color").trim())"""
#: Streamlit fades what it shows anew, and a picture does not wait half a second for that.
NOT_FADED = "[data-testid=stElementContainer] { opacity: 1 !important }"


@dataclass(frozen=True, kw_only=True)
class Subject:
    """A page to take pictures of."""

    path: str
    #: At least so many are on it.
    n_figures: int = 0


#: By the name of a picture. The first page has no name of its own in an address.
PAGES = {
    "studies": Subject(path="?study=digits"),
    "convergence": Subject(path="convergence?study=digits", n_figures=1),
    "curves": Subject(path="curves?study=digits&trial=239", n_figures=1),
    "population": Subject(path="curves?study=population&trial=18", n_figures=2),
    "parameters": Subject(path="parameters?study=digits", n_figures=2),
    "slices": Subject(path="parameters?study=digits&figure=slices", n_figures=2),
    "contour": Subject(path="parameters?study=digits&figure=contour", n_figures=2),
    "rank": Subject(path="parameters?study=digits&figure=rank", n_figures=2),
    "trials": Subject(path="trials?study=digits"),
    "trial": Subject(path="trials?study=first&trial=3", n_figures=1),
    "devices": Subject(path="devices?study=week", n_figures=2),
    "best": Subject(path="best?study=digits"),
    "control": Subject(path="control?study=digits"),
}
#: Of a study whose trials use two GPUs at this moment.
LIVE_PAGES = {
    "devices-now": Subject(path="devices?study=small&colour=trial", n_figures=2),
    "trial-use": Subject(path="trials?study=small&trial=2", n_figures=2),
}
#: Reports at once, and ends when its file is there.
WAITS = """
import time
from pathlib import Path

def train(trial):
    for step in range(1, 8):
        trial.report(1 - 0.7**step * trial.params["x"], step)
    while not Path(f"go-{trial.number}").exists():
        time.sleep(0.02)
    return trial.params["x"]
"""


_RUNNING = """
    select trials.number from tuner_attempts a join trials on trials.trial_id = a.trial_id
    where lower(a.state) = 'running' order by trials.number
"""


def picture_folder(tmp_path: Path) -> Path:
    folder = Path(os.environ.get("DASHBOARD_PICTURES", tmp_path))
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def take_pictures(browser: Browser, where: str, pages: Mapping[str, Subject], folder: Path) -> None:
    for size, (width, height) in SIZES.items():
        context = browser.new_context(viewport={"width": width, "height": height})
        page = context.new_page()
        page.set_default_timeout(BROWSER_MS)
        errors = errors_of(page)
        for name, subject in pages.items():
            open_page(page, f"{where}/{subject.path}", subject.n_figures)
            # Streamlit scrolls a part of the page: to be seen as a whole it must fit.
            content = page.evaluate("document.querySelector('[data-testid=stMain]').scrollHeight")
            page.set_viewport_size({"width": width, "height": max(height, content)})
            take_light_and_dark(page, folder / f"{name}-{size}")
            check_page(page, name, width)
            page.set_viewport_size({"width": width, "height": height})
        context.close()
        assert errors == []


def check_page(page: Page, name: str, width: int) -> None:
    assert_no_error_is_shown(page)
    wide = page.evaluate("document.documentElement.scrollWidth")
    assert wide <= width, f"{name} is {wide} px wide"


def open_page(page: Page, where: str, n_figures: int) -> None:
    page.goto(where)
    page.wait_for_selector('[data-testid="stHeading"]')
    page.wait_for_selector(
        '[data-drawn="plotly"], [data-testid="stDataFrame"], [data-testid="stForm"], pre'
    )
    page.wait_for_function(
        "n => document.querySelectorAll('[data-drawn=plotly]').length >= n", arg=n_figures
    )


def take_light_and_dark(page: Page, stem: Path) -> None:
    for scheme in ("dark", "light"):
        page.emulate_media(color_scheme="dark" if scheme == "dark" else "light")
        page.wait_for_function(IN_ITS_COLOURS)
        # Colours that are still on their way are there at once.
        path = stem.with_name(f"{stem.name}-{scheme}.png")
        page.screenshot(path=path, animations="disabled", style=NOT_FADED)


@pytest.mark.timeout(600)
def test_every_page_fits_a_phone(address: str, browser: Browser) -> None:
    width, height = SIZES["phone"]
    page = browser.new_page(viewport={"width": width, "height": height})
    page.set_default_timeout(BROWSER_MS)
    errors = errors_of(page)
    for name, subject in PAGES.items():
        open_page(page, f"{address}/{subject.path}", subject.n_figures)
        check_page(page, name, width)
        if name == "population":
            page.emulate_media(color_scheme="dark")
            page.wait_for_function(IN_ITS_COLOURS)
    assert errors == []


@pytest.mark.nightly
@pytest.mark.timeout(900)
def test_pictures_of_every_page(address: str, browser: Browser, tmp_path: Path) -> None:
    take_pictures(browser, address, PAGES, picture_folder(tmp_path))


@pytest.mark.nightly
@pytest.mark.timeout(600)
def test_pictures_of_a_study_that_runs(
    gpu_folder: StudyFolder, nvml_stub: NvmlStub, browser: Browser, tmp_path: Path
) -> None:
    use_gpus(nvml_stub, 0)
    gpu_folder.write("waits.py", WAITS)
    gpu_folder.study(trial={"function": "waits:train"}, devices="auto", budget={"trials": 9})
    gpu_folder.start()
    there = "select count(*) from sqlite_master where name = 'tuner_usage'"
    wait_until(lambda: (gpu_folder.path / "small.db").exists(), "there is a database")
    wait_until(lambda: gpu_folder.rows(there) == [(1,)], "it has tables")
    for number in range(2):
        gpu_folder.write(f"go-{number}", "")
    wait_until(lambda: gpu_folder.rows(_RUNNING) == [(2,), (3,)], "two trials have a GPU each")
    seen = "select count(distinct start_s) from tuner_usage"
    for step in range(1, 9):
        ((n_before,),) = gpu_folder.rows(seen)
        use_gpus(nvml_stub, step)
        wait_until(lambda n=n_before: gpu_folder.rows(seen)[0][0] > n, "there are new samples")
    _, where = dashboard(gpu_folder, "study.yaml")
    take_pictures(browser, where, LIVE_PAGES, picture_folder(tmp_path))


def use_gpus(nvml_stub: NvmlStub, step: int) -> None:
    """Two GPUs that are used more and more; free at first, as the tuner wants them."""
    nvml_stub.write(
        [
            StubGpu(
                uuid=f"GPU-{name}",
                utilization_pct=min(99, start + 9 * step),
                used_mib=3 + (9_000 - 6_000 * place) * step,
                power_mw=(120 + 60 * step) * 1000,
                temperature_c=40 + 3 * step,
                sm_clock_mhz=1_980,
                pcie_bytes=(10**9 * step, 10**8 * step),
            )
            for place, (name, start) in enumerate((("aaaa", 30), ("bbbb", 5)))
        ]
    )
