"""`tuner schedule`: the parameters of a trial, from copy to copy."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path

import optuna
import pytest
import typer
from optuna.distributions import FloatDistribution
from optuna.trial import TrialState, create_trial

from tests.databases import new_database
from tuner.cli.schedule import schedule as schedule_command
from tuner.errors import ConfigError, StoreError
from tuner.queries.locate import choose_study, find_place, reading
from tuner.queries.results.schedule import Phase, Schedule, load_schedule
from tuner.queries.schedules import read_schedule
from tuner.store.records.population_rows import COPY_KEY, Origin
from tuner.terminal.schedules import schedule_text
from tuner.terminal.why import explain

NOW = datetime(2026, 3, 1, tzinfo=UTC)
LR = {"lr": FloatDistribution(0.0, 1.0)}


def add(
    study: optuna.Study,
    lr: float,
    steps: range,
    origin: Origin | None = None,
    state: TrialState = TrialState.COMPLETE,
) -> None:
    study.add_trial(
        create_trial(
            state=state,
            params={"lr": lr},
            distributions=LR,
            value=lr,
            intermediate_values=dict.fromkeys(steps, 0.5),
            system_attrs={} if origin is None else {COPY_KEY: origin.as_json()},
        )
    )


@pytest.fixture
def url(tmp_path: Path) -> str:
    """Trial 3 is a copy of trial 2 at step 10, which is one of trial 0 at step 5."""
    url = new_database(tmp_path)
    study = optuna.create_study(study_name="s", storage=url)
    add(study, 0.5, range(1, 16))
    add(study, 0.9, range(1, 6), state=TrialState.PRUNED)
    add(study, 0.4, range(6, 11), Origin(parent=0, step=5, replaces=1), TrialState.PRUNED)
    add(study, 0.3, range(11, 16), Origin(parent=2, step=10, replaces=2))
    add(study, 0.8, range(1, 16), Origin(parent=2, step=0, replaces=9))
    add(study, 0.7, range(0), Origin(parent=2, step=10, replaces=8, is_sure=False))
    return url


def read(url: str, number: int | None = None) -> Schedule:
    place = find_place(url, None, {})
    with reading(place) as (_, connection):
        return read_schedule(connection, choose_study(connection, place), number, NOW)


def why(url: str, number: int) -> list[str]:
    place = find_place(url, None, {})
    with reading(place) as (_, connection):
        return explain(connection, choose_study(connection, place), number, NOW).splitlines()


def test_the_best_trials_lineage_is_its_schedule(url: str) -> None:
    found = read(url)
    assert found == Schedule(
        study="s",
        trial=3,
        phases=[
            Phase(after_step=0, trial=0, params={"lr": 0.5}),
            Phase(after_step=5, trial=2, params={"lr": 0.4}),
            Phase(after_step=10, trial=3, params={"lr": 0.3}),
        ],
        last_step=15,
        values={"value": 0.3},
    )
    assert schedule_text(found).splitlines() == [
        "trial 3 of study 's': value 0.3",
        "steps    trial  parameters, then those that change",
        "1 - 5    0      lr 0.5",
        "6 - 10   2      lr 0.4",
        "11 - 15  3      lr 0.3",
    ]


def test_who_was_never_a_copy_has_one_phase(url: str) -> None:
    assert [phase.trial for phase in read(url, 0).phases] == [0]


def test_a_copy_that_began_anew_has_only_its_own(url: str) -> None:
    assert read(url, 4).phases == [Phase(after_step=0, trial=4, params={"lr": 0.8})]


def test_a_new_configuration_in_the_place_of_a_failed_one_has_only_its_own(url: str) -> None:
    study = optuna.load_study(study_name="s", storage=url)
    add(study, 0.6, range(1, 16), Origin(parent=None, step=0, replaces=1))
    assert read(url, 6).phases == [Phase(after_step=0, trial=6, params={"lr": 0.6})]
    assert "  new configuration, in the place of trial 1" in why(url, 6)
    assert "  replaced by trial 6, which has a new configuration" in why(url, 1)
    assert "  copied by trial 2" in why(url, 0)


def test_what_nobody_knows_is_refused(url: str) -> None:
    with pytest.raises(ConfigError, match="its earlier parameters are unknown"):
        read(url, 5)
    with pytest.raises(ConfigError, match="There is no trial 17 in study 's'"):
        read(url, 17)


def test_without_a_completed_trial_one_is_to_be_named(tmp_path: Path) -> None:
    url = new_database(tmp_path)
    add(optuna.create_study(study_name="s", storage=url), 0.5, range(3), state=TrialState.PRUNED)
    with pytest.raises(StoreError, match="Name one: --trial"):
        read(url)
    assert read(url, 0).last_step == 2


def test_the_file_is_read_again_and_not_replaced(
    url: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "schedule.json"
    schedule_command(url, output=path, as_json=True)
    assert load_schedule(path) == read(url)
    assert json.loads(capsys.readouterr().out)["trial"] == 3
    with pytest.raises(typer.Exit):
        schedule_command(url, output=path)
    assert "is there already. Give another file, or --force" in capsys.readouterr().err
    schedule_command(url, output=path, trial=0, force=True)
    assert load_schedule(path).trial == 0
