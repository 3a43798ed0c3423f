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
    ],
    ids=["literal", "encoded", "query", "variable", "none"],
)
def test_text_for_the_record_holds_no_password(line: str, recorded: str) -> None:
    text = "study: t\n{}\nobjectives: {{value: minimize}}\n"
    assert without_passwords(text.format(line)) == text.format(recorded)
