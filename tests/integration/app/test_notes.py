"""Notes and tags: written with the token, stored with who wrote them, shown where trials are."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest
from streamlit.testing.v1 import AppTest

from tests.databases import new_database
from tests.integration.app.pages import opened, show_database
from tests.integration.stored_studies import seeded
from tuner.actions.note import MAX_TEXT, tags_in, write_note
from tuner.app.views.requests import permission
from tuner.errors import ConfigError
from tuner.monitoring.dashboard_process import TOKEN_VARIABLE
from tuner.queries.notes import Note, read_notes

NOW = datetime(2026, 11, 24, 4, tzinfo=UTC)


@pytest.fixture
def url(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    url = new_database(tmp_path)
    seeded.add_first_study(url)
    show_database(monkeypatch, url)
    monkeypatch.setenv(TOKEN_VARIABLE, "secret")
    permission._doorkeeper.cache_clear()
    yield url
    permission._doorkeeper.cache_clear()


def note(url: str, number: int | None, text: str, tags: str = "") -> None:
    write_note(seeded.place(url), number, text, tags_in(tags), NOW, who="ann@box")


def stored(url: str) -> dict[int | None, Note]:
    with seeded.looking(url) as connection:
        return dict(read_notes(connection, seeded.study_id(connection, "first")))


def said(test: AppTest) -> str:
    parts = (test.main.markdown, test.main.text, test.main.caption)
    return " ".join(each.value for part in parts for each in part)


def test_a_note_is_stored_with_who_wrote_it_and_replaced(url: str) -> None:
    note(url, 1, "good \0start", "baseline, paper , baseline")
    assert stored(url) == {
        1: Note(text="good start", tags=("baseline", "paper"), who="ann@box", at=NOW)
    }
    note(url, 1, "better", "paper")
    note(url, None, "of the study")
    assert {number: each.text for number, each in stored(url).items()} == {
        1: "better",
        None: "of the study",
    }
    note(url, 1, "  ", "")
    assert list(stored(url)) == [None]


def test_what_cannot_be_noted_is_refused(url: str) -> None:
    with pytest.raises(ConfigError, match="no trial 99"):
        note(url, 99, "x")
    with pytest.raises(ConfigError, match="Note has 4001 characters, but at most 4000 fit"):
        note(url, 1, "x" * (MAX_TEXT + 1))
    with pytest.raises(ConfigError, match="Tags has 21 tags"):
        note(url, 1, "x", ",".join(map(str, range(21))))
    with pytest.raises(ConfigError, match="a tag of 41 characters"):
        note(url, 1, "x", "y" * 41)
    assert stored(url) == {}


def test_note_is_written_with_the_token_alone(url: str) -> None:
    state: dict[str, object] = {"trial": 1}
    assert not [each for each in opened("trials", state=state).button if each.label == "Save"]
    test = opened("trials", state={**state, "who controls": "says to be Ann"})
    test.text_area[0].set_value("<b>why</b> is it *good*")
    (tags,) = [each for each in test.text_input if each.label.startswith("Tags")]
    tags.set_value("keep, keep,  paper")
    (save,) = [each for each in test.button if each.label == "Save"]
    save.click().run()
    (noted,) = stored(url).values()
    assert (noted.text, noted.tags) == ("<b>why</b> is it *good*", ("keep", "paper"))
    assert noted.who == "says to be Ann"
    test = opened("trials", state=state)
    # As text: no part of it is Markdown or HTML.
    assert noted.text in [each.value for each in test.main.text]
    assert "Noted by says to be Ann" in said(test)


def test_tags_choose_the_rows_of_trials(url: str) -> None:
    assert "tags (noted)" not in opened("trials").dataframe[0].value
    note(url, 1, "first", "a")
    note(url, 3, "second", "a, b")
    note(url, None, "of the study", "c")
    table = opened("trials").dataframe[0].value
    assert len(table) == 8
    by_number = {row["trial"]: row["tags (noted)"] for _, row in table.iterrows()}
    assert {number: tags for number, tags in by_number.items() if tags} == {1: "a", 3: "a, b"}
    test = opened("trials", tags="b")
    assert list(test.dataframe[0].value["trial"]) == [3]
    assert "1 of 8 trials" in said(test)


def test_the_note_of_a_study_is_in_the_table_of_studies(url: str) -> None:
    assert "note" not in opened("studies").dataframe[0].value
    note(url, None, "for the paper", "ablation")
    table = opened("studies").dataframe[0].value
    assert (list(table["note"]), list(table["tags"])) == (["for the paper"], ["ablation"])
    assert "for the paper" in said(opened("control"))


def test_a_trial_that_ended_can_be_noted_and_optuna_reads_it(url: str) -> None:
    """By the number of the trial, so that export and import keep it with its trial."""
    note(url, 3, "kept", "a")
    attributes, _trials = seeded.load(url, "first")
    assert attributes["tuner:note:3"]["text"] == "kept"
