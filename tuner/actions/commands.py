"""`tuner pause`, `resume`, `stop`, `set`: sends commands to a study's dispatchers."""

from __future__ import annotations

import getpass
import socket
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime

import sqlalchemy as sa
from optuna.trial import TrialState
from pydantic import ValidationError

from tuner.actions.kept_settings import file_values
from tuner.config.mistake_text import to_mistakes
from tuner.config.rules import check_priority
from tuner.config.sections.budget import BudgetConfig
from tuner.config.sections.confirm import confirmation_of
from tuner.devices.request import parse_device_request
from tuner.domain.messages import Json
from tuner.errors import ConfigError
from tuner.queries.dispatchers import StoredDispatcher, read_dispatchers
from tuner.queries.locate import Place, choose_study, stored_studies, writing
from tuner.search_spaces.strict_yaml import YamlError, read_yaml
from tuner.store.optuna_tables.statements import TRIALS
from tuner.store.records.commands import (
    OF_THE_WHOLE,
    REFUSED,
    Addressee,
    Command,
    Order,
    insert_command,
)
from tuner.store.schema.models import EventRow

_LAST_EVENT = sa.select(sa.func.max(EventRow.id))
_KEYS = tuple(f"budget.{field.alias or name}" for name, field in BudgetConfig.model_fields.items())


@dataclass(frozen=True, slots=True, kw_only=True)
class Ordered:
    """A command that was sent, and its recipients."""

    study: str
    command: Command
    hearers: tuple[StoredDispatcher, ...]
    #: The newest event before the command: replies come later.
    last_event_id: int

    @property
    def places(self) -> tuple[str, ...]:
        """Places of the study's dispatchers: `host (pid 17)`."""
        return tuple(f"{one.host} (pid {one.pid})" for one in self.hearers)


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """A dispatcher's reply to a command."""

    is_refusal: bool
    text: str


def order(
    place: Place,
    wanted: Command,
    now: datetime,
    *,
    host: str | None = None,
    pid: int | None = None,
) -> Ordered:
    """Stores a command.

    Args:
        place: The study.
        wanted: The command.
        now: The current time.
        host: Host of the recipient, if it is for one dispatcher.
        pid: Its process id.

    Raises:
        TunerError: If there is no such study or trial, or no dispatcher could execute the command.
    """
    with writing(place) as (_, connection):
        stored = choose_study(connection, place)
        alive = _at_work(connection, now, stored.id)
        if wanted.order in OF_THE_WHOLE and wanted.trial_number is None:
            alive += _of_runs(connection, stored.name, now)
        _refuse_vain(connection, stored.id, wanted, alive)
        if wanted.order is Order.SET and not alive:
            if host is not None or pid is not None:
                key = "--host" if host is not None else "--pid"
                problem = "is for a running study. No dispatcher runs this one now: leave it out."
                raise ConfigError(problem, key=key)
            wanted = replace(wanted, kept_over=file_values(place.config, wanted.arguments))
        elif "devices" in wanted.arguments:
            known = read_dispatchers(connection, now, stored.id)
            alive = [choose_dispatcher(alive, [one for one in known if one.may_live], host, pid)]
            wanted = replace(wanted, to=Addressee(dispatcher_id=alive[0].id))
        elif host is not None or pid is not None:
            key = "--host" if host is not None else "--pid"
            problem = "goes with devices=...: a budget is that of the whole study."
            raise ConfigError(problem, key=key)
        last_event_id = connection.execute(_LAST_EVENT).scalar() or 0
        insert_command(connection, stored.id, wanted, at=now)
    return Ordered(
        study=stored.name, command=wanted, hearers=tuple(alive), last_event_id=last_event_id
    )


def _of_runs(connection: sa.Connection, study: str, now: datetime) -> list[StoredDispatcher]:
    """Dispatchers of the study's confirmation runs: they also follow commands to the study."""
    study_id = stored_studies(connection).get(confirmation_of(study))
    if study_id is None:
        return []
    return _at_work(connection, now, study_id)


def _at_work(connection: sa.Connection, now: datetime, study_id: int) -> list[StoredDispatcher]:
    """Live dispatchers; if there are none, those that may be alive."""
    found = read_dispatchers(connection, now, study_id)
    alive = [one for one in found if one.is_alive]
    return alive or [one for one in found if one.may_live]


def choose_dispatcher(
    alive: Sequence[StoredDispatcher],
    may_live: Sequence[StoredDispatcher],
    host: str | None,
    pid: int | None,
) -> StoredDispatcher:
    """The recipient of a command.

    Args:
        alive: Live dispatchers of the study, as far as known.
        may_live: All that are not proven dead. The clock of another machine may be wrong: a named
            dispatcher is searched here, too.
        host: Its host; None for any.
        pid: Its process id; None for any.

    Raises:
        ConfigError: If none or several match.
    """
    there = _at(alive, host, pid)
    if not there and (host, pid) != (None, None):
        there = _at(may_live, host, pid)
    places = ", ".join(f"{one.host} (pid {one.pid})" for one in there or alive)
    if not there:
        key = "--host" if host is not None else "--pid"
        problem = (
            f"is {host or pid}, where no dispatcher of this study runs. Dispatchers: {places}."
        )
        raise ConfigError(problem, key=key)
    if len({one.host for one in there}) > 1:
        raise ConfigError(
            f"Several machines work on this study: {places}. Say which one gets other devices: "
            f"--host {there[0].host}."
        )
    if len({one.pid for one in there}) > 1:
        raise ConfigError(
            f"Several dispatchers work on this study there: {places}. Say which one gets other "
            f"devices: --pid {there[0].pid}."
        )
    if len(there) > 1:
        raise ConfigError(
            f"{len(there)} dispatchers of this study have the host name {there[0].host} and the "
            f"pid {there[0].pid}, as containers may. Give each container a host name of its own, "
            "or choose the devices in the study file that it is started with."
        )
    return there[0]


def _at(
    dispatchers: Sequence[StoredDispatcher], host: str | None, pid: int | None
) -> list[StoredDispatcher]:
    return [one for one in dispatchers if host in (None, one.host) and pid in (None, one.pid)]


def read_answer(connection: sa.Connection, ordered: Ordered) -> Answer | None:
    """The reply to a command; None if there is none yet."""
    query = (
        sa.select(EventRow.name, EventRow.detail)
        .where(
            EventRow.id > ordered.last_event_id,
            EventRow.dispatcher_id.in_([one.id for one in ordered.hearers]),
            EventRow.name.in_([ordered.command.order.value, REFUSED]),
        )
        .order_by(EventRow.id)
        .limit(1)
    )
    row = connection.execute(query).first()
    return Answer(is_refusal=row.name == REFUSED, text=row.detail) if row is not None else None


def whoever_asks() -> str:
    """`user@host`, for the record."""
    try:
        user = getpass.getuser()
    except (OSError, KeyError):  # A container may have no name for its user.
        user = "unknown"
    return f"{user}@{socket.gethostname()}"


def split_source(words: Sequence[str]) -> tuple[str | None, list[str]]:
    """Splits off a study before KEY=VALUE words; None if none is named."""
    first, *rest = words
    is_pair = "=" in first and "://" not in first.partition("=")[0]
    return (None, list(words)) if is_pair or not rest else (first, rest)


def read_limits(pairs: Sequence[str]) -> dict[str, Json]:
    """Parses `budget.trials=200` or `devices=[0,1]`.

    Raises:
        ConfigError: With the allowed values.
    """
    limits: dict[str, Json] = {}
    for pair in pairs:
        key, separator, text = pair.partition("=")
        if not separator:
            problem = f"is given {pair!r}, but takes KEY=VALUE, such as budget.trials=200."
            raise ConfigError(problem, key="tuner set")
        limits[key] = _READERS[key](text) if key in _READERS else _read_limit(key, text)
    return limits


def _read_devices(text: str) -> Json:
    """Parses devices; whether they exist is known only on the study's machine."""
    try:
        value = read_yaml(text)
        parse_device_request(value)
    except YamlError as error:
        raise ConfigError(f"is given a value that is {error}", key="devices") from error
    except ValueError as error:
        raise ConfigError(str(error), key="devices") from error
    found: Json = value  # type: ignore[assignment]
    return found


def _read_priority(text: str) -> Json:
    """As the study file has it."""
    try:
        return check_priority(read_yaml(text))
    except YamlError as error:
        raise ConfigError(f"is given a value that is {error}", key="priority") from error
    except ValueError as error:
        raise ConfigError(str(error), key="priority") from error


_READERS: Mapping[str, Callable[[str], Json]] = {
    "devices": _read_devices,
    "priority": _read_priority,
}


def _read_limit(key: str, text: str) -> Json:
    if key not in _KEYS:
        if (full := f"budget.{key}") in _KEYS:
            raise ConfigError(f"is a key of budget. Write {full}={text}", key=key)
        problem = (
            "can't be changed by tuner set. What can: devices, priority, "
            f"{', '.join(_KEYS)}. Change others in the study file before the next start."
        )
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
    connection: sa.Connection, study_id: int, wanted: Command, hearers: Sequence[StoredDispatcher]
) -> None:
    if wanted.trial_number is not None:
        _refuse_trial_that_does_not_run(connection, study_id, wanted.trial_number)
    if hearers or wanted.order in (Order.PAUSE, Order.RESUME, Order.SET):
        return
    raise ConfigError("No dispatcher runs this study now: there is nothing to stop.")


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
