"""Studies as they stand in a database, written by Optuna and by plain statements."""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from datetime import UTC, datetime, timedelta
from typing import Any, Literal

import optuna
import sqlalchemy as sa
from optuna.distributions import BaseDistribution
from optuna.storages import RDBStorage
from optuna.trial import FrozenTrial, TrialState, create_trial

from tuner.actions.transfer.study_tables import study_tables
from tuner.devices.device import DeviceKind
from tuner.devices.idle_causes import IdleCause
from tuner.domain.allocation import AllocationState
from tuner.domain.attempt import AttemptState, Cause, Outcome
from tuner.domain.budget import Budget
from tuner.host.process_identity import own_process
from tuner.queries.locate import Place, snapshot
from tuner.search_spaces import SearchSpace, parse_space, to_json
from tuner.store.connection.database import open_database
from tuner.store.optuna_tables.statements import METRIC_NAMES_ATTR, OBJECTIVES_ATTR, SPACE_ATTR
from tuner.store.schema.models import (
    AllocationRow,
    AttemptRow,
    AttemptUsageRow,
    CheckpointRow,
    DeviceRow,
    DispatcherRow,
    EventRow,
    HostRow,
    IdleRow,
    LeaseRow,
    MetricRow,
    TunerBase,
    UploadKind,
    UploadRow,
    UsageRow,
    table_of,
)

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)
HERE = socket.gethostname()
SPACE = parse_space(
    {
        "lr": {"type": "float", "low": 1e-4, "high": 1e-1, "log": True},
        "optimizer": {"type": "categorical", "choices": ["sgd", "adamw"]},
        "momentum": {"type": "float", "low": 0.0, "high": 0.99, "when": {"optimizer": "sgd"}},
        "epochs": 20,
    }
)
#: pids end at 4,194,304.
DEAD_PID = 4_999_999
STUDY_FILE = "study: first\nbudget: {trials: 8}\n"


def place(url: str, study: str | None = None) -> Place:
    return Place(url=url, study=study, shown="the database")


def a_trial(
    params: dict[str, Any],
    value: float | None = None,
    *,
    state: TrialState = TrialState.COMPLETE,
    space: SearchSpace = SPACE,
    **fields: Any,
) -> FrozenTrial:
    distributions: dict[str, BaseDistribution] = {
        each.name: each.distribution for each in space.parameters if each.name in params
    }
    return create_trial(
        state=state, value=value, params=params, distributions=distributions, **fields
    )


def first_trials() -> list[FrozenTrial]:
    """One of each kind."""
    sgd = {"lr": 0.01, "optimizer": "sgd", "momentum": 0.9}
    adamw = {"lr": 0.001, "optimizer": "adamw"}
    waiting = {"fixed_params": {"lr": 0.05}}
    return [
        a_trial(adamw, 0.8, intermediate_values={1: 0.5, 2: float("nan"), 3: 0.8}),
        a_trial(sgd, 0.9, user_attrs={"note": "güt \U0001f600", "list": [1, None]}),
        a_trial(adamw, 0.1, state=TrialState.PRUNED, intermediate_values={1: 0.1}),
        a_trial(adamw, state=TrialState.FAIL),
        a_trial(sgd, state=TrialState.RUNNING, intermediate_values={1: 0.3, 10: 0.4, 2: 0.35}),
        create_trial(state=TrialState.WAITING, system_attrs=waiting),
        a_trial(adamw, 0.99, constraints={"size": 1.0}),
        a_trial(adamw, float("-inf"), system_attrs={"completed_rung_0": 0.5, "grid_id": 3}),
    ]


@contextmanager
def optuna_storage(url: str) -> Iterator[RDBStorage]:
    storage = RDBStorage(url)
    yield storage
    storage.remove_session()
    storage.engine.dispose()


def add_study(
    url: str,
    name: str,
    trials: list[FrozenTrial],
    *,
    space: SearchSpace | None = SPACE,
    directions: tuple[Literal["minimize", "maximize"], ...] = ("maximize",),
    objectives: tuple[str, ...] = ("accuracy",),
) -> None:
    """As the tuner makes it; `space` None: as Optuna alone makes it."""
    if space is None:
        with optuna_storage(url) as storage:
            study = optuna.create_study(storage=storage, study_name=name, directions=directions)
            study.add_trials(trials)
        return
    database = open_database(url)
    study = optuna.create_study(storage=database.storage, study_name=name, directions=directions)
    study.set_user_attr(SPACE_ATTR, to_json(space))
    study.set_user_attr(OBJECTIVES_ATTR, list(objectives))
    names = list(objectives)
    database.storage.set_study_system_attr(study._study_id, METRIC_NAMES_ATTR, names)
    study.add_trials(trials)
    database.storage.flush()
    database.close()


def load(url: str, name: str) -> tuple[dict[str, Any], list[FrozenTrial]]:
    """A study's attributes and its trials, as Optuna reads them."""
    with optuna_storage(url) as storage:
        study = optuna.load_study(storage=storage, study_name=name)
        return study.user_attrs, study.get_trials()


def add_dispatcher(
    url: str,
    study: str,
    *,
    host: str = HERE,
    is_ended: bool = False,
    is_alive: bool = False,
    study_file: str = STUDY_FILE,
    budget: Budget | None = None,
    allocation_id: int | None = None,
) -> int:
    with writing(url) as connection:
        return _insert(
            connection,
            DispatcherRow,
            study_id=study_id(connection, study),
            host_id=_host_id(connection, host),
            pid=os.getpid() if is_alive else DEAD_PID,
            process_created_at_s=0.0,
            started_at=_stored(0),
            beat_at=_stored(90),
            ended_at=_stored(90) if is_ended else None,
            end_reason="budget: 5 trials" if is_ended else "",
            seed=5,
            study_file=study_file,
            folder="/studies",
            versions={"python": "3", **own_process().facts()},
            git_commit="abc",
            git_is_dirty=True,
            devices=["GPU 0", "GPU 1"],
            budget=None if budget is None else asdict(budget),
            allocation_id=allocation_id,
        )


def add_allocation(url: str, study: str) -> int:
    """One that has ended on Slurm."""
    with writing(url) as connection:
        return _insert(
            connection,
            AllocationRow,
            study_id=study_id(connection, study),
            number=0,
            engine="slurm",
            name="7_0",
            state=AllocationState.ENDED,
            reason="budget: 5 trials",
            node="n1",
            n_devices=4,
            submitted_by="me@login",
            submitted_at=_stored(0),
            started_at=_stored(1),
            deadline=_stored(3600),
            ended_at=_stored(90),
        )


def add_attempt(
    url: str,
    dispatcher_id: int,
    trial_number: int,
    *,
    number: int = 1,
    outcome: Outcome | None = Outcome.COMPLETED,
    cause: Cause = Cause.EXCEPTION,
    device: int = 0,
    is_held: bool = True,
) -> None:
    """One with a lease, events and metrics; `outcome` None: it runs; not held: on a CPU slot."""
    with writing(url) as connection:
        dispatcher = connection.execute(
            sa.select(DispatcherRow.study_id, DispatcherRow.host_id).where(
                DispatcherRow.id == dispatcher_id
            )
        ).one()
        is_open = outcome is None
        attempt_id = _insert(
            connection,
            AttemptRow,
            dispatcher_id=dispatcher_id,
            trial_id=trial_id(connection, dispatcher.study_id, trial_number),
            number=number,
            state=AttemptState.RUNNING if is_open else AttemptState.FINISHED,
            outcome=outcome,
            cause=None if outcome in (None, Outcome.COMPLETED) else cause,
            detail="" if is_open else "the last line",
            params={"lr": 0.01, "odd": None},
            seed=11,
            pid=42,
            peak_memory_bytes=2**40,
            log_path="/studies/log",
            leased_at=_stored(60),
            started_at=_stored(61),
            ended_at=None if is_open else _stored(62),
            finished_at=None if is_open else _stored(63),
        )
        device_id = _device_id(connection, dispatcher.host_id, device)
        _insert(
            connection,
            LeaseRow,
            attempt_id=attempt_id,
            device_id=device_id,
            held_device_id=device_id if is_open and is_held else None,
            held_slot=0,
            share=0.25,
            leased_at=_stored(60),
            released_at=None if is_open else _stored(63),
        )
        _add_usage(connection, dispatcher_id, attempt_id, device_id, 100 * trial_number + number)
        of_attempt = {"dispatcher_id": dispatcher_id, "attempt_id": attempt_id}
        _insert(connection, EventRow, at=_stored(60), name="leased", detail="", **of_attempt)
        for step, value in ((1, 0.5), (2, None)):
            _insert(
                connection, MetricRow, attempt_id=attempt_id, step=step, name="loss", value=value
            )
        _insert(
            connection,
            CheckpointRow,
            trial_id=trial_id(connection, dispatcher.study_id, trial_number),
            attempt_id=attempt_id,
            step=2,
            path=f"/studies/trial-{trial_number}/step-2.pt",
            size_bytes=2**33,
            saved_at=_stored(62),
        )


def add_upload(
    url: str, study: str, trial_number: int, *, uri: str = "s3://bucket/step-2.pt"
) -> None:
    """The checkpoint of the first attempt of a trial is in an object store."""
    with writing(url) as connection:
        owner = trial_id(connection, study_id(connection, study), trial_number)
        first = sa.select(sa.func.min(AttemptRow.id)).where(AttemptRow.trial_id == owner)
        _insert(
            connection,
            UploadRow,
            trial_id=owner,
            attempt_id=connection.execute(first).scalar_one(),
            kind=UploadKind.CHECKPOINT,
            step=2,
            name="step-2.pt",
            uri=uri,
            size_bytes=2**33,
            saved_at=_stored(62),
        )


def add_idle(
    url: str, dispatcher_id: int, device: int, cause: IdleCause, *, since_s: float, until_s: float
) -> None:
    """A device of a dispatcher's host stood idle, in seconds after NOW."""
    with writing(url) as connection:
        query = sa.select(DispatcherRow.host_id).where(DispatcherRow.id == dispatcher_id)
        device_id = _device_id(connection, connection.execute(query).scalar_one(), device)
        row = {"dispatcher_id": dispatcher_id, "device_id": device_id, "cause": cause}
        instants = {"began_at": _stored(since_s), "ended_at": _stored(until_s)}
        connection.execute(sa.insert(table_of(IdleRow)), row | instants)


def _add_usage(
    connection: sa.Connection, dispatcher_id: int, attempt_id: int, device_id: int, place: int
) -> None:
    """Two seconds of an attempt at half speed, in which it took 600 J; an idle time."""
    seen = {
        "covered_ms": 2000,
        "utilization_pct_ms": 100_000,
        "utilization_max_pct": 60,
        "memory_mib_ms": 2**30,
        "memory_max_mib": 2**20,
        "energy_mj": 600_000,
    }
    total = sa.insert(table_of(AttemptUsageRow))
    connection.execute(total, {"attempt_id": attempt_id, "device_id": device_id, **seen})
    of_us = {"dispatcher_id": dispatcher_id, "device_id": device_id}
    start_s = int(NOW.timestamp()) + 10 * place
    sample = sa.insert(table_of(UsageRow))
    connection.execute(sample, {**of_us, "span_s": 10, "start_s": start_s, **seen})
    idle = {"began_at": _stored(place), "ended_at": _stored(place + 0.5)}
    connection.execute(
        sa.insert(table_of(IdleRow)), {**of_us, **idle, "cause": IdleCause.NO_SUGGESTION}
    )


def add_first_study(url: str, name: str = "first") -> None:
    """A study with trials of each kind, of a dispatcher that has ended and one that is alive."""
    add_study(url, name, first_trials())
    ended = add_dispatcher(url, name, is_ended=True)
    for number, outcome in ((0, Outcome.COMPLETED), (2, Outcome.PRUNED), (3, Outcome.FAILED)):
        add_attempt(url, ended, number, outcome=outcome)
    add_attempt(url, ended, 3, number=2, outcome=Outcome.OUT_OF_MEMORY)
    alive = add_dispatcher(url, name, is_alive=True)
    add_attempt(url, alive, 4, outcome=None, device=1)


@contextmanager
def writing(url: str) -> Iterator[sa.Connection]:
    database = open_database(url)
    with database.engine.begin() as connection:
        yield connection
    database.close()


@contextmanager
def looking(url: str) -> Iterator[sa.Connection]:
    database = open_database(url, read_only=True)
    with snapshot(database.engine) as connection:
        yield connection
    database.close()


def study_id(connection: sa.Connection, name: str) -> int:
    query = sa.text("SELECT study_id FROM studies WHERE study_name = :name")
    return int(connection.execute(query, {"name": name}).scalar_one())


def trial_id(connection: sa.Connection, study_id: int, number: int) -> int:
    query = sa.text("SELECT trial_id FROM trials WHERE study_id = :study AND number = :number")
    return int(connection.execute(query, {"study": study_id, "number": number}).scalar_one())


def dump(url: str, name: str) -> dict[str, list[dict[str, object]]]:
    """Every row of a study, with its place among the others in the stead of identifiers."""
    with looking(url) as connection:
        found: dict[str, list[dict[str, object]]] = {}
        places: dict[str, dict[object, int]] = {}
        for each in study_tables(with_ours=True):
            query = sa.select(each.table).where(each.of_study(study_id(connection, name)))
            rows = [
                dict(row) for row in connection.execute(query.order_by(*each.identity)).mappings()
            ]
            places[each.name] = {row[each.key.name]: i for i, row in enumerate(rows)}
            for row in rows:
                for column, target in each.references.items():
                    row[column] = places.get(target, {}).get(row[column])
                row[each.key.name] = None
            found[each.name] = rows
        return found


def n_rows(url: str) -> dict[str, int]:
    """Rows of each table that has any."""
    with looking(url) as connection:
        tables = [each.table for each in study_tables(with_ours=True)]
        counts = {
            table.name: connection.execute(
                sa.select(sa.func.count()).select_from(table)
            ).scalar_one()
            for table in tables
        }
    return {name: n for name, n in counts.items() if n}


def _host_id(connection: sa.Connection, name: str) -> int:
    found = connection.execute(sa.select(HostRow.id).where(HostRow.name == name)).scalar()
    return found or _insert(connection, HostRow, name=name, n_cores=2, memory_bytes=2**40)


def _device_id(connection: sa.Connection, host_id: int, number: int) -> int:
    device = f"GPU-{number}"
    query = sa.select(DeviceRow.id).where(DeviceRow.host_id == host_id, DeviceRow.device == device)
    found = connection.execute(query).scalar()
    return found or _insert(
        connection,
        DeviceRow,
        host_id=host_id,
        device=device,
        kind=DeviceKind.GPU,
        number=number,
        name="H200",
        memory_bytes=2**37,
    )


def _insert(connection: sa.Connection, row: type[TunerBase], **values: object) -> int:
    key = connection.execute(sa.insert(table_of(row)), values).inserted_primary_key
    assert key is not None
    return int(key[0])


def _stored(seconds: float) -> datetime:
    return (NOW + timedelta(seconds=seconds)).replace(tzinfo=None)


def as_objects(text: str) -> list[dict[str, Any]]:
    found = json.loads(text)
    assert isinstance(found, list)
    return found
