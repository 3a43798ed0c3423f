"""The best configuration of a study whose leaders run again at this moment."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.e2e.browser import assert_no_error_is_shown, dashboard
from tests.e2e.dashboard.live.study_that_runs import follows, table
from tests.e2e.study_folder import StudyFolder, wait_until
from tuner.app.data.digits import four_digits

if TYPE_CHECKING:
    from playwright.sync_api import Page

pytestmark = [pytest.mark.programs, pytest.mark.timeout(300)]

#: What was best by its single value is the worst when it runs again. In one piece, the name
#: `checkpoint_dir` would have torch imported ahead.
PROGRAM = """
import time
from pathlib import Path

def train(trial):
    x = trial.params["x"]
    folder = getattr(trial, "check" + "point_dir")
    if ".confirm" not in str(folder):
        return x
    while trial.number == 3 and not Path("go").exists():
        time.sleep(0.02)
    return 1 - x + 0.001 * (trial.seed % 7)
"""
_RUNS = """
    select a.value_json, v.value from trials join studies using (study_id)
    join trial_user_attributes a using (trial_id) left join trial_values v using (trial_id)
    where study_name = 'small.confirm' and a.key = 'tuner:confirms' order by number
"""


def test_the_table_of_confirmation_runs_says_which_trial_is_the_best_and_why(
    study_folder: StudyFolder, page: Page
) -> None:
    study_folder.write("forecast.py", PROGRAM)
    study_folder.study(
        storage="sqlite:///small.db",
        objectives={"value": "maximize"},
        pruner="none",
        devices="cpu:1",
        budget={"trials": 5},
        confirm={"top": 2, "seeds": 2},
    )
    study_folder.start()
    wait_until(lambda: (study_folder.path / "small.db").exists(), "there is a database")

    def ended() -> list[tuple[int, float]]:
        try:
            return [(int(of), value) for of, value in study_folder.rows(_RUNS) if value is not None]
        except Exception:  # No tables yet.
            return []

    wait_until(lambda: len(ended()) == 3, "three of four runs have ended")
    _, where = dashboard(study_folder, "study.yaml")
    page.goto(f"{where}/best?study=small")
    page.get_by_text("so far (1 of 4 runs have not ended)").wait_for()

    def shown() -> dict[int, tuple[int, float]]:
        return {
            int(row["trial"]): (int(row["confirmation runs"]), float(row["mean value"]))
            for row in table(page)
        }

    def known() -> dict[int, tuple[int, float]]:
        by_trial: dict[int, list[float]] = {}
        for of, value in ended():
            by_trial.setdefault(of, []).append(value)
        return {
            of: (len(values), pytest.approx(sum(values) / len(values)))
            for of, values in by_trial.items()
        }

    follows(page, shown, known)
    study_folder.write("go", "")
    wait_until(lambda: len(ended()) == 4, "the last run has ended")
    follows(page, shown, known)
    means = {of: mean.expected for of, (_, mean) in known().items()}
    singles = dict(
        study_folder.rows(
            "select number, value from trials join trial_values using (trial_id) "
            "join studies using (study_id) where study_name = 'small'"
        )
    )
    best, single = max(means, key=means.__getitem__), max(singles, key=singles.__getitem__)
    assert best != single
    said = f"Trial {best} is the best: its mean value over 2 confirmation runs with new seeds"
    page.get_by_text(said).wait_for()
    page.get_by_text(f"trial {single}, which the other pages show as the best").wait_for()
    page.get_by_text(f"Trial {best}: value {four_digits(singles[best])}").wait_for()
    assert f"trial_number: {best}" in page.get_by_test_id("stCode").first.inner_text()
    assert_no_error_is_shown(page)
