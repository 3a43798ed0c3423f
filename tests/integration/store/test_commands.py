"""Commands whose rows are committed in another order than their ids."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
import sqlalchemy as sa

from tests.databases import SERVERS
from tuner.store.connection.database import Database, open_database
from tuner.store.records.commands import Command, Commands, Order, insert_command

AT = datetime(2026, 1, 1, tzinfo=UTC)


def of(order: Order) -> Command:
    return Command(order=order, arguments={}, asked_by="joe@box")


def new_study(database: Database) -> int:
    with database.engine.begin() as connection:
        row = {"study_name": "one"}
        studies = sa.table("studies", sa.column("study_id"), sa.column("study_name"))
        connection.execute(sa.insert(studies), row)
        return int(connection.execute(sa.select(studies.c.study_id)).scalar_one())


def orders(commands: Commands) -> list[Order]:
    return [each.order for each in commands.read()]


@pytest.mark.parametrize("url", SERVERS, indirect=True)
def test_command_that_commits_after_a_later_one_is_read_once(url: str) -> None:
    database = open_database(url)
    study_id = new_study(database)
    commands = Commands(database.access, study_id, dispatcher_id=1)
    with database.engine.connect() as slow:
        insert_command(slow, study_id, of(Order.STOP), at=AT)
        with database.engine.begin() as quick:
            insert_command(quick, study_id, of(Order.PAUSE), at=AT)
        assert orders(commands) == [Order.PAUSE]
        slow.commit()
    assert orders(commands) == [Order.STOP]
    assert orders(commands) == []
    database.close()


@pytest.mark.parametrize("url", SERVERS, indirect=True)
def test_command_that_was_under_way_at_the_start_is_read(url: str) -> None:
    database = open_database(url)
    study_id = new_study(database)
    with database.engine.connect() as slow:
        insert_command(slow, study_id, of(Order.STOP), at=AT)
        with database.engine.begin() as quick:
            insert_command(quick, study_id, of(Order.PAUSE), at=AT)
        commands = Commands(database.access, study_id, dispatcher_id=1)
        slow.commit()
    assert orders(commands) == [Order.STOP]
    assert orders(commands) == []
    database.close()


@pytest.mark.parametrize("url", SERVERS, indirect=True)
def test_pause_that_commits_after_a_later_resume_holds_no_more(url: str) -> None:
    database = open_database(url)
    study_id = new_study(database)
    commands = Commands(database.access, study_id, dispatcher_id=1)
    with database.engine.connect() as slow:
        insert_command(slow, study_id, of(Order.PAUSE), at=AT)
        with database.engine.begin() as quick:
            insert_command(quick, study_id, of(Order.RESUME), at=AT)
        assert orders(commands) == [Order.RESUME]
        slow.commit()
    assert orders(commands) == []
    database.close()
