"""Makes docs/images/dashboard-*.png: pages of made-up studies, in Debian's Chromium.

python docs/dashboard_pictures.py
"""

from __future__ import annotations

import shutil
import tempfile
from datetime import UTC, datetime, timedelta
from pathlib import Path
from random import Random

import sqlalchemy as sa
from optuna.trial import TrialState
from playwright.sync_api import sync_playwright

from tests.e2e.browser import dashboard
from tests.e2e.ended_studies import N_TRIALS, a_trial
from tests.e2e.study_folder import StudyFolder
from tests.integration.app.devices.device_week import add_week
from tests.integration.stored_studies import seeded
from tuner.domain.attempt import AttemptState
from tuner.store.optuna_tables.statements import TRIALS
from tuner.store.schema.models import AttemptRow, IdleRow, LeaseRow, table_of

IMAGES = Path(__file__).parent / "images"
N_GPUS = 8
START_S = 12
#: Without the menu at the left, and what follows below.
LEFT_PX, TOP_PX, WIDTH_PX = 310, 60, 960
#: Page, colours and height by the name of the picture.
PAGES = {
    "dashboard-devices": ("devices?study=week", "dark", 1232),
    "dashboard-convergence": ("convergence?study=digits", "light", 860),
}


def main() -> None:
    with tempfile.TemporaryDirectory() as made, sync_playwright() as playwright:
        folder = StudyFolder(path=Path(made))
        url = f"sqlite:///{folder.path}/small.db"
        # Browser and server start meanwhile: older samples than some seconds are not the present.
        soon = datetime.now(UTC) + timedelta(seconds=START_S)
        add_week(url, soon, days=0.5, trial_s=1_800)
        let_newest_run(url)
        random = Random(0)
        trials = [a_trial(random, number) for number in range(N_TRIALS)]
        seeded.add_study(url, "digits", trials, directions=("maximize",), objectives=("accuracy",))
        _, where = dashboard(folder, "small.db")
        browser = playwright.chromium.launch(
            executable_path=shutil.which("chromium"), args=["--no-sandbox", "--disable-gpu"]
        )
        try:
            for name, (path, scheme, height_px) in PAGES.items():
                page = browser.new_page(viewport={"width": 1280, "height": 1_300})
                page.emulate_media(color_scheme="dark" if scheme == "dark" else "light")
                page.goto(f"{where}/{path}&live=false")
                page.wait_for_selector('[data-drawn="plotly"]')
                page.wait_for_timeout(2_000)
                page.screenshot(
                    path=IMAGES / f"{name}.png",
                    clip={"x": LEFT_PX, "y": TOP_PX, "width": WIDTH_PX, "height": height_px},
                )
        finally:
            browser.close()
            folder.end_all()


def let_newest_run(url: str) -> None:
    """The last trial of each GPU goes on: the table of devices shows the present."""
    attempts, leases, idle = map(table_of, (AttemptRow, LeaseRow, IdleRow))
    newest = sa.select(attempts.c.id).order_by(attempts.c.leased_at.desc()).limit(N_GPUS)
    with seeded.writing(url) as connection:
        ids = list(connection.scalars(newest))
        of_them = attempts.c.id.in_(ids)
        trial_ids = list(connection.scalars(sa.select(attempts.c.trial_id).where(of_them)))
        since = connection.scalar(sa.select(sa.func.min(attempts.c.finished_at)).where(of_them))
        still = {"state": AttemptState.RUNNING, "outcome": None, "ended_at": None}
        connection.execute(sa.update(attempts).where(of_them).values(**still, finished_at=None))
        connection.execute(
            sa.update(leases)
            .where(leases.c.attempt_id.in_(ids))
            .values(released_at=None, held_device_id=leases.c.device_id)
        )
        connection.execute(sa.delete(idle).where(idle.c.began_at >= since))
        connection.execute(
            sa.update(TRIALS)
            .where(TRIALS.c.trial_id.in_(trial_ids))
            .values(state=TrialState.RUNNING, datetime_complete=None)
        )


if __name__ == "__main__":
    main()
