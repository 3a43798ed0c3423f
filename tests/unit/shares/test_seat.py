"""Tuners of one machine, each with its claim file and its locks, without processes."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.fakes import a_gpu
from tuner.devices.device import Device
from tuner.devices.selection import NotNow
from tuner.shares.locks import SharedLocks
from tuner.shares.rules import read_rules
from tuner.shares.rules_watch import RulesWatch
from tuner.shares.seat import Seat

GPUS = [a_gpu(index) for index in range(4)]
Open = Callable[..., SharedLocks]


class Time:
    now_s = 1_000_000.0


@pytest.fixture
def time() -> Time:
    return Time()


@pytest.fixture
def rules(tmp_path: Path) -> Path:
    file = tmp_path / "shares.yaml"
    file.write_text(f"hold: 10s\nfolder: {tmp_path / 'claims'}\n")
    return file


@pytest.fixture
def tuner(rules: Path, time: Time) -> Iterator[Open]:
    """Opens the locks of one tuner more; all are those of this user."""
    with ExitStack() as stack:

        def open_tuner(priority: int = 50, devices: list[Device] = GPUS) -> SharedLocks:
            read = read_rules(rules)
            assert read is not None
            watch = RulesWatch(rules, read)
            seat = Seat(watch, unit=1, priority=priority, now_s=lambda: time.now_s)
            stack.callback(seat.close)
            seat.offer(devices)
            seat.look()
            return stack.enter_context(SharedLocks(seat))

        yield open_tuner


def take_all(locks: SharedLocks) -> list[Device]:
    taken = []
    for device in GPUS:
        try:
            locks.acquire(device)
        except NotNow:
            continue
        taken.append(device)
    locks.seat.look()
    return taken


def test_the_first_takes_all_and_gives_back_to_the_one_with_more_priority(
    tuner: Open, time: Time
) -> None:
    first = tuner(10)
    assert take_all(first) == GPUS
    second = tuner(90)
    assert take_all(second) == []
    with pytest.raises(NotNow, match=r"has it \(pid \d+; 4, none of them guaranteed\)"):
        second.acquire(GPUS[0])
    first.seat.look()
    assert first.seat.due == ()  # Each device stays for as long as `hold` says.
    time.now_s += 10.0
    first.seat.look()
    assert len(first.seat.due) == 4
    assert "a study of your own with more priority" in first.seat.due[0].reason
    first.release(GPUS[3])
    first.seat.look()
    second.seat.look()
    assert take_all(second) == [GPUS[3]]


def test_what_was_given_back_is_not_taken_again_before_it_is_decided_anew(
    tuner: Open, time: Time
) -> None:
    first = tuner(10)
    take_all(first)
    tuner(90, GPUS[:1])
    time.now_s += 10.0
    first.seat.look()
    (due,) = first.seat.due
    other = next(gpu for gpu in GPUS if gpu.id not in due.among)
    assert first.seat.may_take(other)
    first.release(other)
    assert not first.seat.may_take(other)
    first.seat.look()
    assert first.seat.may_take(other)


def test_what_others_may_not_take_is_not_taken_however_free_it_is(tuner: Open) -> None:
    first, second = tuner(), tuner()
    # Both see four free devices, and each may have two of them.
    first.seat.look()
    second.seat.look()
    assert len(take_all(first)) == 2
    assert len(take_all(second)) == 2


def test_a_study_that_wants_less_leaves_the_rest(tuner: Open) -> None:
    first, second = tuner(), tuner()
    first.seat.look(wants=1)
    beyond = next(gpu for gpu in GPUS if not first.seat.may_take(gpu))
    second.seat.look(wants=0)
    first.seat.look(wants=1)
    assert first.seat.why_not(beyond) == "no trial of the study needs it now"
    second.seat.look()
    assert len(take_all(second)) == 3


def test_a_device_that_a_foreign_process_uses_is_nobody_s_part(tuner: Open) -> None:
    first, second = tuner(), tuner()
    for locks in (first, second):
        locks.seat.offer(GPUS, lambda device: device == GPUS[0])
    for locks in (first, second):
        locks.seat.look()
    parts = [
        len(each.seat.decision.allotted[name])
        for each in (first, second)
        for name in each.seat.decision.allotted
    ]
    assert sum(parts) == 2 * 3


def test_a_part_can_be_limited_for_a_user_by_all_of_the_user_s_studies(
    tuner: Open, rules: Path
) -> None:
    rules.write_text(rules.read_text() + "max_per_user: 2\n")
    assert len(take_all(tuner())) == 2
    assert take_all(tuner()) == []


def test_rules_that_change_hold_and_rules_that_break_do_not(tuner: Open, rules: Path) -> None:
    locks = tuner()
    good = rules.read_text()
    rules.write_text(good + "max_per_user: 1\n")
    locks.seat.look()
    assert locks.seat.rules.max_per_user == 1
    assert "has changed" in locks.seat.notes.pop()
    rules.write_text("max_per_user: {")
    locks.seat.look()
    assert locks.seat.rules.max_per_user == 1
    assert "still hold" in locks.seat.notes.pop()
    assert str(rules) in str(rules)
    rules.unlink()
    locks.seat.look()
    assert locks.seat.rules.max_per_user == 1
    assert "is gone" in locks.seat.notes.pop()
    rules.write_text(good)
    locks.seat.look()
    assert locks.seat.rules.max_per_user is None
    assert locks.seat.notes.pop() == f"{rules} has changed, and its new rules hold."
    locks.seat.look()
    assert locks.seat.notes == []


def test_a_tuner_that_follows_other_rules_is_named_once(
    tuner: Open, rules: Path, tmp_path: Path
) -> None:
    first = tuner()
    other = tmp_path / "other.yaml"
    other.write_text(rules.read_text() + "max_per_user: 1\n")
    read = read_rules(other)
    assert read is not None
    second = Seat(RulesWatch(other, read), unit=1)
    second.offer(GPUS)
    second.look()
    first.seat.look()
    first.seat.look()
    (note,) = first.seat.notes
    assert f"(pid {os.getpid()}) follows other rules" in note
    second.close()


def test_what_is_taken_or_given_back_is_seen_at_once_and_not_at_the_next_look(
    tuner: Open,
) -> None:
    first, second = tuner(), tuner()
    first.seat.look()
    second.seat.look()
    assert not second.seat.has_news
    first.acquire(next(gpu for gpu in GPUS if first.seat.may_take(gpu)))
    assert second.seat.has_news
    second.seat.look()
    held = [set(claim.holds) for claim in second.seat.claims]
    assert sorted(map(len, held)) == [0, 1]
    assert not second.seat.has_news
    for gpu in GPUS:
        first.release(gpu)
    assert second.seat.has_news
    second.seat.look()
    assert not any(claim.holds for claim in second.seat.claims)


def test_a_look_at_which_nothing_is_new_writes_nothing_and_a_removed_claim_comes_back(
    tuner: Open, tmp_path: Path
) -> None:
    locks = tuner()
    (file,) = (tmp_path / "claims").glob("claim-*")
    inode = file.stat().st_ino
    locks.seat.look()
    assert file.stat().st_ino == inode
    file.unlink()
    assert locks.seat.has_news
    locks.seat.look()
    assert file.exists()


def test_locks_that_are_closed_claim_nothing(tuner: Open, tmp_path: Path) -> None:
    first, second = tuner(), tuner()
    first.seat.look(wants=4)
    take_all(first)
    first.close()
    first.close()
    second.seat.look()
    assert take_all(second) == GPUS


def test_the_reason_for_which_a_device_is_given_back_is_the_one_that_holds(
    tuner: Open, rules: Path, time: Time
) -> None:
    first = tuner(10)
    take_all(first)
    second = tuner(10)
    first.seat.look(wants=2)
    # However fresh they are: it cannot use them.
    assert [due.reason for due in first.seat.due] == [
        "given back to a study of your own: no trial of this study needs it now"
    ] * 2
    second.seat.look(wants=0)
    time.now_s += 10.0
    rules.write_text(rules.read_text() + "max_per_user: 3\n")
    first.seat.look()
    assert [due.reason for due in first.seat.due] == [
        "given back, as your user has more devices than max_per_user allows"
    ]
