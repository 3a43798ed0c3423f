"""Control of a study that runs: what is spent, the button that fits, a budget that is spent."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.e2e.browser import assert_no_error_is_shown
from tests.e2e.dashboard.live.study_that_runs import (
    BEGUN,
    N_TRIALS,
    TOKEN,
    LiveStudy,
    follows,
    table,
)
from tests.e2e.study_folder import wait_until
from tests.proxy import Proxy

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

pytestmark = [pytest.mark.programs, pytest.mark.timeout(300)]


def n_begun(live: LiveStudy) -> int:
    return len(live.numbers(BEGUN))


def commands(live: LiveStudy) -> list[tuple[str, str]]:
    return live.rows("select name, arguments from tuner_commands order by id")


def test_control_shows_the_present_and_asks_before_a_budget_ends_the_study(
    live: LiveStudy, page: Page
) -> None:
    page.goto(f"{live.address}/control?study=live")
    page.get_by_text("Running since").wait_for()
    page.get_by_test_id("stDataFrame").first.wait_for()

    def trials() -> list[str]:
        found = [row for row in table(page) if row.get("budget") == "trials"]
        return [found[0]["spent"], found[0]["limit"]] if found else []

    follows(page, trials, lambda: [str(n_begun(live)), str(N_TRIALS)])
    live.release()
    follows(page, trials, lambda: [str(n_begun(live)), str(N_TRIALS)])
    limits = {row["budget"]: row["limit"] for row in table(page)}
    assert limits == {
        "trials": str(N_TRIALS),
        "time": "no limit",
        "device-hours": "100",
        "energy": "no limit",
    }

    page.get_by_label("Token", exact=True).fill("wrong")
    page.get_by_role("button", name="Unlock").click()
    page.get_by_text("Wrong token.").wait_for()
    page.get_by_label("Token", exact=True).fill(TOKEN)
    page.get_by_label("Your name, for the record").fill("Ann")
    page.get_by_role("button", name="Unlock").click()
    page.get_by_role("button", name="Pause study").click()
    try:
        page.get_by_text("Paused by says to be Ann").first.wait_for()
        page.get_by_role("button", name="Pause study").wait_for(state="detached")
    finally:
        page.get_by_role("button", name="Resume study").click()
    page.get_by_role("button", name="Pause study").wait_for()
    page.get_by_text("by says to be Ann").first.wait_for()
    assert [name for name, _ in commands(live)][-2:] == ["pause", "resume"]

    before = len(commands(live))
    page.get_by_label("New value").fill("10")
    page.get_by_role("button", name="Change").click()
    page.get_by_text("trials = 10 is not above what the study has spent").wait_for()
    assert len(commands(live)) == before
    page.get_by_role("button", name="Keep the budget").click()
    page.get_by_text("trials = 10 is not above").wait_for(state="detached")
    assert len(commands(live)) == before
    page.get_by_label("New value").fill(str(N_TRIALS + 5))
    page.get_by_role("button", name="Change").click()
    wait_until(lambda: len(commands(live)) == before + 1, "the budget was sent")
    follows(page, trials, lambda: [str(n_begun(live)), str(N_TRIALS + 5)])
    page.get_by_label("New value").fill(str(N_TRIALS))
    page.get_by_role("button", name="Change").click()
    follows(page, trials, lambda: [str(n_begun(live)), str(N_TRIALS)])
    assert_no_error_is_shown(page)


def unlock(page: Page, token: str) -> None:
    page.get_by_label("Token", exact=True).fill(token)
    page.get_by_role("button", name="Unlock").click()


def test_wrong_tokens_of_one_client_delay_no_other_client(
    live: LiveStudy, page: Page, browser: Browser
) -> None:
    port = int(live.address.rpartition(":")[2])
    with Proxy(port, source="127.0.0.2") as proxy:
        guest = browser.new_page()
        guest.goto(f"http://127.0.0.1:{proxy.port}/control?study=live")
        for at in range(5):
            unlock(guest, f"wrong {at}")
            guest.get_by_text("Wrong token.").wait_for()
            guest.reload()
        unlock(guest, TOKEN)
        guest.get_by_text("Wrong token.").wait_for()
        assert guest.get_by_role("button", name="Pause study").count() == 0

        page.goto(f"{live.address}/control?study=live")
        unlock(page, TOKEN)
        page.get_by_role("button", name="Pause study").wait_for()
        # The owner's success opens nothing for the guest.
        guest.reload()
        guest.get_by_label("Token", exact=True).wait_for()
        assert guest.get_by_role("button", name="Pause study").count() == 0
    assert_no_error_is_shown(page)
