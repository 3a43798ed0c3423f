"""The page Studies in a real browser: the name of a study opens it, whatever it is called."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING
from urllib.parse import unquote

import optuna
import pytest

from tests.e2e.browser import assert_no_error_is_shown, dashboard, errors_of
from tests.e2e.study_folder import StudyFolder
from tuner.app.views.studies import _NAME_IN_ADDRESS

if TYPE_CHECKING:
    from playwright.sync_api import Page, ViewportSize

pytestmark = pytest.mark.programs

_PHONE: ViewportSize = {"width": 390, "height": 844}
_NAME = '[data-testid="glide-cell-1-{row}"]'


@pytest.mark.parametrize("name", ["plain", "a b & <b>50%</b> #1 ü"])
def test_the_name_of_a_study_is_shown_and_opens_it(
    study_folder: StudyFolder, page: Page, name: str
) -> None:
    errors = errors_of(page)
    url = f"sqlite:///{study_folder.path / 'named.db'}"
    study = optuna.create_study(storage=url, study_name=name)
    study.optimize(lambda trial: trial.suggest_float("x", 0, 1), n_trials=2)
    _server, where = dashboard(study_folder, "named.db")
    # The menu's address of this page is "/"; typed or linked by its name it is the same page.
    page.goto(f"{where}/studies?live=false")
    assert page.url == f"{where}/?live=false"
    page.wait_for_selector(_NAME.format(row=0), state="attached")
    # The names are painted: their cells, for screen readers, have the address.
    address = page.locator(_NAME.format(row=0)).inner_text()
    shown = re.match(_NAME_IN_ADDRESS, address)
    assert shown is not None
    assert unquote(shown[1]) == name
    box = page.get_by_test_id("stDataFrame").bounding_box()
    assert box is not None
    with page.context.expect_page() as opened:
        # A link is one once the mouse has moved over it.
        for right in (64, 60):
            page.mouse.move(box["x"] + right, box["y"] + 53)
            page.wait_for_timeout(300)
        page.mouse.down()
        page.mouse.up()
    opened.value.get_by_role("heading", name="Convergence", exact=True).wait_for()
    assert opened.value.get_by_text(name, exact=True).count()
    opened.value.set_viewport_size(_PHONE)
    assert opened.value.get_by_text(f"Study {name}").is_visible()
    assert_no_error_is_shown(opened.value)
    assert errors == []
