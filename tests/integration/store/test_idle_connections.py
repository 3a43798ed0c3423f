"""Connections that somebody in between has closed, or forgotten, while nobody used them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial

import pytest
import sqlalchemy as sa

from tests.databases import SERVERS
from tests.proxy import Proxy
from tuner.store.connection import transactions as access_module
from tuner.store.connection.engine import open_engine
from tuner.store.connection.transactions import Access, Unavailable

_NUMBERS = sa.table("numbers", sa.column("n", sa.Integer))


@dataclass(frozen=True, kw_only=True)
class Way:
    """A database behind a network that can be cut."""

    access: Access
    proxy: Proxy

    def put(self, number: int) -> None:
        self.access.run(partial(put, number))

    def numbers(self) -> list[int]:
        query = sa.select(_NUMBERS.c.n).order_by(_NUMBERS.c.n)
        return list(self.access.run(lambda c: c.execute(query).scalars().all()))

    def cut_for_a_moment(self) -> None:
        self.proxy.cut()
        self.proxy.restore()


def put(number: int, connection: sa.Connection) -> None:
    connection.execute(sa.insert(_NUMBERS).values(n=number))


@pytest.fixture(params=SERVERS)
def way(request: pytest.FixtureRequest) -> Iterator[Way]:
    server = request.getfixturevalue(request.param)
    url = server.new_database()
    with Proxy(server.port) as proxy:
        access = Access(open_engine(sa.make_url(url).set(port=proxy.port)), "shown")
        access.wait_at_most(30.0)
        access.run(lambda c: c.exec_driver_sql("CREATE TABLE numbers (n INTEGER)"))
        yield Way(access=access, proxy=proxy)
        access.close()
    server.drop_database(url)


def test_connection_that_was_closed_while_it_was_idle_is_replaced_unnoticed(way: Way) -> None:
    way.put(1)
    for number in (2, 3):
        way.cut_for_a_moment()
        way.put(number)
        assert way.access.is_open
    assert way.numbers() == [1, 2, 3]


def test_connection_that_is_cut_before_its_commit_is_tried_once_more(way: Way) -> None:
    n_tries = []

    def put_and_lose_it(connection: sa.Connection) -> None:
        n_tries.append(1)
        put(1, connection)
        if len(n_tries) == 1:
            way.cut_for_a_moment()
        put(2, connection)

    way.access.run(put_and_lose_it)
    assert len(n_tries) == 2
    assert way.numbers() == [1, 2]


def test_connection_that_is_cut_twice_closes_the_way(way: Way) -> None:
    def put_and_lose_it(connection: sa.Connection) -> None:
        way.cut_for_a_moment()
        put(1, connection)

    with pytest.raises(Unavailable):
        way.access.run(put_and_lose_it)


@pytest.mark.parametrize("is_heard", [True, False])
def test_connection_that_is_cut_in_its_commit_is_not_tried_again(way: Way, is_heard: bool) -> None:
    way.put(1)
    way.proxy.cut_at(b"COMMIT", is_heard=is_heard)
    with pytest.raises(Unavailable):
        way.put(2)
    assert way.access._is_open.wait(30.0)
    assert way.numbers() == ([1, 2] if is_heard else [1])


def test_one_connection_serves_all_until_it_was_idle_for_long(
    way: Way, monkeypatch: pytest.MonkeyPatch
) -> None:
    connected: list[object] = []
    sa.event.listen(way.access.engine, "connect", lambda *_: connected.append(1))
    for number in range(3):
        way.put(number)
    assert len(connected) <= 1
    connected.clear()
    monkeypatch.setattr(access_module, "_FORGOTTEN_AFTER_S", -1.0)
    way.put(3)
    way.put(4)
    assert len(connected) == 2
    assert way.numbers() == [0, 1, 2, 3, 4]
