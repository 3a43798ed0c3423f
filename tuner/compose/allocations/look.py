"""Looks at the engines of a stored study: the states of its allocations, and their output."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

import sqlalchemy as sa

from tuner.checkpoints.paths import StudyFiles
from tuner.compose.allocations.lent import engine_config
from tuner.domain.allocation import Allocation, AllocationState
from tuner.engines.port import Engine
from tuner.engines.registry import open_engine
from tuner.errors import ConfigError, EngineError
from tuner.queries.dispatchers import has_our_tables
from tuner.queries.locate import Place, choose_study, reading
from tuner.store.connection.database import Database, open_database
from tuner.store.records.allocations import note_seen
from tuner.store.schema.models import AllocationRow


def look_at_engines(place: Place) -> Iterator[str]:
    """Queries the engines of open allocations, and records the result.

    Args:
        place: The study. Without a study file the engines are unknown and skipped.

    Yields:
        Why an engine could not be queried.
    """
    if place.config is None or not place.exists:
        return
    study_id, name, engines = _open_engines(place)
    for engine_name in engines:
        try:
            engine = open_engine(engine_config(place.config, engine_name))
            database = open_database(place.url)
            try:
                refresh(database, study_id, engine, name)
            finally:
                database.close()
        except EngineError as error:
            yield f"Allocations of {engine_name} are shown as last seen. {error}"


def refresh(
    database: Database, study_id: int, engine: Engine, study: str
) -> tuple[Allocation, ...]:
    """Queries the engine, and records the result."""
    seen = engine.allocations(study)
    note = partial(
        note_seen, study_id=study_id, engine=engine.name, seen=seen, at=datetime.now(UTC)
    )
    database.access.run(note)
    return seen


def _open_engines(place: Place) -> tuple[int, str, list[str]]:
    """The study, and the names of engines with allocations that are not over."""
    over = [state for state in AllocationState if state.is_over]
    with reading(place) as (_, connection):
        stored = choose_study(connection, place)
        if not has_our_tables(connection):
            return stored.id, stored.name, []
        query = (
            sa.select(AllocationRow.engine)
            .where(AllocationRow.study_id == stored.id, AllocationRow.state.not_in(over))
            .distinct()
        )
        return stored.id, stored.name, sorted(connection.execute(query).scalars())


def log_of(place: Place, name: str) -> Path | str:
    """The dispatcher's output in an allocation: its file, or the text.

    Raises:
        TunerError: If there is none.
    """
    config = place.config
    if config is None:
        problem = "names a database, but engines are named in the study file. Name that."
        raise ConfigError(problem, key="tuner logs --allocation")
    engine = open_engine(engine_config(config, _engine_of(place, name)))
    files = StudyFiles(folder=config.home, study=place.study or config.study)
    return engine.log_of(name, files.allocation_logs)


def _engine_of(place: Place, name: str) -> str | None:
    """The engine of a recorded allocation; None if it is not recorded."""
    with reading(place) as (_, connection):
        stored = choose_study(connection, place)
        query = sa.select(AllocationRow.engine).where(
            AllocationRow.study_id == stored.id, AllocationRow.name == name
        )
        found: str | None = connection.execute(query.limit(1)).scalar()
        return found
