"""A store with attempts that a test writes, and reads back as rows."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import optuna
import sqlalchemy as sa

from tests.fakes import a_gpu
from tests.hosts import DEAD
from tuner.devices.allocation.pool import Lease
from tuner.devices.allocation.width import WHOLE
from tuner.devices.device import Device
from tuner.domain.attempt import Attempt, AttemptState, Cause, Ending, Outcome, advance
from tuner.domain.messages import Json
from tuner.host.clock import Instant
from tuner.store.connection.database import Database, open_database
from tuner.store.records.dispatchers.starts import (
    Sign,
    StartRecord,
)
from tuner.store.records.provenance import GitState, HostFacts
from tuner.store.records.recorder import Recorder
from tuner.store.schema.models import (
    TunerBase,
    table_of,
)

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)
GPUS = (a_gpu(0), a_gpu(1))
X_IS_HALF: Mapping[str, Json] = {"x": 0.5}


def later(seconds: float) -> datetime:
    return NOW + timedelta(seconds=seconds)


class StandingClock:
    def __init__(self, at: datetime) -> None:
        self._now = Instant(utc=at, monotonic_s=0.0)

    def now(self) -> Instant:
        return self._now


class Store:
    """A database with one study in it."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.database: Database = open_database(url)
        self.study = optuna.create_study(storage=self.database.storage, study_name="s")

    def recorder(
        self,
        host: HostFacts = DEAD,
        *,
        at: datetime = NOW,
        devices: tuple[Device, ...] = GPUS,
        study_id: int | None = None,
        seed: int = 5,
        silent: Collection[Sign] = (),
    ) -> Recorder:
        start = StartRecord(
            study_id=self.study._study_id if study_id is None else study_id,
            host=host,
            seed=seed,
            study_file="study: s",
            folder="/studies",
            versions={"python": "3"},
            git=GitState(commit="abc", is_dirty=True),
        )
        return Recorder(self.database, start, devices, clock=StandingClock(at), silent=silent)

    def attempt(self, number: int = 1) -> Attempt:
        trial = self.study.ask()
        return Attempt(
            trial_id=trial._trial_id,
            trial_number=trial.number,
            number=number,
            seed=11,
            leased_at=NOW,
        )

    def rows(self, table: type[TunerBase]) -> list[dict[str, object]]:
        with self.database.engine.connect() as connection:
            query = sa.select(table_of(table)).order_by(table_of(table).c.id)
            return [dict(row) for row in connection.execute(query).mappings()]

    def change(self, table: type[TunerBase], **values: object) -> None:
        with self.database.engine.begin() as connection:
            connection.execute(sa.update(table).values(**values))


def lease(
    recorder: Recorder,
    attempt: Attempt,
    *devices: Device,
    parts: int = WHOLE,
    params: Mapping[str, Json] = X_IS_HALF,
) -> None:
    held = Lease(number=1, attempt_id=attempt.id, devices=devices or GPUS[:1], parts=parts)
    recorder.lease(attempt, held, params=params, log_path="/log")


def run_to_its_end(recorder: Recorder, attempt: Attempt, outcome: Outcome) -> Attempt:
    lease(recorder, attempt)
    return finish(recorder, attempt, outcome)


def finish(
    recorder: Recorder, attempt: Attempt, outcome: Outcome, *, detail: str = "why"
) -> Attempt:
    """Moves it through its states, a second each."""
    ending = Ending(outcome=outcome, cause=Cause.PRUNER, detail=detail)
    attempt = replace(advance(attempt, AttemptState.RUNNING, at=later(1)), pid=42)
    recorder.moved(attempt, at=later(1))
    attempt = advance(replace(attempt, ending=ending), AttemptState.CLEARING, at=later(2))
    recorder.moved(attempt, at=later(2), params={"x": 0.5, "y": 1})
    attempt = advance(attempt, AttemptState.FINISHED, at=later(3))
    recorder.moved(attempt, at=later(3))
    recorder.commit()
    return attempt


# -- few statements ----------------------------------------------------------------------------
class Statements:
    """Those that an engine executes while it is entered."""

    def __init__(self, store: Store) -> None:
        self._engine = store.database.engine
        self.texts: list[str] = []

    def __enter__(self) -> list[str]:
        sa.event.listen(self._engine, "before_cursor_execute", self._note)
        return self.texts

    def __exit__(self, *_: object) -> None:
        sa.event.remove(self._engine, "before_cursor_execute", self._note)

    def _note(self, *arguments: object) -> None:
        self.texts.append(str(arguments[2]))


def refuse_table(name: str):
    def refuse(*arguments: object) -> None:
        if f"INSERT INTO {name}" in str(arguments[2]):
            raise sa.exc.OperationalError(str(arguments[2]), None, OSError("No space left"))

    return refuse
