"""Distribution of values and trials per hour of a study that runs, as in its database."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import pytest

from tests.e2e.browser import DRAWN, assert_no_error_is_shown
from tests.e2e.dashboard.live.study_that_runs import LiveStudy, follows, traces

if TYPE_CHECKING:
    from playwright.sync_api import Page

pytestmark = [pytest.mark.programs, pytest.mark.timeout(300)]


def test_a_distribution_has_a_step_for_each_completed_trial(live: LiveStudy, page: Page) -> None:
    page.goto(f"{live.address}/metrics?study=live&view=distribution")
    page.locator(DRAWN).wait_for()

    def shown() -> list[tuple[float, float]]:
        found = [each for each in traces(page) if each["name"].startswith("completed")]
        return list(zip(found[0]["x"], found[0]["y"], strict=True)) if found else []

    def known() -> Any:
        values = sorted(live.values().values())
        return [
            (pytest.approx(value), pytest.approx(100 * at / len(values)))
            for at, value in enumerate(values, start=1)
        ]

    follows(page, shown, known)
    before = len(shown())
    live.release()
    follows(page, shown, known)
    assert len(shown()) == before + 1
    names = [each["name"] for each in traces(page)]
    assert f"completed ({before + 1})" in names
    assert_no_error_is_shown(page)


def test_bars_of_trials_per_hour_add_up_to_those_that_ended(live: LiveStudy, page: Page) -> None:
    page.goto(f"{live.address}/metrics?study=live&view=trials+per+hour")
    page.locator(DRAWN).wait_for()
    said = page.get_by_text(re.compile(r"^\d+ trials ended in "))

    def ended() -> int:
        return len(live.numbers("state in ('COMPLETE', 'PRUNED', 'FAIL')"))

    def shown() -> list[int]:
        bars = sum(each[0] for trace in traces(page) for each in trace["numbers"] or [])
        return [round(bars), *(int(each.split()[0]) for each in said.all_inner_texts())]

    follows(page, shown, lambda: [ended()] * 2)
    live.release()
    follows(page, shown, lambda: [ended()] * 2)
    n_completed = sum(
        each[0]
        for trace in traces(page)
        if trace["name"] == "completed"
        for each in trace["numbers"]
    )
    assert n_completed == len(live.completed())
    assert_no_error_is_shown(page)
