"""How the dashboard's server is started."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tuner import dashboard
from tuner.errors import LaunchError
from tuner.verbs.source import Place

SECRET = Place(url="postgresql://me:secret@db/tuner", study="first", shown="postgresql://me@db")


def test_password_is_in_the_environment_and_not_on_the_command_line() -> None:
    words = dashboard.command(host="127.0.0.1", port=8501)
    assert not any("secret" in word for word in words)
    environ = dashboard.environment(SECRET, {"HOME": "/home/me"})
    assert environ[dashboard.DATABASE_VARIABLE] == SECRET.url
    assert environ[dashboard.STUDY_VARIABLE] == "first"
    assert environ["HOME"] == "/home/me"


def test_server_is_headless_and_tells_nobody() -> None:
    words = dashboard.command(host="127.0.0.1", port=9000)
    assert {
        "--server.address=127.0.0.1",
        "--server.port=9000",
        "--server.headless=true",
        "--browser.gatherUsageStats=false",
    } <= set(words)
    (script,) = [Path(word) for word in words if word.endswith(".py")]
    assert script.is_file()


def test_modules_are_found_from_every_folder() -> None:
    paths = dashboard.environment(SECRET, {"PYTHONPATH": "/mine"})["PYTHONPATH"]
    first, *others = paths.split(os.pathsep)
    assert (Path(first) / "app" / "main.py").is_file()
    assert others == ["/mine"]


@pytest.mark.parametrize(
    ("host", "shown"),
    [("127.0.0.1", "127.0.0.1"), ("0.0.0.0", "127.0.0.1"), ("::", "[::1]"), ("::1", "[::1]")],
)
def test_address_can_be_opened(host: str, shown: str) -> None:
    assert dashboard.address(host=host, port=8501) == f"http://{shown}:8501"


def test_where_streamlit_is_missing_it_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(LaunchError, match=r"pip install 'tuner\[dashboard\]'"):
        dashboard.check_installed()
