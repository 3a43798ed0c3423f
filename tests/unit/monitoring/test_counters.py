"""What is counted for monitoring, from one snapshot to the next."""

from __future__ import annotations

import pytest

from tests.fakes import RecordingView
from tests.unit.terminal.test_live import a_snapshot, ended, running
from tuner.devices.idle_causes import IdleCause
from tuner.dispatch.notices import Said, UserShare
from tuner.domain.attempt import Outcome
from tuner.monitoring.counters import BUSY, DeviceState, Figures, FiguresView

IDLE = IdleCause.NO_SUGGESTION.value
CLEARING = IdleCause.CLEARING.value


def read(*snapshots) -> Figures:
    published: list[Figures] = []
    view = FiguresView(RecordingView(), published.append, now=lambda: 1000.0)
    for snapshot in snapshots:
        view.refresh(snapshot)
    assert len(published) == len(snapshots)
    return published[-1]


def grown(figures: Figures) -> dict[DeviceState, float]:
    return {state: seconds for state, seconds in figures.device_s.items() if seconds}


def test_every_device_has_busy_seconds_from_the_start() -> None:
    found = read(a_snapshot(idle_causes={"GPU 0": IDLE}, running=(running(1, "GPU 1"),)))
    assert found.device_s == {("GPU 0", BUSY): 0.0, ("GPU 1", BUSY): 0.0}


def test_seconds_are_those_of_the_snapshot_before() -> None:
    idle = a_snapshot(elapsed_s=10.0, idle_causes={"GPU 0": IDLE, "GPU 1": IDLE})
    half = a_snapshot(elapsed_s=12.0, running=(running(1, "GPU 1"),), idle_causes={"GPU 0": IDLE})
    end = a_snapshot(elapsed_s=15.0)
    found = read(idle, half, end)
    assert grown(found) == {("GPU 0", IDLE): 5.0, ("GPU 1", IDLE): 2.0, ("GPU 1", BUSY): 3.0}
    assert found.at_s == 1000.0


def test_device_that_several_attempts_share_is_busy_once() -> None:
    shared = (running(1, "GPU 0"), running(2, "GPU 0"), running(3, "GPU 0", state="clearing"))
    found = read(a_snapshot(elapsed_s=0.0, running=shared), a_snapshot(elapsed_s=4.0))
    assert grown(found) == {("GPU 0", BUSY): 4.0}


def test_wide_attempt_holds_all_its_devices() -> None:
    wide = (running(1, "GPU 0", "GPU 1"),)
    found = read(a_snapshot(elapsed_s=0.0, running=wide), a_snapshot(elapsed_s=1.0))
    assert grown(found) == {("GPU 0", BUSY): 1.0, ("GPU 1", BUSY): 1.0}


def test_memory_that_is_awaited_is_a_cause_of_its_own() -> None:
    clearing = (running(1, "GPU 0", state="clearing"),)
    found = read(a_snapshot(elapsed_s=0.0, running=clearing), a_snapshot(elapsed_s=1.5))
    assert grown(found) == {("GPU 0", CLEARING): 1.5}


def test_endings_are_counted_and_all_is_shown_on() -> None:
    published: list[Figures] = []
    below = RecordingView()
    view = FiguresView(below, published.append)
    for outcome in (Outcome.PRUNED, Outcome.COMPLETED, Outcome.PRUNED):
        view.show(ended(outcome))
    view.show(Said(text="hello"))
    view.refresh(a_snapshot())
    assert published[-1].n_ended == {Outcome.PRUNED: 2, Outcome.COMPLETED: 1}
    assert (len(below.notices), len(below.snapshots)) == (4, 1)


def test_reading_does_not_change_once_it_is_published() -> None:
    published: list[Figures] = []
    view = FiguresView(RecordingView(), published.append)
    view.refresh(a_snapshot(elapsed_s=0.0, idle_causes={"GPU 0": IDLE}))
    view.refresh(a_snapshot(elapsed_s=1.0, idle_causes={"GPU 0": IDLE}))
    view.show(ended(Outcome.PRUNED))
    view.refresh(a_snapshot(elapsed_s=2.0))
    assert [each.device_s.get(("GPU 0", IDLE)) for each in published] == [None, 1.0, 2.0]
    assert [sum(each.n_ended.values()) for each in published] == [0, 0, 1]


@pytest.mark.parametrize("elapsed_s", [5.0, 4.0])
def test_time_that_stands_still_or_goes_back_counts_nothing(elapsed_s: float) -> None:
    idle = {"GPU 0": IDLE}
    found = read(a_snapshot(elapsed_s=5.0, idle_causes=idle), a_snapshot(elapsed_s=elapsed_s))
    assert grown(found) == {}


def test_devices_of_the_user_are_told_where_a_machine_is_divided() -> None:
    pytest.importorskip("prometheus_client")
    from tuner.monitoring.prometheus import figures_text

    share = UserShare(held=3.0, by_right=2.0, part=2.5)
    text = figures_text(read(a_snapshot(share=share)))
    assert 'tuner_user_devices{of="held"} 3.0' in text
    assert 'tuner_user_devices{of="guaranteed"} 2.0' in text
    assert 'tuner_user_devices{of="part"} 2.5' in text
    assert "tuner_user_devices" not in figures_text(read(a_snapshot()))
