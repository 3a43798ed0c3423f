"""`tuner pause`, `resume`, `stop`, `set`: asks those who work on a study for something."""

from __future__ import annotations

import getpass
import socket
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

import sqlalchemy as sa
from optuna.trial import TrialState
from pydantic import ValidationError

from search_spaces.strict_yaml import YamlError, read_yaml
from tuner.config.messages import to_mistakes
from tuner.config.study import BudgetConfig
from tuner.errors import ConfigError
from tuner.messages import Json
from tuner.store.commands import Command, Order, insert_command
from tuner.verbs.dispatchers import read_dispatchers
from tuner.verbs.optuna_tables import TRIALS
from tuner.verbs.source import Place, choose_study, writing

_KEYS = tuple(f"budget.{field.alias or name}" for name, field in BudgetConfig.model_fields.items())


@dataclass(frozen=True, slots=True, kw_only=True)
class Ordered:
    """What was asked for, and who hears it."""

    study: str
    command: Command
    #: Where somebody works on the study: `host (pid 17)`.
    hearers: tuple[str, ...]


def order(place: Place, wanted: Command, now: datetime) -> Ordered:
    """Writes a command down.

    Raises:
        TunerError: If there is no such study or trial, or nobody is there who could do it.
    """
    with writing(place) as (_, connection):
        stored = choose_study(connection, place)
        alive = [one for one in read_dispatchers(connection, now, stored.id) if one.is_alive]
        hearers = tuple(f"{one.host} (pid {one.pid})" for one in alive)
        _refuse_vain(connection, stored.id, wanted, hearers)
        insert_command(connection, stored.id, wanted, at=now)
    return Ordered(study=stored.name, command=wanted, hearers=hearers)


def whoever_asks() -> str:
    """`user@host`, for the record."""
    try:
        user = getpass.getuser()
    except (OSError, KeyError):  # A container may have no name for its user.
        user = "somebody"
    return f"{user}@{socket.gethostname()}"


def read_limits(pairs: Sequence[str]) -> dict[str, Json]:
    """Reads `budget.trials=200`.

    Raises:
        ConfigError: With what is allowed.
    """
    limits: dict[str, Json] = {}
    for pair in pairs:
        key, separator, text = pair.partition("=")
        if not separator:
            problem = f"is given {pair!r}, but takes KEY=VALUE, such as budget.trials=200."
            raise ConfigError(problem, key="tuner set")
        limits[key] = _read_limit(key, text)
    return limits


def _read_limit(key: str, text: str) -> Json:
    if key not in _KEYS:
        problem = f"can't be changed while a study runs. What can: {', '.join(_KEYS)}."
        raise ConfigError(problem, key=key)
    name = key.removeprefix("budget.")
    try:
        value = read_yaml(text)
        config = BudgetConfig.model_validate({name: value})
    except YamlError as error:
        raise ConfigError(f"is given a value that is {error}", key=key) from error
    except ValidationError as error:
        mistake = to_mistakes(error.errors(), {})[0]
        raise ConfigError(mistake.problem, key=f"budget.{mistake.key}") from error
    found: Json = next(iter(config.model_dump(exclude_unset=True).values()))
    return found


def _refuse_vain(
    connection: sa.Connection, study_id: int, wanted: Command, hearers: Sequence[str]
) -> None:
    if wanted.trial_number is not None:
        _refuse_trial_that_does_not_run(connection, study_id, wanted.trial_number)
    if hearers or wanted.order in (Order.PAUSE, Order.RESUME):
        return
    if wanted.order is Order.SET:
        raise ConfigError(
            "Nobody works on this study now. Change the study file, or start it with --set."
        )
    raise ConfigError("Nobody works on this study now: there is nothing to stop.")


def _refuse_trial_that_does_not_run(connection: sa.Connection, study_id: int, number: int) -> None:
    query = sa.select(TRIALS.c.state).where(
        TRIALS.c.study_id == study_id, TRIALS.c.number == number
    )
    state = connection.execute(query).scalar()
    if state is None:
        raise ConfigError(f"There is no trial {number} in this study.")
    if state is not TrialState.RUNNING:
        ended = "waits" if state is TrialState.WAITING else "has ended already"
        raise ConfigError(f"Trial {number} does not run: it {ended}.")
