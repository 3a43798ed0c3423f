"""When a dispatcher in an allocation starts no more trials, lets them save, and leaves."""

from __future__ import annotations

from datetime import timedelta

import pytest

from tests.fakes import FakeClock
from tuner.dispatch.terms import AllocationTerms
from tuner.dispatch.upkeep.allocation_time import AllocationTime
from tuner.host.clock import Instant

BEGAN = FakeClock().now()


def at(passed_s: float) -> Instant:
    return Instant(
        utc=BEGAN.utc + timedelta(seconds=passed_s),
        monotonic_s=BEGAN.monotonic_s + passed_s,
        since_boot_s=BEGAN.since_boot_s,
    )


def an_allocation(
    *, lasts_s: float | None = 100.0, idle_s: float = 600.0, first_save_s: tuple[float, ...] = ()
) -> AllocationTime:
    deadline = None if lasts_s is None else BEGAN.utc + timedelta(seconds=lasts_s)
    terms = AllocationTerms(place="slurm 7_0", idle_s=idle_s, notice_s=20.0, deadline=deadline)
    return AllocationTime(terms, started_at=BEGAN, first_save_s=lambda: first_save_s)


def test_trials_start_until_the_notice_while_nothing_is_known_of_them() -> None:
    allocation = an_allocation()
    assert allocation.why_no_more(at(79)) == ""
    assert allocation.why_no_more(at(81)) == "slurm 7_0 ends in 19 s, too soon for a trial to save"


def test_no_trial_starts_that_cannot_save_before_the_end() -> None:
    allocation = an_allocation(first_save_s=(10.0, 30.0, 500.0))
    assert allocation.why_no_more(at(49)) == ""
    assert allocation.why_no_more(at(51))


def test_trials_that_never_save_start_only_if_they_complete_before_the_end() -> None:
    allocation = an_allocation()
    allocation.ended(50.0)
    assert allocation.why_no_more(at(29)) == ""
    assert allocation.why_no_more(at(31))


def test_running_trials_save_at_the_notice() -> None:
    allocation = an_allocation(first_save_s=(30.0,))
    assert not allocation.must_save(at(79))
    assert allocation.must_save(at(80))


def test_an_allocation_without_a_limit_has_no_end() -> None:
    allocation = an_allocation(lasts_s=None, first_save_s=(30.0,))
    assert allocation.why_no_more(at(1e9)) == ""
    assert not allocation.must_save(at(1e9))


def test_an_allocation_without_a_trial_is_given_back() -> None:
    allocation = an_allocation(idle_s=60.0, lasts_s=None)
    allocation.note(at(30), is_busy=True)
    allocation.note(at(80), is_busy=False)
    assert allocation.why_idle(at(89)) == ""
    assert allocation.why_idle(at(90)) == "no trial to run for 60 s"


@pytest.mark.parametrize("passed_s", [0.0, 1e9])
def test_a_machine_of_the_users_own_is_never_given_back(passed_s: float) -> None:
    allocation = AllocationTime(None, started_at=BEGAN)
    assert not allocation.is_lent
    assert allocation.why_idle(at(passed_s)) == ""
    assert allocation.why_no_more(at(passed_s)) == ""
    assert not allocation.must_save(at(passed_s))


def test_trials_that_began_late_say_nothing_of_the_length() -> None:
    allocation = an_allocation(lasts_s=1000.0)
    allocation.cut(489.0, has_files=False)
    assert allocation.why_too_short(at(990)) == ""
    allocation.cut(491.0, has_files=False)
    assert allocation.why_too_short(at(990)).startswith("slurm 7_0 is too short")
    assert allocation.why_too_short(at(800)) == ""
    allocation.cut(1.0, has_files=True)
    assert allocation.why_too_short(at(990)) == ""


def test_allocation_in_which_trials_save_is_long_enough() -> None:
    allocation = an_allocation(lasts_s=1000.0, first_save_s=(900.0,))
    allocation.cut(970.0, has_files=False)
    assert allocation.why_too_short(at(990)) == ""
