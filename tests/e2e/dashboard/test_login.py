"""A login by OpenID Connect: who is known may ask for things, under the address of the login."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from tests.e2e.browser import dashboard, errors_of, free_port, missing
from tests.e2e.study_folder import StudyFolder

if TYPE_CHECKING:
    from playwright.sync_api import Page

pytestmark = pytest.mark.programs

_SECRETS = """
[auth]
redirect_uri = "{where}/oauth2callback"
cookie_secret = "as long and as random as can be"
client_id = "{client_id}"
client_secret = "{client_secret}"
server_metadata_url = "{issuer}/.well-known/openid-configuration"
"""


@pytest.fixture
def address(study_folder: StudyFolder) -> Iterator[str]:
    """Of a dashboard that Ann may use, whom a provider knows."""
    try:
        import authlib  # noqa: F401  # What Streamlit logs in with.

        from tests.e2e.openid import CLIENT_ID, CLIENT_SECRET, provider
    except ImportError:
        missing("There is no Authlib", "pip install authlib httpx")
    study_folder.study(budget={"trials": 1})
    assert study_folder.tune().code == 0
    port = free_port()
    where = f"http://127.0.0.1:{port}"
    with provider() as issuer:
        text = _SECRETS.format(
            where=where, issuer=issuer, client_id=CLIENT_ID, client_secret=CLIENT_SECRET
        )
        study_folder.write(".streamlit/secrets.toml", text)
        study_folder.env["TUNER_DASHBOARD_USERS"] = "Ann@example.org, carl@example.org"
        dashboard(study_folder, "study.yaml", port=port)
        yield where
        study_folder.end_all()


def log_in(page: Page, address: str, email: str) -> None:
    page.goto(f"{address}/control?study=small")
    page.get_by_role("button", name="Log in").wait_for()
    assert page.get_by_role("button", name="Pause study").count() == 0
    page.get_by_role("button", name="Log in").click()
    page.get_by_label("Address").fill(email)
    page.get_by_role("button", name="Go on").click()
    page.get_by_role("heading", name="Studies", exact=True).wait_for()
    page.get_by_role("link", name="Control").click()


@pytest.mark.timeout(600)
def test_who_is_known_asks_under_the_address_of_the_login(
    address: str, study_folder: StudyFolder, page: Page
) -> None:
    errors = errors_of(page)
    log_in(page, address, "ann@example.org")
    page.get_by_text("recorded as by ann@example.org (dashboard)").wait_for()
    page.get_by_role("button", name="Pause study").click()
    page.get_by_text("Sent to study 'small': pause").wait_for()
    assert study_folder.rows("select name, asked_by from tuner_commands") == [
        ("pause", "ann@example.org (dashboard)")
    ]
    assert errors == []


@pytest.mark.timeout(600)
def test_who_has_logged_in_and_is_not_known_only_looks(
    address: str, study_folder: StudyFolder, page: Page
) -> None:
    log_in(page, address, "bob@example.org")
    page.get_by_text("bob@example.org has no permission to control studies.").wait_for()
    assert page.get_by_role("button", name="Pause study").count() == 0
    page.get_by_role("button", name="Log out").click()
    page.get_by_role("heading", name="Studies", exact=True).wait_for()
    page.get_by_role("link", name="Control").click()
    page.get_by_role("button", name="Log in").wait_for()
    assert study_folder.rows("select count(*) from tuner_commands") == [(0,)]
