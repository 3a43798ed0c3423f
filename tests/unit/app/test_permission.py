"""Who is let in, and that guessing is slow."""

from __future__ import annotations

from tuner.app.data.permission import Doorkeeper

TOKEN = "correct horse battery"


def keeper(**environ: str) -> Doorkeeper:
    return Doorkeeper({"TUNER_DASHBOARD_TOKEN": TOKEN, **environ})


def test_the_token_lets_in_and_another_does_not() -> None:
    assert keeper().admits(TOKEN, "here", 0.0)
    assert not keeper().admits("wrong", "here", 0.0)
    assert not keeper().admits("", "here", 0.0)
    assert not keeper().admits("ü", "here", 0.0)


def test_without_a_token_nobody_is_let_in() -> None:
    for environ in ({}, {"TUNER_DASHBOARD_TOKEN": ""}):
        assert not Doorkeeper(environ).admits("", "here", 0.0)
        assert not Doorkeeper(environ).has_token


def test_after_five_wrong_ones_that_client_alone_waits_for_a_minute() -> None:
    door = keeper()
    assert not any(door.admits("wrong", "here", float(second)) for second in range(5))
    assert not door.admits(TOKEN, "here", 59.0)
    assert door.admits(TOKEN, "elsewhere", 4.5)
    assert door.admits(TOKEN, "here", 60.0)


def test_only_those_who_are_named_may_ask_after_a_login() -> None:
    door = keeper(TUNER_DASHBOARD_USERS="Ann@example.org, bob@example.org,")
    assert door.knows("ann@example.org")
    assert not door.knows("eve@example.org")
    assert not door.knows(None)
    assert not keeper().knows("ann@example.org")
    assert not keeper().has_users
