"""Writes Optuna's own tables in bulk: a few statements per batch.

Optuna's `RDBStorage` opens and commits one transaction for each parameter and each report (about 50
ms of processor time for a trial with four parameters and five reports, measured on SQLite). The
rows here are the same, so that `optuna.load_study` and optuna-dashboard read them.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

import sqlalchemy as sa
from optuna.distributions import BaseDistribution, distribution_to_json
from optuna.trial import FrozenTrial, TrialState

from tuner.store.optuna_compat import trial_id_of
from tuner.store.optuna_tables.statements import (
    CURVES,
    PARAMS,
    STUDIES,
    SYSTEM_ATTRS,
    TRIALS,
    USER_ATTRS,
    VALUES,
    known,
    models,
)
from tuner.store.schema.statements import execute_rows

Row = dict[str, Any]


@dataclass(slots=True)
class PendingRows:
    """Changes in memory that are not in the database yet.

    Keys are (trial id, name or step), so that a later change replaces an earlier one. `replaced`
    names the rows that may be in the database already.
    """

    params: dict[tuple[int, str], Row] = field(default_factory=dict)
    curves: dict[tuple[int, int], Row] = field(default_factory=dict)
    #: By trial id: the first step whose stored reports are deleted before `curves` is written.
    dropped: dict[int, int] = field(default_factory=dict)
    user_attrs: dict[tuple[int, str], Row] = field(default_factory=dict)
    system_attrs: dict[tuple[int, str], Row] = field(default_factory=dict)
    values: dict[tuple[int, int], Row] = field(default_factory=dict)
    states: dict[int, Row] = field(default_factory=dict)
    replaced: set[tuple[str, int, Any]] = field(default_factory=set)

    def __bool__(self) -> bool:
        return any(
            (
                self.params,
                self.curves,
                self.dropped,
                self.user_attrs,
                self.system_attrs,
                self.values,
                self.states,
            )
        )

    def add_param(
        self,
        trial_id: int,
        name: str,
        internal: float,
        distribution: BaseDistribution,
        *,
        replaces: bool = False,
    ) -> None:
        if replaces:
            self.replaced.add((PARAMS.name, trial_id, name))
        self.params[trial_id, name] = {
            "trial_id": trial_id,
            "param_name": name,
            "param_value": internal,
            "distribution_json": distribution_to_json(distribution),
        }

    def add_report(self, trial_id: int, step: int, value: float, *, replaces: bool = False) -> None:
        if replaces:
            self.replaced.add((CURVES.name, trial_id, step))
        model = models.TrialIntermediateValueModel
        stored, kind = model.intermediate_value_to_stored_repr(value)
        self.curves[trial_id, step] = {
            "trial_id": trial_id,
            "step": step,
            "intermediate_value": stored,
            "intermediate_value_type": kind,
        }

    def drop_reports(self, trial_id: int, from_step: int) -> None:
        for key in [k for k in self.curves if k[0] == trial_id and k[1] >= from_step]:
            del self.curves[key]
        self.dropped[trial_id] = min(from_step, self.dropped.get(trial_id, from_step))

    def add_attr(
        self, trial_id: int, key: str, value: object, *, system: bool, replaces: bool = False
    ) -> None:
        rows, table = self.user_attrs, USER_ATTRS
        if system:
            rows, table = self.system_attrs, SYSTEM_ATTRS
        if replaces:
            self.replaced.add((table.name, trial_id, key))
        rows[trial_id, key] = {"trial_id": trial_id, "key": key, "value_json": json.dumps(value)}

    def add_state(
        self,
        trial_id: int,
        state: TrialState,
        *,
        started_at: datetime | None,
        completed_at: datetime | None,
    ) -> None:
        self.states[trial_id] = {
            "b_trial_id": trial_id,
            "b_state": state,
            "b_start": _utc(started_at),
            "b_complete": _utc(completed_at),
        }

    def add_values(self, trial_id: int, values: Sequence[float]) -> None:
        for objective, value in enumerate(values):
            stored, kind = models.TrialValueModel.value_to_stored_repr(value)
            self.values[trial_id, objective] = {
                "trial_id": trial_id,
                "objective": objective,
                "value": stored,
                "value_type": kind,
            }

    def add_whole(self, trial: FrozenTrial) -> None:
        """All of a trial but its state: parameters, values, curve and attributes."""
        trial_id = trial_id_of(trial)
        for name, distribution in trial.distributions.items():
            internal = distribution.to_internal_repr(trial.params[name])
            self.add_param(trial_id, name, internal, distribution)
        for step, value in trial.intermediate_values.items():
            self.add_report(trial_id, step, value)
        for key, value in trial.user_attrs.items():
            self.add_attr(trial_id, key, value, system=False)
        for key, value in trial.system_attrs.items():
            self.add_attr(trial_id, key, value, system=True)
        if trial.values is not None:
            self.add_values(trial_id, trial.values)

    def write(self, connection: sa.Connection) -> None:
        """Writes everything in the caller's transaction; forget the batch once it is committed."""
        for trial_id, step in self.dropped.items():
            connection.execute(_DROP_REPORTS, {"b_trial_id": trial_id, "b_step": step})
        for table, rows in (
            (PARAMS, self.params),
            (CURVES, self.curves),
            (USER_ATTRS, self.user_attrs),
            (SYSTEM_ATTRS, self.system_attrs),
            (VALUES, self.values),
        ):
            self._write_table(connection, table, rows)
        if self.states:
            execute_rows(connection, _UPDATE_STATE, list(self.states.values()))

    def _write_table(
        self, connection: sa.Connection, table: sa.Table, rows: dict[Any, Row]
    ) -> None:
        if not rows:
            return
        old = [
            {"b_trial_id": key[0], "b_name": key[1]}
            for key in rows
            if (table.name, *key) in self.replaced
        ]
        execute_rows(connection, _DELETES[table.name], old)
        execute_rows(connection, _INSERTS[table.name], list(rows.values()))


_UPDATE_STATE = (
    sa.update(TRIALS)
    .where(TRIALS.c.trial_id == sa.bindparam("b_trial_id"))
    .values(
        state=sa.bindparam("b_state", type_=TRIALS.c.state.type),
        datetime_start=sa.bindparam("b_start"),
        datetime_complete=sa.bindparam("b_complete"),
    )
)


_NAME_COLUMNS = {
    PARAMS: "param_name",
    CURVES: "step",
    USER_ATTRS: "key",
    SYSTEM_ATTRS: "key",
    VALUES: "objective",
}
# Made once: SQLAlchemy then finds their compiled form without looking at each part again.
# Inline: nobody asks for the key of a single row.
_INSERTS = {table.name: sa.insert(table).inline() for table in _NAME_COLUMNS}
_DELETES = {
    table.name: sa.delete(table).where(
        table.c.trial_id == sa.bindparam("b_trial_id"), table.c[name] == sa.bindparam("b_name")
    )
    for table, name in _NAME_COLUMNS.items()
}
_DROP_REPORTS = sa.delete(CURVES).where(
    CURVES.c.trial_id == sa.bindparam("b_trial_id"), CURVES.c.step >= sa.bindparam("b_step")
)
_LOCK_STUDY = (
    sa.select(STUDIES.c.study_id)
    .where(STUDIES.c.study_id == sa.bindparam("b_study_id"))
    .with_for_update()
)
#: Not `count(*)`, which scans all trials. Ids increase with the numbers, as both are assigned while
#: the study is locked, so trials older than a known one need not be read.
_NEWEST_NUMBER = (
    sa.select(TRIALS.c.number)
    .where(
        TRIALS.c.study_id == sa.bindparam("b_study_id"),
        TRIALS.c.trial_id >= sa.bindparam("b_known_id"),
    )
    .order_by(TRIALS.c.trial_id.desc())
    .limit(1)
)
_INSERT_TRIAL = sa.insert(TRIALS).values(
    study_id=sa.bindparam("b_study_id"),
    number=sa.bindparam("b_number"),
    state=sa.bindparam("b_state", type_=TRIALS.c.state.type),
    datetime_start=sa.bindparam("b_start"),
    datetime_complete=sa.bindparam("b_complete"),
)
_INSERT_NEXT_TRIAL = _INSERT_TRIAL.values(
    number=sa.func.coalesce(_NEWEST_NUMBER.scalar_subquery(), sa.bindparam("b_known_number")) + 1
).returning(TRIALS.c.trial_id, TRIALS.c.number)


def lock_study(connection: sa.Connection, study_id: int) -> bool:
    """Locks a study: no other process adds a trial before the transaction ends (with row locks).

    Optuna does the same to assign a number. Returns whether the study exists.
    """
    return connection.execute(_LOCK_STUDY, {"b_study_id": study_id}).first() is not None


def insert_trial(
    connection: sa.Connection,
    study_id: int,
    state: TrialState,
    *,
    started_at: datetime | None,
    completed_at: datetime | None = None,
    newest: FrozenTrial | None = None,
    is_locked: bool = False,
) -> tuple[int, int]:
    """Adds a trial's own row with the next free number.

    Args:
        connection: In a transaction.
        study_id: Id of the study.
        state: State of the trial.
        started_at: When it started.
        completed_at: When it ended.
        newest: The known trial with the highest number; older ones are not read.
        is_locked: Whether this transaction has already locked the study.

    Returns:
        Its id in the database and its number in the study.

    Raises:
        KeyError: If there is no such study.
    """
    if not is_locked and not lock_study(connection, study_id):
        raise KeyError(f"No study with study_id {study_id} exists.")
    row: Row = {
        "b_study_id": study_id,
        "b_state": state,
        "b_start": _utc(started_at),
        "b_complete": _utc(completed_at),
    }
    known: Row = {
        "b_known_id": 0 if newest is None else trial_id_of(newest),
        "b_known_number": -1 if newest is None else newest.number,
    }
    if connection.dialect.insert_returning:
        trial_id, number = connection.execute(_INSERT_NEXT_TRIAL, row | known).one()
        return int(trial_id), int(number)
    # MySQL, which also refuses a subquery on the table that it inserts into.
    of_newest = {"b_study_id": study_id, "b_known_id": known["b_known_id"]}
    last = connection.execute(_NEWEST_NUMBER, of_newest).scalar()
    number = (known["b_known_number"] if last is None else int(last)) + 1
    inserted = connection.execute(_INSERT_TRIAL, row | {"b_number": number}).inserted_primary_key
    assert inserted is not None
    return int(inserted[0]), number


def insert_attributes(
    connection: sa.Connection, trial_id: int, attributes: Mapping[str, object]
) -> None:
    """Adds a new trial's system attributes."""
    rows = [
        {"trial_id": trial_id, "key": key, "value_json": json.dumps(value)}
        for key, value in attributes.items()
    ]
    execute_rows(connection, _INSERTS[SYSTEM_ATTRS.name], rows)


def claim_waiting_trial(connection: sa.Connection, trial_id: int, started_at: datetime) -> bool:
    """Takes a waiting trial, unless another dispatcher took it first (compare and set)."""
    claim = (
        sa.update(TRIALS)
        .where(TRIALS.c.trial_id == trial_id, TRIALS.c.state == TrialState.WAITING)
        .values(state=TrialState.RUNNING, datetime_start=_utc(started_at))
    )
    return connection.execute(claim).rowcount == 1


def study_of_trial(connection: sa.Connection, trial_id: int) -> int:
    """The study of a trial.

    Raises:
        KeyError: If there is no such trial.
    """
    query = sa.select(TRIALS.c.study_id).where(TRIALS.c.trial_id == trial_id)
    return int(known(connection, query, f"No trial with trial_id {trial_id} exists."))


def _utc(at: datetime | None) -> datetime | None:
    """Optuna's values carry local time without a zone; its tables hold UTC without a zone."""
    return at.astimezone(UTC).replace(tzinfo=None) if at else None
