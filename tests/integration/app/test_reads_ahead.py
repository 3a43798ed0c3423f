"""What is read before a page needs it, and what a page does not wait for."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from optuna.trial import create_trial

from tests.e2e.study_folder import wait_until
from tests.integration.app.pages import opened
from tests.integration.stored_studies import seeded
from tuner.app.data.page_data import Look, look_at
from tuner.app.data.trials.table import GrowingParams
from tuner.app.views import studies


def test_studies_do_not_wait_for_the_trials_of_long_ones(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    seeded.add_study(url, "long", [create_trial(value=each) for each in (3.0, 1.0, 2.0)])
    monkeypatch.setattr(studies, "_MAX_READ", 2)

    def line() -> list[float]:
        cell = opened("studies").dataframe[0].value["best so far"][0]
        return [] if cell is None else list(cell)

    assert line() == []
    wait_until(lambda: line() == [3.0, 3.0, 3.0], "the line is there")


def test_what_is_read_ahead_is_not_read_again(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    seeded.add_study(url, "one", [create_trial(value=1.0)])
    look = look_at(url)
    study = look.studies()["one"]
    look.read_ahead(study, datetime.now(UTC))
    trials = look.trials(study)
    params, costs = look.params(study, trials), look.costs(study, datetime.now(UTC))
    assert look.params(study, trials) is params
    assert look.costs(study, datetime.now(UTC)) is costs
    assert look.trials(study) is trials


def test_reading_ahead_ends_when_another_study_is_shown(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("one", "other"):
        seeded.add_study(url, name, [create_trial(value=1.0)])
    look = Look(url)
    look.trials(look.studies()["other"])
    monkeypatch.setattr(GrowingParams, "refresh", lambda *_: pytest.fail("it is read"))
    look.read_ahead(look.studies()["one"], datetime.now(UTC))
