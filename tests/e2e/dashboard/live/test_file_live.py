"""A database file that is deleted, replaced and brought back while its page is open."""

from __future__ import annotations

from typing import TYPE_CHECKING

import optuna
import pytest

from tests.e2e.browser import assert_no_error_is_shown, dashboard
from tests.e2e.dashboard.live.study_that_runs import add_study_of_optuna, follows, line_of
from tests.e2e.study_folder import StudyFolder, wait_until
from tuner.errors import EXIT_STUDY_FAILED

if TYPE_CHECKING:
    from playwright.sync_api import Page

pytestmark = [pytest.mark.programs, pytest.mark.timeout(300)]

PROGRAM = """
import time
from pathlib import Path

def train(trial):
    while trial.number >= 2 and not Path("go").exists():
        time.sleep(0.02)
    return 1.0 + trial.number
"""


def test_a_page_shows_the_file_that_is_there_now(study_folder: StudyFolder, page: Page) -> None:
    study_folder.write("forecast.py", PROGRAM)
    study_folder.study(devices="cpu:1", budget={"trials": 4}, objectives={"value": "maximize"})
    running = study_folder.start()
    wait_until(lambda: "trial 2: started" in running.out, "two trials have ended")
    _, where = dashboard(study_folder, "small.db")
    page.goto(f"{where}/convergence?study=small")
    follows(page, lambda: line_of(page, "best so far")[-1:], lambda: [2.0])

    for path in study_folder.path.glob("small.db*"):
        path.unlink()
    page.get_by_text("There is no database").first.wait_for()
    assert running.wait().code == EXIT_STUDY_FAILED
    rescued = study_folder.path / "small.rescued.db"
    held = study_folder.path / "held.db"
    rescued.rename(held)

    url = f"sqlite:///{study_folder.path / 'new.db'}"
    add_study_of_optuna(url, "small", [5.0, 7.0], direction="maximize", metric="value")
    (study_folder.path / "new.db").rename(study_folder.path / "small.db")
    follows(page, lambda: line_of(page, "best so far")[-1:], lambda: [7.0])

    held.rename(study_folder.path / "small.db")
    follows(page, lambda: line_of(page, "best so far")[-1:], lambda: [2.0])
    study_folder.write("go", "")
    study_folder.start()
    follows(page, lambda: line_of(page, "best so far")[-1:], lambda: [4.0])
    study = optuna.load_study(study_name="small", storage=f"sqlite:///{study_folder.path}/small.db")
    assert study.best_value == 4.0
    assert_no_error_is_shown(page)
