"""Which commands the loop is given, and when once more."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from tuner.dispatch.upkeep.commands import Orders
from tuner.host.clock import Instant
from tuner.store.records.commands import Command, Order


class Given:
    """The commands of a study, as the test gives them."""

    paused_by = ""

    def __init__(self) -> None:
        self.rows: list[Command] = []

    def read(self) -> list[Command]:
        found, self.rows = self.rows, []
        return found


def at(seconds: float) -> Instant:
    return Instant(utc=datetime(2026, 1, 1, tzinfo=UTC), monotonic_s=seconds)


def a_command(order: Order) -> Command:
    return Command(order=order, arguments={}, asked_by="joe@box")


@pytest.fixture
def given() -> Given:
    return Given()


@pytest.fixture
def orders(given: Given) -> Orders:
    return Orders(given, lambda text: None)  # type: ignore[arg-type]


def test_commands_are_given_once_in_their_order(orders: Orders, given: Given) -> None:
    given.rows = [a_command(Order.PAUSE), a_command(Order.STOP)]
    assert [each.order for each in orders.poll(at(10))] == [Order.PAUSE, Order.STOP]
    assert orders.paused_by == "joe@box"
    assert list(orders.poll(at(20))) == []


def test_command_that_could_not_be_carried_out_is_given_again(orders: Orders, given: Given) -> None:
    given.rows = [a_command(Order.SET), a_command(Order.STOP)]
    assert next(orders.poll(at(10))).order is Order.SET
    # At once: nothing has to be read for it.
    assert [each.order for each in orders.poll(at(10.1))] == [Order.SET, Order.STOP]
    assert list(orders.poll(at(20))) == []
