"""Best values at an end of a range, found in stored studies; what `tuner best` prints of them."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from optuna.trial import FrozenTrial, TrialState
from typer.testing import CliRunner

from tests.integration.app.pages import opened, show_database
from tests.integration.stored_studies.seeded import a_trial, add_study
from tuner.cli.main import app
from tuner.queries.results.range_ends import load_range_ends
from tuner.store.records.population_rows import MEMBER_KEY

WITHOUT_WHEN = {"optimizer": "adamw"}


def climbing(n: int = 40) -> list[FrozenTrial]:
    """Trials that are better the larger their learning rate, and half of them at its upper end."""
    source = random.Random(0)
    shares = [source.uniform(0.96, 1) if i % 2 else source.random() for i in range(n)]
    return [
        a_trial({**WITHOUT_WHEN, "lr": 10 ** (-4 + 3 * each)}, each + source.gauss(0, 0.01))
        for each in shares
    ]


def told(url: str) -> list[tuple[str, bool]]:
    return [(each.parameter, each.is_high) for each in load_range_ends(url)]


def test_is_read_on_each_database(url: str) -> None:
    trials = climbing()
    # None of these is among the best ones.
    trials.append(a_trial({**WITHOUT_WHEN, "lr": 0.001}, 9.0, constraints={"size": 1.0}))
    trials.append(a_trial({**WITHOUT_WHEN, "lr": 0.001}, float("inf")))
    trials.append(a_trial({**WITHOUT_WHEN, "lr": 0.001}, 9.0, state=TrialState.PRUNED))
    add_study(url, "up", trials)
    assert told(url) == [("lr", True)]


@pytest.fixture
def storage(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path}/study.db"


def test_few_trials_say_nothing(storage: str) -> None:
    add_study(storage, "few", climbing(19))
    assert told(storage) == []


def test_study_of_optuna_alone_has_no_declared_range(storage: str) -> None:
    add_study(storage, "optuna", climbing(), space=None)
    assert told(storage) == []


def test_parameters_of_a_population_are_the_last_ones_of_a_schedule(storage: str) -> None:
    trials = climbing()
    trials[0] = a_trial(trials[0].params, trials[0].value, system_attrs={MEMBER_KEY: True})
    add_study(storage, "population", trials)
    assert told(storage) == []


def test_front_of_several_objectives_may_end_at_an_end(storage: str) -> None:
    trials = [
        a_trial(each.params, values=[each.value or 0.0, -(each.value or 0.0)])
        for each in climbing()
    ]
    both = ("maximize", "maximize")
    add_study(storage, "front", trials, directions=both, objectives=("accuracy", "cost"))
    assert told(storage) == []


def test_command_prints_it_beside_the_configuration(storage: str) -> None:
    add_study(storage, "up", climbing())
    result = CliRunner().invoke(app, ["best", storage])
    assert result.stderr.startswith("lr is at the high end of its range in 10 of the 10 best")
    assert "lr is" not in result.stdout
    for form in ("json", "env", "args"):
        assert CliRunner().invoke(app, ["best", storage, "--format", form]).stderr == ""


def test_page_shows_it(storage: str, monkeypatch: pytest.MonkeyPatch) -> None:
    add_study(storage, "up", climbing())
    show_database(monkeypatch, storage)
    (shown,) = opened("best").info
    assert shown.value.startswith("lr is at the high end of its range in 10 of the 10 best trials")


def test_page_is_silent_otherwise(storage: str, monkeypatch: pytest.MonkeyPatch) -> None:
    add_study(storage, "few", climbing(19))
    show_database(monkeypatch, storage)
    assert not opened("best").info
