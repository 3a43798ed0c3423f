"""What a page shows while Plotly's program is on its way, and that it is read in good time."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from optuna.trial import create_trial

from tests.e2e.browser import DRAWN, dashboard, errors_of
from tests.e2e.ended_studies import address
from tests.e2e.study_folder import StudyFolder
from tests.integration.stored_studies import seeded
from tuner.app.charts.palette import COLOURS

if TYPE_CHECKING:
    from playwright.sync_api import Page

pytestmark = pytest.mark.programs

__all__ = ["address"]

#: Different colours on each canvas of the page, 1 for an empty one.
_COLOURS = """() => [...document.querySelectorAll("[data-drawn=sketch] canvas")].map(each => {
  const { data } = each.getContext("2d").getImageData(0, 0, each.width, each.height);
  return new Set(new Uint32Array(data.buffer)).size;
})"""
#: Whether the first canvas has a pixel of this colour.
_HAS_POINT = """colour => {
  const canvas = document.querySelector("[data-drawn=sketch] canvas");
  const [wide, high] = [canvas.width, canvas.height];
  const { data } = canvas.getContext("2d").getImageData(0, 0, wide, high);
  const wanted = [1, 3, 5].map(at => parseInt(colour.slice(at, at + 2), 16));
  for (let at = 0; at < data.length; at += 4) {
    if (wanted.every((value, i) => Math.abs(value - data[at + i]) < 3)) return true;
  }
  return false;
}"""
#: Whether a file with this in its name was loaded.
_READ = "name => performance.getEntriesByType('resource').some(each => each.name.includes(name))"
#: Figures of each page that are sketched.
_PAGES = {
    "convergence?study=digits": 1,
    "curves?study=digits": 1,
    "metrics?study=digits": 1,
    "parameters?study=digits": 2,
    "devices?study=week": 1,
    "devices?study=week&colour=trial": 1,
}


def test_figures_are_sketched_before_plotly_is_there(address: str, page: Page) -> None:
    errors = errors_of(page)
    page.route("**/plotly-*.js", lambda _: None)
    for path, n_figures in _PAGES.items():
        page.goto(f"{address}/{path}")
        page.wait_for_function(
            "n => document.querySelectorAll('[data-drawn=sketch]').length === n", arg=n_figures
        )
        assert all(n_colours > 10 for n_colours in page.evaluate(_COLOURS)), path
    assert errors == []


def test_a_single_report_is_a_point_of_the_sketch(tmp_path: Path, page: Page) -> None:
    folder = StudyFolder(path=tmp_path)
    one = create_trial(value=0.5, intermediate_values={1: 0.5})
    seeded.add_study(f"sqlite:///{tmp_path}/small.db", "small", [one])
    try:
        _, where = dashboard(folder, "small.db")
        page.route("**/plotly-*.js", lambda _: None)
        page.goto(f"{where}/trials?trial=0")
        page.wait_for_selector("[data-drawn=sketch]")
        assert page.evaluate(_HAS_POINT, COLOURS["completed"])
    finally:
        folder.end_all()


def test_programs_of_later_pages_are_read_on_a_page_without_them(address: str, page: Page) -> None:
    errors = errors_of(page)
    page.goto(f"{address}/trials?study=digits")
    page.wait_for_function("window.Plotly !== undefined")
    page.wait_for_function(_READ, arg="StreamlitSyntaxHighlighter")
    assert page.get_by_test_id("stCode").count() == 0
    page.get_by_role("link", name="Convergence").click()
    page.wait_for_selector(DRAWN)
    assert page.locator("script[src*='plotly-']").count() == 1
    assert errors == []


def test_the_program_for_text_is_read_on_a_page_with_a_figure(address: str, page: Page) -> None:
    page.goto(f"{address}/convergence?study=digits")
    page.wait_for_function(_READ, arg="StreamlitSyntaxHighlighter")


def _is_list(frame: bytes) -> bool:
    """Whether a message is the table of trials: the choice of columns has their titles alone."""
    return b"duration (s)" in frame and len(frame) > 10_000


def test_a_list_is_not_sent_again_when_a_trial_is_opened(address: str, page: Page) -> None:
    frames: list[bytes] = []

    def hear(payload: str | bytes) -> None:
        frames.append(payload if isinstance(payload, bytes) else payload.encode())

    page.on("websocket", lambda socket: socket.on("framereceived", hear))
    page.goto(f"{address}/trials?study=digits&live=false")
    page.locator('[data-testid="glide-cell-1-1"]').wait_for(state="attached")
    assert any(_is_list(frame) for frame in frames)
    frames.clear()
    box = page.get_by_test_id("stDataFrame").bounding_box()
    assert box is not None
    page.mouse.click(box["x"] + 18, box["y"] + 52 + 35)
    page.get_by_role("heading", name="All that is known").wait_for()
    assert len(frames) > 1
    assert not any(_is_list(frame) for frame in frames)
