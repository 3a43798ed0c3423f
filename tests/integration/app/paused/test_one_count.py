"""Progress is the same on the Studies page, in `tuner status` and in the live view."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import Any

import pytest

from tests.integration.app.pages import opened
from tests.integration.app.paused.test_paused_trials import rows, show
from tests.integration.app.paused_study import N_TRIALS, PausedStudy
from tests.integration.stored_studies import seeded
from tuner.config import BudgetConfig
from tuner.queries.locate import StoredStudy
from tuner.queries.status import StudyStatus, read_status
from tuner.terminal.studies import status_text

__all__ = ["show"]
_FILE_LIMIT = 40


def counted(study: PausedStudy, at: str) -> tuple[int, int, int]:
    """Trials that have begun, have finished and are paused, counted in the database."""
    path = getattr(study, at)
    # One that was suggested ahead of time, and waits for its device, is of the budget as well.
    begun = rows(
        path,
        "SELECT count(*) FROM trials WHERE state <> 'WAITING' "
        "OR trial_id IN (SELECT trial_id FROM tuner_attempts)",
    )[0][0]
    ended = "SELECT count(*) FROM trials WHERE state IN ('COMPLETE', 'PRUNED', 'FAIL')"
    waiting = "SELECT trial_id FROM trials WHERE state = 'WAITING'"
    paused = rows(
        path,
        "SELECT count(*) FROM tuner_attempts a WHERE outcome = 'paused' "
        f"AND trial_id IN ({waiting}) AND number = (SELECT max(number) FROM tuner_attempts b "
        "WHERE b.trial_id = a.trial_id)",
    )[0][0]
    return begun, rows(path, ended)[0][0], paused


def status_of(study: PausedStudy, at: str) -> StudyStatus:
    budget = BudgetConfig(trials=_FILE_LIMIT)
    with seeded.looking(f"sqlite:///{getattr(study, at)}") as connection:
        stored = StoredStudy(id=seeded.study_id(connection, "paused"), name="paused")
        return read_status(connection, stored, budget, datetime.now(UTC))


@pytest.mark.parametrize("at", ["middle", "end"])
def test_page_and_status_count_alike(paused_study: PausedStudy, show: Any, at: str) -> None:
    begun, finished, paused = counted(paused_study, at)
    expected = f"{finished} of {N_TRIALS} trials finished, {begun} begun"
    expected += f", {paused} paused" if paused else ""
    show(getattr(paused_study, at))
    (row,) = (row for _, row in opened("studies").dataframe[0].value.iterrows())
    assert row["trials"] == expected
    status = status_of(paused_study, at)
    text = status_text(status, datetime.now(UTC))
    (percent,) = re.findall(rf"\nprogress: (\d+) % \({expected}\)\n", text)
    assert round(row["progress"]) == int(percent)
    assert int(percent) == round(100 * finished / N_TRIALS)


def test_flags_of_the_last_start_count_while_the_file_is_the_same(
    paused_study: PausedStudy,
) -> None:
    """The file allows more than `--trials` did: "12 of 12" trials are spent, not "12 of 40"."""
    status = status_of(paused_study, "end")
    assert status.budget.trials == N_TRIALS != _FILE_LIMIT
    assert status.standing.value == "finished"
