"""How the dashboard's server is started."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tuner.app.server import settings
from tuner.errors import ConfigError, LaunchError
from tuner.monitoring import dashboard_process
from tuner.queries.locate import Place

SECRET = Place(url="postgresql://me:secret@db/tuner", study="first", shown="postgresql://me@db")


def test_password_is_in_the_environment_and_not_on_the_command_line() -> None:
    words = dashboard_process.command(host="127.0.0.1", port=8501)
    assert not any("secret" in word for word in words)
    environ = dashboard_process.environment(SECRET, {"HOME": "/home/me"})
    assert environ[dashboard_process.DATABASE_VARIABLE] == SECRET.url
    assert environ[dashboard_process.STUDY_VARIABLE] == "first"
    assert environ["HOME"] == "/home/me"


def test_server_is_headless_and_tells_nobody() -> None:
    words = dashboard_process.command(host="127.0.0.1", port=9000)
    assert words[-4:] == ["--host", "127.0.0.1", "--port", "9000"]
    told = settings("127.0.0.1", 9000)
    assert (told["server.address"], told["server.port"]) == ("127.0.0.1", 9000)
    assert (told["server.headless"], told["browser.gatherUsageStats"]) == (True, False)


def test_modules_are_found_from_every_folder() -> None:
    paths = dashboard_process.environment(SECRET, {"PYTHONPATH": "/mine"})["PYTHONPATH"]
    first, *others = paths.split(os.pathsep)
    assert (Path(first) / "tuner" / "app" / "main.py").is_file()
    assert others == ["/mine"]


@pytest.mark.parametrize(
    ("host", "shown"),
    [("127.0.0.1", "127.0.0.1"), ("0.0.0.0", "127.0.0.1"), ("::", "[::1]"), ("::1", "[::1]")],
)
def test_address_can_be_opened(host: str, shown: str) -> None:
    assert dashboard_process.address(host=host, port=8501) == f"http://{shown}:8501"


def test_where_streamlit_is_missing_it_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(LaunchError, match=r"pip install 'gpu-tuner\[dashboard\]'"):
        dashboard_process.check_installed()


def test_the_token_comes_from_a_file_or_the_environment(tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text("in the file\nand more\n")
    assert dashboard_process.read_token(file, {"TUNER_DASHBOARD_TOKEN": "in the environment"}) == (
        "in the file"
    )
    environ = {"TUNER_DASHBOARD_TOKEN": "in the environment"}
    assert dashboard_process.read_token(None, environ) == "in the environment"
    assert dashboard_process.read_token(None, {}) == ""
    told = dashboard_process.environment(SECRET, environ, "in the file")
    assert told["TUNER_DASHBOARD_TOKEN"] == "in the file"
    assert not any("in the file" in word for word in dashboard_process.command(host="h", port=1))


@pytest.mark.parametrize("text", ["", "short", None], ids=["empty", "short", "missing"])
def test_a_token_that_protects_nothing_is_refused(tmp_path: Path, text: str | None) -> None:
    file = tmp_path / "token"
    if text is not None:
        file.write_text(text)
    with pytest.raises(ConfigError, match="--token-file"):
        dashboard_process.read_token(file, {})


@pytest.mark.parametrize("host", ["127.0.0.1", "127.8.0.1", "::1", "localhost"])
def test_this_machine_alone_is_not_public(host: str) -> None:
    assert dashboard_process.exposure(host, has_control=True) == ""


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "10.0.0.7", "gpu-box.example.org"])
def test_another_address_says_what_becomes_public(host: str) -> None:
    text = dashboard_process.exposure(host, has_control=False)
    assert f"Listening on {host}" in text
    assert "can read all studies of the database" in " ".join(text.split())
    assert text.endswith("It is read-only.")
    assert "needed to change" in dashboard_process.exposure(host, has_control=True)
