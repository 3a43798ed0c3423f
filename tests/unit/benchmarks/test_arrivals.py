"""EASY and the workloads with heavy tails, on a virtual clock."""

from statistics import median, quantiles

import pytest

from benchmarks.common.arrivals import (
    N_DEVICES,
    Loaded,
    LoadedReplay,
    Tail,
    Workload,
    arrivals,
)
from benchmarks.common.easy import EasyBackfill
from benchmarks.common.replay import FirstComeFirstServed, GreedyBackfill, Trial, machines
from benchmarks.placement import EASY, TUNERS, arrivals_table, tuners_line
from tuner.devices.allocation.pool import DevicePool
from tuner.devices.allocation.width import Devices


def started_by_easy(*widths_and_durations: tuple[int, float]) -> list[int]:
    """Numbers of the trials that start at once on four devices."""
    line, pool = EasyBackfill(lambda: 0.0), DevicePool(machines(4))
    for number, (n_devices, duration_s) in enumerate(widths_and_durations):
        width = Devices(n_devices=n_devices)
        line.put(Trial(number=number, width=width, duration_s=duration_s), width)
    numbers = []
    while started := line.start_next(pool, name=lambda _: "", may_use=lambda *_: True):
        numbers.append(started[0].number)
    return numbers


def test_easy_lets_a_trial_pass_that_ends_before_the_promise():
    assert started_by_easy((2, 10.0), (4, 10.0), (1, 10.0), (1, 11.0)) == [0, 2]


def test_easy_lets_a_longer_trial_take_what_the_oldest_leaves_over():
    assert started_by_easy((2, 10.0), (3, 10.0), (1, 99.0), (1, 99.0)) == [0, 2]


@pytest.mark.slow
@pytest.mark.parametrize("tail", list(Tail))
def test_durations_have_a_heavy_tail(tail: Tail) -> None:
    lengths_s = [
        one.trial.duration_s for one in arrivals(Workload(n_trials=20_000, tail=tail), seed=1)
    ]
    assert median(lengths_s) == pytest.approx(660, rel=0.1)
    assert quantiles(lengths_s, n=100)[-1] > 30 * 660


def test_load_says_how_fast_trials_arrive() -> None:
    some = arrivals(Workload(n_trials=2000, tail=Tail.LOGNORMAL, load=0.9), seed=1)
    work_s = sum(one.trial.duration_s * one.trial.width.n_devices for one in some)  # type: ignore[union-attr]
    assert some[-1].at_s == pytest.approx(work_s / N_DEVICES / 0.9, rel=0.02)


@pytest.mark.slow
@pytest.mark.parametrize(
    "new_line",
    [
        lambda clock: FirstComeFirstServed(),
        lambda clock: GreedyBackfill(),
        EasyBackfill,
        tuners_line,
    ],
    ids=["first-come", "greedy", "easy", "tuner"],
)
@pytest.mark.parametrize("load", [0.9, None])
@pytest.mark.parametrize("lookahead", [8, None])
def test_all_trials_run(new_line, load, lookahead) -> None:
    workload = Workload(n_trials=150, tail=Tail.LOGNORMAL, load=load, lookahead=lookahead)
    one = LoadedReplay(new_line, workload, seed=3).run("policy")
    work_s = sum(
        each.trial.duration_s * each.trial.width.n_devices for each in arrivals(workload, 3)
    )
    assert one.makespan_s >= work_s / N_DEVICES
    assert 0 <= one.idle_while_waiting_pct < 100


@pytest.mark.slow
@pytest.mark.parametrize("tail", list(Tail))
@pytest.mark.parametrize("seed", range(4))
def test_bound_of_two_longest_attempts_holds_on_heavy_tails(tail: Tail, seed: int) -> None:
    workload = Workload(n_trials=300, tail=tail, load=1.1)
    assert LoadedReplay(tuners_line, workload, seed).run(TUNERS).longest_wait_of_oldest <= 2


def test_table_gives_the_difference_to_easy() -> None:
    def loaded(policy: str, idle_pct: float) -> Loaded:
        return Loaded(
            workload="w",
            policy=policy,
            seed=0,
            idle_while_waiting_pct=idle_pct,
            makespan_s=7200,
            longest_wait_of_oldest=1.5,
            mean_wait_s=3600,
            mean_wait_of_wide_s=3600,
        )

    some = [loaded(TUNERS, 14.0), loaded(TUNERS, 16.0), loaded(EASY, 10.0), loaded(EASY, 11.0)]
    row = arrivals_table(some).splitlines()[2]
    assert row == "| w | the tuner's | 15.0 % | +4.5 ± 0.5 | 2 h | 1.50 | 1.0 h | 1.0 h |"
