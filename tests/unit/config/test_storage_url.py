"""The storage URL: filled, absolute, and never shown with its password."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sqlalchemy import make_url

from tuner.config.storage_url import masked_url, resolve_storage, without_passwords


def test_relative_path_begins_in_the_folder_of_the_study(tmp_path: Path) -> None:
    url = resolve_storage("sqlite:///sub/my study.db", folder=tmp_path, environ={})
    assert make_url(url).database == str(tmp_path / "sub" / "my study.db")


def test_absolute_path_stays(tmp_path: Path) -> None:
    url = resolve_storage("sqlite:////data/x.db", folder=tmp_path, environ={})
    assert url == "sqlite:////data/x.db"


def test_variables_are_filled(tmp_path: Path) -> None:
    url = resolve_storage(
        "${KIND}:///${NAME}.db", folder=tmp_path, environ={"KIND": "sqlite", "NAME": "a"}
    )
    assert url == f"sqlite:///{tmp_path}/a.db"


PASSWORD = "s3cr:e/t@p%41ss#?&+{x}"


@pytest.mark.parametrize(
    ("text", "environ"),
    [
        ("postgresql://ann:${PW}@host:5/db", {"PW": PASSWORD}),
        (
            "postgresql://${USER}:${PW}@${HOST}/db",
            {"USER": "ann", "PW": PASSWORD, "HOST": "host:5"},
        ),
        ("postgresql://ann:s3cr%3Ae${REST}@host:5/db", {"REST": PASSWORD.removeprefix("s3cr:e")}),
        (
            "${URL}",
            {"URL": "postgresql://ann:s3cr%3Ae%2Ft%40p%2541ss%23%3F%26%2B%7Bx%7D@host:5/db"},
        ),
    ],
    ids=["password", "everything", "part", "whole"],
)
def test_password_is_filled_in_as_it_is(tmp_path: Path, text: str, environ: dict[str, str]) -> None:
    url = make_url(resolve_storage(text, folder=tmp_path, environ=environ))
    assert (url.username, url.password, url.host, url.port) == ("ann", PASSWORD, "host", 5)


@pytest.mark.parametrize("end", ["", "\n", "\r\n"])
def test_password_comes_from_a_file(tmp_path: Path, end: str) -> None:
    (tmp_path / "secret").write_bytes(f"{PASSWORD}{end}".encode())
    for place in ("secret", str(tmp_path / "secret")):
        text = f"postgresql://ann:${{file:{place}}}@host/db"
        url = make_url(resolve_storage(text, folder=tmp_path, environ={}))
        assert (url.password, url.host) == (PASSWORD, "host")


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (None, "secret cannot be read: No such file or directory. Correct the path"),
        (b"", "secret must hold one line: the password alone."),
        (b"\n", "secret must hold one line: the password alone."),
        (b"user\ns3cret\n", "secret must hold one line: the password alone."),
        (b"\xff\xfe", "secret is not text in UTF-8."),
    ],
    ids=["missing", "empty", "newline", "two-lines", "binary"],
)
def test_file_without_a_password_is_refused(
    tmp_path: Path, content: bytes | None, problem: str
) -> None:
    if content is not None:
        (tmp_path / "secret").write_bytes(content)
    with pytest.raises(ValueError, match=r"^needs \$\{file:secret\}, but ") as caught:
        resolve_storage("mysql://ann:${file:secret}@h/d", folder=tmp_path, environ={})
    assert problem in str(caught.value)
    assert "s3cret" not in str(caught.value)


@pytest.mark.parametrize(
    ("text", "driver"),
    [
        ("postgresql://h/d", "postgresql+psycopg"),
        ("postgresql+psycopg://h/d", "postgresql+psycopg"),
        ("mysql://h/d", "mysql+pymysql"),
        ("mariadb://h/d", "mysql+pymysql"),
        ("mariadb+pymysql://h/d", "mysql+pymysql"),
        ("sqlite:///d", "sqlite"),
    ],
)
def test_driver_is_the_one_that_we_install(tmp_path: Path, text: str, driver: str) -> None:
    url = resolve_storage(text, folder=tmp_path, environ={})
    assert make_url(url).drivername == driver


def test_filled_variable_is_not_shown(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"is '\$\{TOKEN\}', but must be") as caught:
        resolve_storage("${TOKEN}", folder=tmp_path, environ={"TOKEN": "s3cret"})
    assert "s3cret" not in str(caught.value)
    assert caught.value.__cause__ is None


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("postgresql://u:p@h/db", "postgresql://u:***@h/db"),
        ("postgresql://u@h/db", "postgresql://u@h/db"),
        ("mysql://u:p@h/db?ssl_password=p&x=1", "mysql://u:***@h/db?ssl_password=***&x=1"),
        ("sqlite:////data/x.db", "sqlite:////data/x.db"),
    ],
)
def test_masked_url_shows_all_but_the_password(url: str, shown: str) -> None:
    assert masked_url(url) == shown


@given(st.text(alphabet="ab:/@?&=#%", min_size=1), st.sampled_from(["", "x://", "x:/", "x:"]))
def test_masked_url_never_shows_a_password(rest: str, scheme: str) -> None:
    password = f"S3{rest}CRET"
    shown = masked_url(f"{scheme}user:{password}@host/db")
    assert "S3" not in shown
    assert "CRET" not in shown


@pytest.mark.parametrize(
    ("line", "recorded"),
    [
        ("storage: postgresql://ann:s3cret@db/t", "storage: postgresql://ann:***@db/t"),
        ("storage: 'postgresql://ann:p%40ss@db/t'", "storage: 'postgresql://ann:***@db/t'"),
        ("storage: mysql://db/t?password=s3cret", "storage: mysql://db/t?password=***"),
        ("storage: postgresql://ann:${PW}@db/t", "storage: postgresql://ann:${PW}@db/t"),
        ("storage: sqlite:///digits.db", "storage: sqlite:///digits.db"),
        ("storage: postgresql://ann:s3cret@${HOST}/t", "storage: postgresql://ann:***@${HOST}/t"),
        ("storage: postgresql://ann:s3${PW}@db/t", "storage: postgresql://ann:***@db/t"),
        ("storage: mysql://${USER}:${PW}@${HOST}/t", "storage: mysql://${USER}:${PW}@${HOST}/t"),
        ("storage: mysql://a:${file:/run/db}@h/t", "storage: mysql://a:${file:/run/db}@h/t"),
        (
            "storage: mysql://a:${PW}@h/t?ssl_password=s3&key_password=${K}",
            "storage: mysql://a:${PW}@h/t?ssl_password=***&key_password=${K}",
        ),
    ],
    ids=[
        *("literal", "encoded", "query", "variable", "none", "host", "part", "many", "file"),
        "queries",
    ],
)
def test_text_for_the_record_holds_no_password(line: str, recorded: str) -> None:
    text = "study: t\n{}\nobjectives: {{value: minimize}}\n"
    assert without_passwords(text.format(line)) == text.format(recorded)
