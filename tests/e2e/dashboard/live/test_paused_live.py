"""Paused trials and progress of a study that runs, on each page as in the database."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import pytest

from tests.e2e.browser import DRAWN, assert_no_error_is_shown
from tests.e2e.dashboard.live.study_that_runs import (
    BEGUN,
    N_TRIALS,
    LiveStudy,
    follows,
    points,
    table,
)

if TYPE_CHECKING:
    from playwright.sync_api import Page

pytestmark = [pytest.mark.programs, pytest.mark.timeout(300)]

_X_TITLE = "() => document.querySelector('.js-plotly-plot')._fullLayout.xaxis.title.text"


def left_s(live: LiveStudy) -> dict[int, float]:
    """Seconds from the first attempt of the study to the end of the last one of each trial."""
    query = """
        select t.number, min(a.leased_at), max(a.ended_at) from tuner_attempts a
        join trials t using (trial_id) where a.ended_at is not null group by t.number
    """
    seconds = {
        number: [datetime.fromisoformat(each).replace(tzinfo=UTC).timestamp() for each in instants]
        for number, *instants in live.rows(query)
    }
    first = min(begin for begin, _ in seconds.values())
    return {number: end - first for number, (_, end) in seconds.items()}


def test_paused_trials_have_a_state_their_last_report_and_a_filter(
    live: LiveStudy, page: Page
) -> None:
    page.goto(f"{live.address}/trials?study=live")
    page.get_by_test_id("stDataFrame").wait_for()
    page.get_by_text("paused", exact=True).first.click()
    paused = live.paused()
    count = f"{len(paused)} of {len(live.numbers('1'))} trials."
    page.get_by_text(count).wait_for()

    def outcomes() -> set[str]:
        return {row["outcome"] for row in table(page)}

    follows(page, outcomes, lambda: {"paused"})
    shown = {int(row["trial"]): row for row in table(page)}
    assert len(shown) >= 10
    assert shown.keys() <= paused.keys()
    for number, row in shown.items():
        step, value = paused[number]
        assert (row["outcome"], row["last step"]) == ("paused", str(step))
        assert float(row["last accuracy"]) == pytest.approx(value)
        assert float(row["duration (s)"]) > 0
    assert "None" not in {cell for row in shown.values() for cell in row.values()}
    assert_no_error_is_shown(page)


def test_paused_trials_are_where_they_were_left(live: LiveStudy, page: Page) -> None:
    page.goto(f"{live.address}/convergence?study=live&against=wall+time")
    page.locator(DRAWN).wait_for()
    expected = {number: value for number, (_, value) in live.paused().items()}
    follows(page, lambda: points(page, "paused").keys(), expected.keys)
    drawn = points(page, "paused")
    unit_s = {"s": 1.0, "min": 60.0, "h": 3600.0}[
        re.findall(r"\((\w+)\)", page.evaluate(_X_TITLE))[0]
    ]
    ends = left_s(live)
    for number, (x, y) in drawn.items():
        assert y == pytest.approx(expected[number])
        assert x * unit_s == pytest.approx(ends[number], abs=0.05)
    # No vertical wall at the right edge.
    assert len({round(x * unit_s, 2) for x, _ in drawn.values()}) > len(drawn) / 2
    assert_no_error_is_shown(page)


def counts(live: LiveStudy) -> str:
    """As every view of progress writes them, counted in the database."""
    n_ended = len(live.numbers("state in ('COMPLETE', 'PRUNED', 'FAIL')"))
    n_begun = len(live.numbers(BEGUN))
    paused = len(live.paused())
    return f"{n_ended} of {N_TRIALS} trials finished, {n_begun} begun, {paused} paused"


def test_every_view_counts_alike_and_follows_the_study(live: LiveStudy, page: Page) -> None:
    page.goto(f"{live.address}/?study=live")
    page.get_by_test_id("stDataFrame").wait_for()

    def row() -> dict[str, str]:
        return next((each for each in table(page) if "study=live" in each["study"]), {})

    for _ in range(2):
        follows(page, lambda: row().get("trials"), lambda: counts(live))
        share = 100 * len(live.numbers("state in ('COMPLETE', 'PRUNED', 'FAIL')")) / N_TRIALS
        assert float(row()["progress (%)"]) == pytest.approx(share)
        assert row()["state"] == "running"
        status = live.folder.tuner("status", "small.db", "--study", "live").out
        assert f"progress: {share:.0f} % ({counts(live)})" in status
        live.release()
    page.goto(f"{live.address}/convergence?study=live")
    page.locator(DRAWN).wait_for()
    n_ended = len(live.numbers("state in ('COMPLETE', 'PRUNED', 'FAIL')"))
    n_open = len(live.numbers("state in ('RUNNING', 'WAITING')")) - len(live.paused())
    metrics = [str(n_ended), str(n_open), str(len(live.paused()))]
    shown = page.get_by_test_id("stMetricValue")
    follows(page, lambda: shown.all_inner_texts()[1:4], lambda: metrics)
    assert_no_error_is_shown(page)
