"""Bars and totals of devices."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest

from tests.unit.app.columns import NAN, bars_of, device, lease, leases
from tuner.app.data.devices.history import CAUSES, IdleColumns
from tuner.app.data.devices.idle_time import idle_bars, idle_within, with_idle, with_use
from tuner.app.data.devices.leases import Leases
from tuner.app.data.devices.now import devices_now, now_table
from tuner.app.data.devices.samples import Bins, Present, window_of
from tuner.app.data.devices.timeline import (
    by_cause,
    by_outcome,
    drawable,
    spans_of,
    totals,
)
from tuner.devices.idle_causes import IdleCause
from tuner.queries.trials.listing import ABANDONED


def idle(*rows: tuple[int, IdleCause, float, float]) -> IdleColumns:
    return IdleColumns(
        device_ids=np.array([row[0] for row in rows], dtype=np.int64),
        causes=np.array([CAUSES.index(row[1]) for row in rows], dtype=np.int64),
        began_s=np.array([row[2] for row in rows], dtype=np.float64),
        ended_s=np.array([row[3] for row in rows], dtype=np.float64),
    )


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
    found = leases(lease(1, 0, 0, 10), lease(2, 0, 20, 40), lease(3, 0, 50, 60))
    assert [(bar.start_s, bar.end_s) for bar in bars_of(found, 5, 30)] == [(5, 10), (20, 30)]


def test_totals_by_device_and_outcome() -> None:
    found = leases(
        lease(1, 0, 0, 10),
        lease(2, 0, 10, 20, word="pruned", share=0.5),
        lease(3, 100, 0, 5, word="failed"),
        devices=[device(0), device(1), device(0, "b")],
    )
    all_totals = totals(spans_of(found), found.devices, 20)
    assert [(each.device.host, each.held_s) for each in all_totals] == [("a", 15), ("b", 5)]
    assert [each.unattended_s for each in all_totals] == [5, 15]
    assert by_outcome(all_totals) == {"completed": 10, "pruned": 5, "failed": 5}


def test_starting_and_waiting_for_memory_is_not_computing() -> None:
    found = leases(
        lease(1, 0, 0, 10, hello_s=2, over_s=9),
        # Half of the device, and it never began to compute.
        lease(2, 0, 10, 20, hello_s=NAN, over_s=16, share=0.5, word="failed_to_start"),
        lease(3, 0, 30, NAN, hello_s=NAN, over_s=NAN, word="running"),
        until_s=35,
    )
    (total,) = totals(spans_of(found), found.devices, 35)
    assert total.by_cause == {IdleCause.STARTING: 2 + 3 + 5, IdleCause.CLEARING: 1 + 2}
    assert total.held_s == 10 + 5 + 5
    assert total.computing_s == 7


def test_starting_before_the_span_does_not_count() -> None:
    found = leases(lease(1, 0, 0, 30, hello_s=12, over_s=28))
    (total,) = totals(spans_of(found, 10, 20), found.devices, 10)
    assert total.by_cause == {IdleCause.STARTING: 2}


def many_short(n: int) -> Leases:
    words = ("failed", "completed", "completed")
    return leases(*[lease(i, 0, i, i + 0.9, word=words[i % 3]) for i in range(n)])


def test_many_short_attempts_are_drawn_as_few_bars() -> None:
    found = many_short(20_000)
    drawn = drawable(spans_of(found), found.devices)
    assert len(drawn) <= 401
    assert sum(bar.n_attempts for bar in drawn) == 20_000
    assert {bar.word for bar in drawn if bar.n_attempts > 2} == {"completed"}
    assert all(a.end_s <= b.start_s for a, b in pairwise(drawn))


def test_few_attempts_are_drawn_as_they_are() -> None:
    found = leases(lease(1, 0, 0, 10), lease(2, 0, 10, 11), lease(3, 1, 0, 30))
    drawn = drawable(spans_of(found), found.devices)
    assert {(bar.trial, bar.duration_s) for bar in drawn} == {(1, 10), (2, 1), (3, 30)}


@pytest.mark.parametrize("n", [0, 1])
def test_nothing_or_one(n: int) -> None:
    found = leases(*[lease(1, 0, 0, 10)] * n)
    assert len(drawable(spans_of(found), found.devices)) == n


# -- idle times ----------------------------------------------------------------------------------


def test_totals_with_causes() -> None:
    found = leases(lease(1, 0, 0, 10))
    noted = idle((0, IdleCause.PAUSED, 10, 14), (0, IdleCause.GATHERING, 14, 15))
    (total,) = with_idle(totals(spans_of(found), found.devices, 20), noted)
    assert by_cause([total]) == {IdleCause.PAUSED: 4, IdleCause.GATHERING: 1}
    assert total.unattended_s == 5


def test_a_device_that_was_idle_all_the_time_is_told_of() -> None:
    found = leases(lease(1, 0, 0, 10))
    noted = idle((1, IdleCause.TAKEN, 0, 20))
    all_totals = with_idle(totals(spans_of(found), found.devices, 20, seen={1}), noted)
    assert [each.device.label for each in all_totals] == ["GPU 0", "GPU 1"]
    assert all_totals[1].by_cause == {IdleCause.TAKEN: 20}


def test_what_two_dispatchers_say_of_a_device_is_not_counted_twice() -> None:
    found = leases(lease(1, 0, 0, 10))
    noted = idle((0, IdleCause.TAKEN, 0, 20), (0, IdleCause.PAUSED, 10, 20))
    (total,) = with_idle(totals(spans_of(found), found.devices, 20), noted)
    assert sum(total.by_cause.values()) == pytest.approx(10)


def test_idle_times_are_cut_at_the_edges() -> None:
    noted = idle((0, IdleCause.PAUSED, 0, 10), (0, IdleCause.LOST, 20, 30))
    cut = idle_within(noted, 5, 15)
    assert [(bar.start_s, bar.end_s) for bar in idle_bars(cut, 5, 15)] == [(5, 10)]


def test_many_short_idle_times_are_drawn_where_they_are_most_of_the_time() -> None:
    cause = IdleCause.NO_SUGGESTION
    often = idle(*[(0, cause, at, at + 0.8) for at in range(5_000)])
    rarely = idle(*[(0, cause, at, at + 0.1) for at in range(5_000)])
    drawn = idle_bars(often, 0, 5_000)
    assert len(drawn) <= 400
    assert sum(bar.duration_s for bar in drawn) == pytest.approx(5_000)
    assert idle_bars(rarely, 0, 5_000) == []
    assert idle_bars(idle(), 0, 5_000) == []


# -- samples -------------------------------------------------------------------------------------


def test_totals_with_what_was_seen() -> None:
    found = leases(lease(1, 0, 0, 10))
    bins = Bins(
        device_ids=np.array([0, 0, 0, 1]),
        starts_s=np.array([0, 10, 20, 0]),
        covered_s=np.array([10.0, 5.0, 5.0, 10.0]),
        utilization_pct=np.array([90.0, 30.0, NAN, 1.0]),
        memory_bytes=np.array([1.0, 2.0, NAN, 9.0]),
        memory_max_bytes=np.array([3.0, 2.0, NAN, 9.0]),
        energy_kwh=np.array([0.5, 0.25, NAN, 9.0]),
    )
    (total,) = with_use(totals(spans_of(found), found.devices, 20), bins)
    assert (total.utilization_pct, total.memory_max_bytes, total.energy_kwh) == (70, 3, 0.75)
    (unseen,) = with_use(
        totals(spans_of(found), found.devices, 20), bins.where(bins.device_ids == 9)
    )
    assert (unseen.utilization_pct, unseen.memory_max_bytes, unseen.energy_kwh) == (None,) * 3


@pytest.mark.parametrize(
    ("length_s", "age_s", "width_s"),
    [(60, 0, 1), (600, 0, 5), (60, 3_600, 10), (60, 86_400, 60), (7 * 86_400, 0, 3_600)],
    ids=["minute", "ten-minutes", "an-hour-ago", "a-day-ago", "week"],
)
def test_columns_are_few_and_not_narrower_than_samples(
    length_s: int, age_s: int, width_s: int
) -> None:
    now_s = 1_000_000_000
    window = window_of(now_s - age_s - length_s, now_s - age_s, now_s)
    assert window.width_s == width_s
    assert window.start_s % width_s == window.end_s % width_s == 0
    assert window.start_s <= now_s - age_s - length_s < now_s - age_s <= window.end_s
    assert len(window.starts_s) <= 242


# -- now -----------------------------------------------------------------------------------------


def test_now_tells_trials_and_causes() -> None:
    found = leases(
        lease(1, 0, 10, NAN, word="running"),
        lease(2, 1, 40, NAN, word="running", hello_s=NAN, over_s=NAN),
        lease(3, 2, 30, NAN, word="running", over_s=49),
        devices=[device(number) for number in range(6)],
        until_s=50,
    )
    noted = idle((3, IdleCause.PAUSED, 20, 48), (4, IdleCause.LOST, 0, 10))
    seen = Present(
        at_s=50,
        utilization_pct=80,
        memory_bytes=2**31,
        power_w=None,
        temperature_c=None,
        sm_clock_mhz=None,
        pcie_bytes_s=2e6,
        nvlink_bytes_s=None,
    )
    table = now_table(devices_now(found, noted, {0: seen, 5: seen}, 50.0))
    assert table["does"] == [
        "trial 1",
        "trial 2: starting",
        "trial 3: release of the device",
        "idle: paused",
        "",
    ]
    assert table["for (s)"] == [40, 10, 20, 30, None]
    assert table["memory (GiB)"] == [2, None, None, None, 2]
    assert table["PCIe (MB/s)"] == [2, None, None, None, 2]
    assert "power (W)" not in table
