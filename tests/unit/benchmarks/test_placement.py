"""The replay is arithmetic on a virtual clock."""

import pytest

from benchmarks.common.replay import (
    WHOLE_WEIGHTS,
    WHOLE_WIDTHS,
    FirstComeFirstServed,
    GreedyBackfill,
    Line,
    Replay,
    Replayed,
    Trial,
    mixed_trials,
)
from benchmarks.placement import replay_table, time_decisions
from tuner.devices.allocation.queue import WaitingLine
from tuner.devices.allocation.width import Devices, n_devices_of


def trials(*widths_and_durations: tuple[int, float]) -> list[Trial]:
    return [
        Trial(number=number, width=Devices(n_devices=n_devices), duration_s=duration_s)
        for number, (n_devices, duration_s) in enumerate(widths_and_durations)
    ]


def replayed(line: Line, some: list[Trial], lookahead: int | None = None) -> Replayed:
    return Replay(lambda clock: line, 8, some, lookahead).run("policy", seed=0)


def test_devices_that_are_always_leased_are_used_to_the_full() -> None:
    one = replayed(WaitingLine[Trial](), trials((8, 10.0), (4, 10.0), (4, 10.0)))
    assert one.utilization_pct == pytest.approx(100)
    assert one.longest_wait_of_oldest == pytest.approx(1)


def test_what_is_used_while_trials_wait_leaves_the_end_out() -> None:
    one = replayed(FirstComeFirstServed(), trials((8, 10.0), (4, 10.0)))
    assert one.utilization_while_waiting_pct == pytest.approx(100)
    assert one.utilization_pct == pytest.approx(75)


@pytest.mark.parametrize(
    ("line", "wait"),
    [(FirstComeFirstServed(), 1), (WaitingLine[Trial](patience=0), 1), (GreedyBackfill(), 5.5)],
    ids=["first-come", "tuner", "greedy"],
)
def test_greedy_backfill_starves_the_wide_trial(line: Line, wait: float) -> None:
    staggered = [(4, 5.0), (4, 10.0), (8, 10.0), *[(4, 10.0)] * 9]
    assert replayed(line, trials(*staggered)).longest_wait_of_oldest == pytest.approx(wait)


@pytest.mark.parametrize("lookahead", [1, 8, None])
def test_all_trials_are_run_however_short_the_line(lookahead: int | None) -> None:
    some = mixed_trials(100, widths=WHOLE_WIDTHS, weights=WHOLE_WEIGHTS, sigma=0.5, seed=1)
    replay = Replay(lambda clock: WaitingLine[Trial](), 8, some, lookahead)
    one = replay.run("policy", seed=1)
    used_s = sum(n_devices_of(trial.width) * trial.duration_s for trial in some)
    assert replay.device_s == pytest.approx(used_s)
    assert one.longest_wait_of_oldest <= 2


def test_table_has_a_row_for_each_policy() -> None:
    some = trials((1, 1.0))
    table = replay_table([replayed(GreedyBackfill(), some), replayed(GreedyBackfill(), some, 4)])
    assert [row.split(" | ")[1:3] for row in table.splitlines()[2:]] == [
        ["policy", "all"],
        ["policy", "4"],
    ]


def test_decisions_are_counted_while_the_line_stays_as_long() -> None:
    timed = time_decisions(16, 50, 100, policy="the tuner's", seed=0)
    assert (timed.n_waiting, timed.n_decisions) == (50, 100)
    assert 0 < timed.median_us <= timed.p99_us
