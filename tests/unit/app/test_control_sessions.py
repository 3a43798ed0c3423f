"""A browser that has given the token is recognized by a name that cannot be guessed."""

from __future__ import annotations

import pytest
from starlette.responses import PlainTextResponse
from starlette.testclient import TestClient

from tuner.app import control_session
from tuner.app.control_session import ControlCookie, address_of, cookie_name
from tuner.app.data.permission import ControlSessions

NAME = cookie_name(8501)


@pytest.fixture
def sessions(monkeypatch: pytest.MonkeyPatch) -> ControlSessions:
    made = ControlSessions()
    monkeypatch.setattr(control_session, "sessions", lambda: made)
    return made


@pytest.fixture
def client(sessions: ControlSessions) -> TestClient:
    return TestClient(ControlCookie(PlainTextResponse("the application"), 8501))


def test_a_ticket_becomes_a_cookie_that_no_script_and_no_other_site_gets(
    client: TestClient, sessions: ControlSessions
) -> None:
    answer = client.get(address_of(sessions.issue("Ann")).removeprefix("."))
    assert answer.status_code == 204
    assert sessions.who(answer.cookies[NAME]) == "Ann"
    words = answer.headers["set-cookie"].split("; ")
    assert {"HttpOnly", "SameSite=Strict", "Path=/"} <= set(words)
    assert not any(each.startswith(("Max-Age", "expires")) for each in words)
    assert answer.headers["cache-control"] == "no-store"


def test_a_ticket_counts_once(client: TestClient, sessions: ControlSessions) -> None:
    address = address_of(sessions.issue("Ann")).removeprefix(".")
    assert client.get(address).status_code == 204
    again = client.get(address)
    assert (again.status_code, "set-cookie" in again.headers) == (403, False)


@pytest.mark.parametrize("query", ["", "?ticket=", "?ticket=guessed", "?other=1"])
def test_no_ticket_no_cookie(client: TestClient, query: str) -> None:
    answer = client.get(f"/control-session{query}")
    assert (answer.status_code, "set-cookie" in answer.headers) == (403, False)


def test_everything_else_is_the_applications(client: TestClient) -> None:
    assert client.get("/control").text == "the application"


def test_an_old_ticket_does_not_count() -> None:
    sessions = ControlSessions()
    assert sessions.redeem(sessions.issue("Ann", 0.0), 61.0) is None
    assert sessions.redeem(sessions.issue("Ann", 0.0), 60.0) is not None


def test_a_session_that_was_ended_is_unknown() -> None:
    sessions = ControlSessions()
    session = sessions.redeem(sessions.issue("Ann"))
    sessions.end(session)
    assert sessions.who(session) is None
    sessions.end(None)
    assert sessions.who(None) is None
    assert sessions.who("") is None
