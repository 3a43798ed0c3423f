"""Bars and totals of devices."""

from __future__ import annotations

import pytest

from app.data.device_use import ABANDONED, bars_of, by_outcome, drawable, totals, within
from tests.unit.app.columns import NAN, device, lease, leases


def test_a_wide_trial_has_a_bar_on_each_device_that_names_all() -> None:
    bars = bars_of(leases(lease(7, 0, 0, 10), lease(7, 1, 0, 10)))
    assert [bar.device_id for bar in bars] == [0, 1]
    assert {bar.devices for bar in bars} == {("GPU 0", "GPU 1")}


def test_what_is_held_lasts_until_now() -> None:
    (bar,) = bars_of(leases(lease(1, 0, 20, NAN, word="running"), until_s=50))
    assert (bar.word, bar.duration_s) == ("running", 30)


def test_what_a_dead_dispatcher_held_lasts_to_its_last_sign_of_life() -> None:
    found = leases(lease(1, 0, 20, NAN, word="running"), until_s=50, is_alive=False)
    (bar,) = bars_of(found)
    assert (bar.word, bar.end_s) == (ABANDONED, 50)


def test_only_what_lies_in_a_span_counts() -> None:
    bars = bars_of(leases(lease(1, 0, 0, 10), lease(2, 0, 20, 40), lease(3, 0, 50, 60)))
    cut = within(bars, 5, 30)
    assert [(bar.start_s, bar.end_s) for bar in cut] == [(5, 10), (20, 30)]


def test_totals_by_device_and_outcome() -> None:
    bars = bars_of(
        leases(
            lease(1, 0, 0, 10),
            lease(2, 0, 10, 20, word="pruned", share=0.5),
            lease(3, 100, 0, 5, word="failed"),
            devices=[device(0), device(1), device(0, "b")],
        )
    )
    devices = {each.id: each for each in [device(0), device(1), device(0, "b")]}
    found = totals(bars, devices, 20)
    assert [(each.device.host, each.busy_s, each.idle_s) for each in found] == [
        ("a", 15, 5),
        ("b", 5, 15),
    ]
    assert by_outcome(found) == {"completed": 10, "pruned": 5, "failed": 5}


def test_many_short_attempts_are_drawn_as_few_bars() -> None:
    rows = [
        lease(i, 0, i, i + 0.9, word="failed" if i % 3 == 0 else "completed") for i in range(20_000)
    ]
    bars = bars_of(leases(*rows))
    drawn = drawable(bars)
    assert len(drawn) < 2_000
    assert sum(bar.n_attempts for bar in drawn) == len(bars)
    # The last one is of whatever is left.
    assert {bar.word for bar in drawn if bar.n_attempts > 2} == {"completed"}


def test_few_attempts_are_drawn_as_they_are() -> None:
    bars = bars_of(leases(lease(1, 0, 0, 10), lease(2, 0, 10, 11), lease(3, 1, 0, 30)))
    assert {(bar.trial, bar.duration_s) for bar in drawable(bars)} == {(1, 10), (2, 1), (3, 30)}


@pytest.mark.parametrize("n", [0, 1])
def test_nothing_or_one(n: int) -> None:
    bars = bars_of(leases(*[lease(1, 0, 0, 10)] * n))
    assert len(drawable(bars)) == n
