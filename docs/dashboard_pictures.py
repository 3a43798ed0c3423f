"""Makes docs/images/dashboard-*.png: pages of made-up studies, in Debian's Chromium.

python docs/dashboard_pictures.py
"""

from __future__ import annotations

import shutil
import tempfile
from datetime import UTC, datetime
from pathlib import Path
from random import Random

from playwright.sync_api import sync_playwright

from tests.e2e.browser import dashboard
from tests.e2e.ended_studies import N_TRIALS, a_trial
from tests.e2e.study_folder import StudyFolder
from tests.integration.app.devices.device_week import add_week
from tests.integration.stored_studies import seeded

IMAGES = Path(__file__).parent / "images"
#: Without the menu at the left, and what follows below.
LEFT_PX, TOP_PX, WIDTH_PX = 310, 60, 960
#: Page, colours and height by the name of the picture.
PAGES = {
    "dashboard-devices": ("devices?study=week", "dark", 1135),
    "dashboard-convergence": ("convergence?study=digits", "light", 860),
}


def main() -> None:
    with tempfile.TemporaryDirectory() as made, sync_playwright() as playwright:
        folder = StudyFolder(path=Path(made))
        url = f"sqlite:///{folder.path}/small.db"
        add_week(url, datetime.now(UTC), days=0.5, trial_s=1_800)
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


if __name__ == "__main__":
    main()
