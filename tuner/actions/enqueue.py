"""`tuner enqueue`: configurations to be tried before all others."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import sqlalchemy as sa
from optuna.trial import TrialState

from tuner.actions.config_input import Given
from tuner.actions.fit_to_space import fit_all, fitted, fitted_freely
from tuner.config import StudyConfig
from tuner.queries.locate import Place, StoredStudy, choose_study, reading, writing
from tuner.queries.trials.params import read_distributions, read_fixed, read_params, read_space
from tuner.search.study_identity import open_study, to_optuna
from tuner.search_spaces import ParamValue, SearchSpace
from tuner.store.connection.database import Database, open_database, store_errors
from tuner.store.optuna_tables.statements import (
    ASKED_BY_ATTR,
    FIXED_PARAMS_ATTR,
    SYSTEM_ATTRS,
    USER_ATTRS,
)
from tuner.store.optuna_tables.writes import insert_trial

Configuration = Mapping[str, ParamValue]


@dataclass(frozen=True, slots=True, kw_only=True)
class Enqueued:
    """Result of `enqueue`."""

    study: str
    trial_numbers: tuple[int, ...]
    #: Configurations that the study has already.
    n_skipped: int


def enqueue(
    place: Place, given: Sequence[Given], *, skip_existing: bool, asked_by: str
) -> Enqueued:
    """Enqueues configurations; creates the study of a study file if it does not exist.

    Args:
        place: The study.
        given: The configurations; missing parameters are sampled.
        skip_existing: Skip configurations that the study has tried or enqueued.
        asked_by: `user@host`, stored in an attribute of each trial.

    Raises:
        TunerError: If there is no such study, or a configuration does not fit its space; then none
            is enqueued.
    """
    if place.config is not None:
        _make_study(place.config, given)
    with reading(place) as (_, connection):
        stored = choose_study(connection, place)
        wanted = _checked(connection, stored, given)
    with writing(place) as (_, connection):
        known = _known(connection, stored.id) if skip_existing else None
        chosen = [each for each in wanted if known is None or _is_new(each, known)]
        numbers = [_insert(connection, stored.id, each, asked_by) for each in chosen]
    return Enqueued(
        study=stored.name,
        trial_numbers=tuple(numbers),
        n_skipped=len(wanted) - len(chosen),
    )


def _make_study(config: StudyConfig, given: Sequence[Given]) -> None:
    """Makes the study as its start would do, and refuses a changed file as its start would."""
    space = config.search_space
    if isinstance(space, SearchSpace):
        fit_all(given, lambda each: fitted(each, space))  # Before a study is made for nothing.
    database = open_database(config.storage)
    try:
        with store_errors(config.storage):
            _open_study(database, config)
    finally:
        database.close()


def _open_study(database: Database, config: StudyConfig) -> None:
    open_study(
        database.storage,
        config.study,
        [to_optuna(direction) for direction in config.objectives.values()],
        tuple(config.objectives),
        config.search_space,
    )


def _checked(
    connection: sa.Connection, stored: StoredStudy, given: Sequence[Given]
) -> list[dict[str, ParamValue]]:
    space = read_space(connection, stored.id)
    if isinstance(space, SearchSpace):
        return fit_all(given, lambda each: fitted(each, space))
    distributions = read_distributions(connection, stored.id)
    return fit_all(given, lambda each: fitted_freely(each, distributions))


def _known(connection: sa.Connection, study_id: int) -> set[str]:
    """Tried and enqueued configurations, in Optuna's comparable form."""
    configurations = [
        *read_params(connection, study_id).values(),
        *read_fixed(connection, study_id).values(),
    ]
    return {_key(each) for each in configurations}


def _is_new(configuration: Configuration, known: set[str]) -> bool:
    """Whether a configuration is new; also false for a duplicate among the given ones."""
    key = _key(configuration)
    if key in known:
        return False
    known.add(key)
    return True


def _key(configuration: Configuration) -> str:
    return json.dumps(configuration, sort_keys=True)


def _insert(
    connection: sa.Connection, study_id: int, configuration: Configuration, asked_by: str
) -> int:
    """Returns the trial's number."""
    trial_id, number = insert_trial(connection, study_id, TrialState.WAITING, started_at=None)
    attribute = {
        "trial_id": trial_id,
        "key": FIXED_PARAMS_ATTR,
        "value_json": json.dumps(configuration),
    }
    connection.execute(sa.insert(SYSTEM_ATTRS), attribute)
    who = {"trial_id": trial_id, "key": ASKED_BY_ATTR, "value_json": json.dumps(asked_by)}
    connection.execute(sa.insert(USER_ATTRS), who)
    return number
