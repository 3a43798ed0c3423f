"""The way to the database: opened and closed, with and without patience."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest
import sqlalchemy as sa
from optuna.exceptions import StorageInternalError

from tuner.store.connection.transactions import Access, Unavailable, passing_reason


class Refused(Exception):
    """What a driver raises."""


def passing(text: str = "server closed the connection") -> sa.exc.OperationalError:
    return sa.exc.OperationalError("SELECT 1", None, Refused(text))


@pytest.fixture
def access() -> Iterator[Access]:
    made = Access(sa.create_engine("sqlite://", poolclass=sa.StaticPool), "sqlite://")
    yield made
    made.close()


def refuse() -> None:
    raise passing()


def wait_until_open(access: Access) -> None:
    assert access._is_open.wait(30.0)


def test_without_patience_everything_is_done_here(access: Access) -> None:
    assert access.call(threading.get_ident) == threading.get_ident()
    with pytest.raises(sa.exc.OperationalError):
        access.call(refuse)
    assert access.is_open


def test_with_patience_everything_is_done_on_one_other_thread(access: Access) -> None:
    access.wait_at_most(30.0)
    idents = {access.call(threading.get_ident) for _ in range(3)}
    assert len(idents) == 1
    assert threading.get_ident() not in idents
    assert access.run(lambda c: c.execute(sa.select(sa.literal(7))).scalar_one()) == 7


def test_what_fails_for_good_is_raised_as_it_is(access: Access) -> None:
    access.wait_at_most(30.0)
    with pytest.raises(sa.exc.OperationalError, match="no such table"):
        access.run(lambda c: c.exec_driver_sql("SELECT * FROM nowhere"))
    with pytest.raises(ZeroDivisionError):
        access.call(lambda: 1 / 0)
    assert access.is_open


def test_what_may_pass_closes_the_way_until_the_database_answers(access: Access) -> None:
    access.wait_at_most(30.0)
    with pytest.raises(Unavailable, match=r"server closed .*storage sqlite://"):
        access.call(refuse)
    wait_until_open(access)
    assert access.call(lambda: 1) == 1


def test_optunas_own_words_are_looked_behind(access: Access) -> None:
    def refuse_as_optuna() -> None:
        raise StorageInternalError("An exception is raised during the commit.") from passing()

    access.wait_at_most(30.0)
    with pytest.raises(Unavailable, match="server closed the connection"):
        access.call(refuse_as_optuna)


def test_who_waits_too_long_is_told_and_the_work_goes_on(access: Access) -> None:
    goes_on, is_done = threading.Event(), threading.Event()

    def hang() -> None:
        goes_on.wait(30.0)
        is_done.set()

    access.wait_at_most(0.05)
    with pytest.raises(Unavailable, match=r"has not answered for 0\.05 s"):
        access.call(hang)
    with pytest.raises(Unavailable):
        access.call(lambda: 1)
    goes_on.set()
    assert is_done.wait(30.0)
    wait_until_open(access)
    access.wait_at_most(30.0)
    assert access.call(lambda: 1) == 1


def test_closing_ends_the_thread(access: Access) -> None:
    access.wait_at_most(30.0)
    thread = access.call(threading.current_thread)
    access.close()
    access.close()
    thread.join(30.0)
    assert not thread.is_alive()


@pytest.mark.parametrize(
    "text",
    [
        *("no such table: trials", "file is not a database", "database disk image is malformed"),
        *("attempt to write a readonly database", 'database "x" does not exist'),
    ],
)
def test_what_waiting_does_not_mend(text: str) -> None:
    assert passing_reason(passing(text)) == ""


@pytest.mark.parametrize(
    "text",
    ["database is locked", "disk is full", "Connection refused", "the system is starting up"],
)
def test_what_may_be_mended(text: str) -> None:
    assert passing_reason(passing(text))
