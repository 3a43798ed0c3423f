"""Files that are deleted or replaced under an open dashboard, and links to what is missing."""

from __future__ import annotations

from pathlib import Path

import pytest
from optuna.trial import create_trial

from tests.databases import new_database
from tests.integration.app.pages import fine, opened, show_database
from tests.integration.stored_studies import seeded
from tuner.app.data.file_identity import log_of
from tuner.app.data.page_data import look_at
from tuner.errors import StoreError
from tuner.store.connection.database import parse_url
from tuner.store.connection.filesystem import path_of

TOO_LARGE = "99999999999999999999"


def file_url(folder: Path) -> str:
    return f"sqlite:///{folder}/study.db"


def add_study(url: str, values: list[float], name: str = "first") -> None:
    seeded.add_study(url, name, [create_trial(value=each) for each in values])


def remove(folder: Path) -> None:
    for name in ("study.db", "study.db-wal", "study.db-shm"):
        (folder / name).unlink(missing_ok=True)


def values_of(url: str) -> list[float]:
    look = look_at(url)
    return list(look.trials(look.studies()["first"]).values[:, 0].tolist())


def test_a_file_that_was_replaced_is_read_anew(tmp_path: Path) -> None:
    url = file_url(tmp_path)
    add_study(url, [1.0, 2.0])
    assert values_of(url) == [1.0, 2.0]
    old = look_at(url)
    remove(tmp_path)
    with pytest.raises(StoreError, match="There is no database at"):
        look_at(url)
    # As many trials of a study of the same name and identifier: only the file tells them apart.
    add_study(url, [7.0, 8.0])
    assert values_of(url) == [7.0, 8.0]
    with pytest.raises(StoreError, match="was deleted or replaced"):
        old.studies()


def test_a_file_that_was_moved_over_the_other_is_read_anew(tmp_path: Path) -> None:
    url, other = file_url(tmp_path), tmp_path / "other"
    other.mkdir()
    add_study(url, [1.0])
    add_study(file_url(other), [5.0])
    assert values_of(url) == [1.0]
    remove_logs = [tmp_path / "study.db-wal", tmp_path / "study.db-shm"]
    (other / "study.db").replace(tmp_path / "study.db")
    for each in remove_logs:
        each.unlink(missing_ok=True)
    assert values_of(url) == [5.0]


def test_a_log_that_was_replaced_is_followed(tmp_path: Path) -> None:
    url = file_url(tmp_path)
    add_study(url, [1.0])
    path = path_of(parse_url(url))
    assert path is not None
    with seeded.writing(url):
        assert values_of(url) == [1.0]
        assert log_of(path).exists()
        study = look_at(url)
        before = study._database._log
        assert before is not None
        copy = tmp_path / "copy"
        copy.write_bytes(log_of(path).read_bytes())
        copy.replace(log_of(path))
        assert study.studies().keys() == {"first"}
        assert study._database._log != before


@pytest.fixture
def url(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """Two studies, of which the newest has three trials."""
    url = new_database(tmp_path)
    add_study(url, [1.0], "old")
    add_study(url, [1.0, 2.0, 3.0], "new")
    show_database(monkeypatch, url)
    return url


PAGES = ("convergence", "curves", "parameters", "trials", "devices", "best", "control")


@pytest.mark.usefixtures("url")
@pytest.mark.parametrize("page", PAGES)
def test_a_link_to_a_missing_study_says_so(page: str) -> None:
    test = opened(page, study="gone", trial="1")
    assert [each.value for each in test.warning] == [
        "This database has no study 'gone'. Choose a study at the left."
    ]
    assert list(test.dataframe) == []
    assert test.query_params["study"] == "gone"
    chosen = fine(test.selectbox(key="study").set_value("old").run())
    assert (list(chosen.warning), chosen.query_params["study"]) == ([], "old")
    again = fine(chosen.selectbox(key="study").set_value("new").run())
    assert (list(again.warning), again.query_params["study"]) == ([], "new")
    assert again.selectbox(key="study").value == "new"


@pytest.mark.usefixtures("url")
@pytest.mark.parametrize("page", ["trials", "curves"])
@pytest.mark.parametrize("trial", [TOO_LARGE, "9" * 5000, "-1", "abc", "1.5", "٣x", "77"])
def test_a_link_to_a_trial_that_is_not_there_says_so(page: str, trial: str) -> None:
    test = opened(page, study="new", trial=trial)
    (warning,) = [each.value for each in test.warning]
    assert warning.startswith("There is no trial ")
    assert trial[:40] in warning.replace("\\", "")  # Which Markdown takes away.
    assert warning.endswith("in study new.")


@pytest.mark.usefixtures("url")
def test_the_page_of_a_trial_is_left_for_all_trials() -> None:
    test = opened("trials", study="new", trial="77")
    (button,) = [each for each in test.button if each.label == "All trials"]
    after = fine(button.click().run())
    assert list(after.warning) == []
    assert list(after.dataframe[0].value["trial"]) == [2, 1, 0]
