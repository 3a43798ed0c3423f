"""The table and the page of a trial of a study that runs: filters, columns, log, notes, links."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.e2e.browser import assert_no_error_is_shown, errors_of
from tests.e2e.dashboard.live.study_that_runs import (
    FAILED,
    N_STEPS,
    NOT_A_NUMBER,
    OUT_OF_MEMORY,
    TOKEN,
    LiveStudy,
    follows,
    table,
)
from tuner.app.data.digits import four_digits

if TYPE_CHECKING:
    from playwright.sync_api import Page

pytestmark = [pytest.mark.programs, pytest.mark.timeout(300)]

_OPTIMIZER = """
    select number from trials join studies using (study_id) join trial_params using (trial_id)
    where study_name = 'live' and param_name = 'optimizer' and param_value = ?
"""
_SGD = 0.0
_BEGUN = """
    select distinct t.number from tuner_attempts a join trials t using (trial_id)
"""


def filter_by(page: Page, text: str) -> None:
    page.get_by_label("Filter").fill(text)
    page.keyboard.press("Enter")


def count(page: Page) -> str:
    found = page.get_by_text(re.compile(r"^\d+ of \d+ trials\. Select one")).all_inner_texts()
    return found[0] if found else ""


def open_trial(page: Page, live: LiveStudy, number: int) -> None:
    page.goto(f"{live.address}/trials?study=live&trial={number}")
    page.get_by_role("heading", name=f"Trial {number}", exact=True).wait_for()
    page.get_by_role("heading", name="All that is known").wait_for()


def test_a_filter_takes_or_in_and_quotes_and_names_what_it_cannot_read(
    live: LiveStudy, page: Page
) -> None:
    page.goto(f"{live.address}/trials?study=live")
    page.get_by_test_id("stDataFrame").wait_for()
    filter_by(page, f'trial in ({FAILED}, {NOT_A_NUMBER}) or outcome == "out of memory"')
    wanted = {FAILED, NOT_A_NUMBER, OUT_OF_MEMORY}
    follows(page, lambda: {int(row["trial"]) for row in table(page)}, lambda: wanted)

    filter_by(page, "optimizer == sgd and trial >= 24")

    def known() -> str:
        n_all = len(live.numbers("1"))
        n_sgd = sum(number >= 24 for (number,) in live.rows(_OPTIMIZER, _SGD))
        return f"{n_sgd} of {n_all} trials. Select one at its left to open it."

    follows(page, lambda: count(page), known)
    live.release()
    follows(page, lambda: count(page), known)
    for text, named in (
        ("lr < abc", "Filter compares 'lr', which is a number, with 'abc'."),
        ("rate < 1", "Filter has no column 'rate'. There are: trial, outcome, accuracy"),
        ("lr < 1 and and", "Filter can't be read at 'and'"),
    ):
        filter_by(page, text)
        page.get_by_test_id("stAlertContentError").filter(has_text=named).wait_for()


def test_columns_are_chosen_and_ordered_in_the_address(live: LiveStudy, page: Page) -> None:
    page.goto(f"{live.address}/trials?study=live&columns=width&columns=accuracy&columns=lr")
    page.get_by_test_id("stDataFrame").wait_for()
    wanted = ["trial", "width", "accuracy", "lr"]
    follows(page, lambda: [each for each in (table(page) or [{}])[0] if each], lambda: wanted)
    page.get_by_role("combobox", name="Columns").fill("duration (s)")
    page.keyboard.press("Enter")
    page.wait_for_url(re.compile(r"columns=duration"))
    new = live.release()
    wanted.append("duration (s)")
    follows(page, lambda: [each for each in (table(page) or [{}])[0] if each], lambda: wanted)
    page.reload()
    page.get_by_test_id("stDataFrame").wait_for()
    follows(page, lambda: [each for each in (table(page) or [{}])[0] if each], lambda: wanted)
    row = next(row for row in table(page) if row["trial"] == str(new))
    assert float(row["accuracy"]) == pytest.approx(live.values()[new])


def test_a_page_of_a_trial_begins_with_what_became_of_it_and_its_log_is_clean(
    live: LiveStudy, page: Page, tmp_path: Path
) -> None:
    errors = errors_of(page)
    number = live.held()[0]
    open_trial(page, live, number)
    page.get_by_text("Running.", exact=True).wait_for()
    log = page.get_by_test_id("stCode").first
    lines = [f"trial {number} begins at step 0", "red warning", "progress 100 %", "step 1"]
    follows(page, lambda: log.inner_text().strip().splitlines(), lambda: lines)

    assert live.release() == number
    sentence = f"Completed with accuracy {four_digits(live.values()[number])}."
    said = page.get_by_text(sentence)
    said.wait_for()
    lines += [f"step {step}" for step in range(2, N_STEPS + 1)]
    follows(page, lambda: log.inner_text().strip().splitlines(), lambda: lines)
    box = said.bounding_box()
    assert box is not None
    assert box["y"] < 400
    tops = [
        page.locator(".js-plotly-plot").first,
        *(page.get_by_role("heading", name=name) for name in ("Log", "Parameters", "Attempt 1")),
    ]
    places = [found["y"] for each in tops if (found := each.bounding_box())]
    assert places == sorted(places)
    assert len(places) == 4

    page.get_by_label("Search the log").fill("WARN")
    page.keyboard.press("Enter")
    page.get_by_text(f"1 of {len(lines)} lines of the log with this text.").wait_for()
    # A click while the page is drawn again would be lost.
    assert_no_error_is_shown(page)
    with page.expect_download() as download:
        page.get_by_role("button", name="Download", exact=True).click()
    download.value.save_as(tmp_path / "log")
    query = """
        select log_path from tuner_attempts join trials using (trial_id) where trials.number = ?
    """
    ((path,),) = live.rows(query, number)
    assert (tmp_path / "log").read_bytes() == Path(path).read_bytes()
    assert b"\x1b[31m" in (tmp_path / "log").read_bytes()
    assert_no_error_is_shown(page)
    assert errors == []


def test_failures_say_what_happened_and_show_no_result(live: LiveStudy, page: Page) -> None:
    for number, sentence in (
        (FAILED, "Failed: RuntimeError: no data in <b>here</b>."),
        (OUT_OF_MEMORY, "Out of memory, after 2 attempts: MemoryError: out of memory."),
        (NOT_A_NUMBER, re.compile("^Not a number.*The value of accuracy is not a number")),
    ):
        open_trial(page, live, number)
        page.get_by_text(sentence).first.wait_for()
        assert page.get_by_test_id("stMetricLabel").filter(has_text="result").count() == 0
        # Drawn last: until then the last code of the page is another one.
        assert_no_error_is_shown(page)
        known = page.get_by_test_id("stCode").last.inner_text()
        word = {FAILED: "failed", OUT_OF_MEMORY: "out of memory"}.get(number, "not a number")
        assert known.startswith(f"Trial {number} of study 'live': {word}\n")
    assert page.locator("b").filter(has_text="here").count() == 0


def test_the_command_that_runs_a_trial_alone_gives_its_value(live: LiveStudy, page: Page) -> None:
    number = live.completed()[0]
    open_trial(page, live, number)
    command = page.get_by_test_id("stCode").filter(has_text="cd ").first.inner_text()
    ended = live.folder.run("bash", "-c", command)
    assert ended.code == 0, ended.text
    assert float(ended.out.split()[-1]) == pytest.approx(live.values()[number])


def test_a_link_to_a_missing_trial_says_so_until_there_is_one(live: LiveStudy, page: Page) -> None:
    for text in ("9" * 30, "-1", "abc"):
        page.goto(f"{live.address}/trials?study=live&trial={text}")
        page.get_by_text(f"There is no trial '{text}' in study live").wait_for()
        assert_no_error_is_shown(page)
    new = max(live.numbers("1")) + 1
    page.goto(f"{live.address}/trials?study=live&trial={new}")
    page.get_by_text(f"There is no trial {new} in study live").wait_for()
    while new not in live.held():
        live.release()
    page.get_by_text("Running.", exact=True).wait_for()
    assert f"trial={new}" in page.url
    page.goto(f"{live.address}/trials?study=no+such")
    page.get_by_text("This database has no study 'no such'").wait_for()
    assert page.get_by_test_id("stDataFrame").count() == 0


def test_a_note_and_tags_are_written_with_the_token_and_shown(live: LiveStudy, page: Page) -> None:
    page.goto(f"{live.address}/control?study=live")
    page.get_by_label("Token", exact=True).fill(TOKEN)
    page.get_by_label("Your name, for the record").fill("Ann")
    page.get_by_role("button", name="Unlock").click()
    page.get_by_role("button", name="Pause study").wait_for()
    number = live.held()[0]
    open_trial(page, live, number)
    page.get_by_role("button", name="Add a note or tags").click()
    page.get_by_label("Note", exact=True).fill("warm-up was <i>wrong</i>")
    page.get_by_label("Tags, with commas between them").fill("redo, odd")
    page.get_by_test_id("stBaseButton-secondaryFormSubmit").click()
    page.get_by_text("Noted by says to be Ann (dashboard)").wait_for()
    key = f"tuner:note:{number}"
    ((stored,),) = live.rows("select value_json from study_user_attributes where key = ?", key)
    assert "warm-up was <i>wrong</i>" in json.dumps(json.loads(stored))
    page.goto(f"{live.address}/trials?study=live&columns=tags+(noted)&columns=note+(noted)")
    page.get_by_text("redo", exact=True).first.click()
    follows(page, lambda: [row["trial"] for row in table(page)], lambda: [str(number)])
    (row,) = table(page)
    assert set(row["tags (noted)"].split(", ")) == {"redo", "odd"}
    assert row["note (noted)"] == "warm-up was <i>wrong</i>"
    assert_no_error_is_shown(page)


def test_a_trial_that_was_suggested_ahead_waits_and_has_no_duration(
    live: LiveStudy, page: Page
) -> None:
    """One at most: the table says `running` of those alone that have an attempt."""
    page.goto(f"{live.address}/trials?study=live&where=trial+>=+24")
    page.get_by_test_id("stDataFrame").wait_for()

    def known() -> dict[str, str]:
        begun = {number for (number,) in live.rows(_BEGUN)}
        open_trials = live.numbers("state = 'RUNNING' and number >= 24")
        return {str(each): "running" if each in begun else "waiting" for each in open_trials}

    def shown() -> dict[str, str]:
        return {
            row["trial"]: row["outcome"]
            for row in table(page)
            if row["outcome"] in ("running", "waiting")
        }

    follows(page, shown, known)
    for row in table(page):
        assert (row["duration (s)"] == "") == (row["outcome"] == "waiting")
