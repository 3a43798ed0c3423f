"""Hooks are real programs here, small ones; what they are told and what becomes of them."""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.fakes import RecordingView
from tuner.dispatch.notices import Ended, Said, Snapshot
from tuner.dispatch.terms import Result
from tuner.domain.attempt import Attempt, Cause, Ending, Outcome
from tuner.errors import DeviceError
from tuner.launch.protocols import Guard
from tuner.monitoring import hook_entry
from tuner.monitoring.hooks import Hook, Hooks, HookTerms
from tuner.search.study import BestTrial

BEST = BestTrial(number=3, values={"loss": 0.5}, params={"lr": 0.1, "kind": "a"})
SNAPSHOT = Snapshot(
    n_completed=1,
    n_pruned=2,
    n_failed=3,
    n_waiting=0,
    n_begun=6,
    n_trials=8,
    running=(),
    idle_devices=(),
    left_to_others={},
    best=BEST,
    elapsed_s=1.0,
    fraction=None,
    left_s=None,
    is_stopping=False,
)
RESULT = Result(
    is_interrupted=False, reason="budget reached: 8 trials", n_completed=4, n_pruned=2, n_failed=1
)
#: Keeps what it is told, one line for each start.
KEEP = ("sh", "-c", 'cat >> told.jsonl; echo heard "$0"', "me")
PATIENCE_S = 20.0


def ended(number: int, outcome: Outcome = Outcome.COMPLETED, **fields: Any) -> Ended:
    attempt = Attempt(
        trial_id=number,
        trial_number=number,
        number=2,
        seed=0,
        leased_at=datetime(2026, 1, 1, tzinfo=UTC),
    )
    is_completed = outcome is Outcome.COMPLETED
    ending = Ending(
        outcome=outcome,
        cause=None if is_completed else Cause.EXCEPTION,
        detail="" if is_completed else "ValueError: x",
        values={"loss": 0.5} if is_completed else {},
    )
    given = {"is_best": is_completed, "will_retry": False, **fields}
    return Ended(
        attempt=attempt, ending=ending, log_path="/logs/a.log", params={"lr": 0.1}, **given
    )


class HooksOfATest:
    """Hooks in a folder of the test's, and a view that remembers."""

    def __init__(self, folder: Path, groups: Guard | None = None, **terms: Any) -> None:
        self.folder = folder
        self.now_s = 0.0
        self.view = RecordingView()
        commands = {hook: KEEP for hook in Hook if hook is not Hook.ALERT}
        given = HookTerms(
            commands=commands, study="digits", folder=folder, log=folder / "hooks.log"
        )
        self.hooks = Hooks(
            replace(given, **terms),
            self.view,
            lambda: time.monotonic() + self.now_s,
            groups=groups,
        )

    @property
    def told(self) -> list[dict[str, Any]]:
        path = self.folder / "told.jsonl"
        return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []

    @property
    def said(self) -> list[str]:
        return [notice.text for notice in self.view.notices if isinstance(notice, Said)]

    def happens(self, *notices: Ended) -> None:
        for notice in notices:
            self.hooks.show(notice)
        self.hooks.refresh(SNAPSHOT)

    def finish(self, wait: Callable[[float], bool] | None = None) -> None:
        self.hooks.finish(RESULT, BEST, wait or sleep)


def sleep(seconds: float) -> bool:
    time.sleep(seconds)
    return False


@pytest.fixture
def make(tmp_path: Path) -> Iterator[Callable[..., HooksOfATest]]:
    made: list[HooksOfATest] = []

    def make(**terms: Any) -> HooksOfATest:
        made.append(HooksOfATest(tmp_path, **terms))
        return made[-1]

    yield make
    for each in made:
        each.hooks.__exit__(None, None, None)


def wait_until(condition: Callable[[], bool]) -> None:
    give_up_at_s = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < give_up_at_s
        time.sleep(0.01)


def test_best_trial_is_told_with_all_that_is_known(make) -> None:
    world = make()
    world.happens(ended(3))
    wait_until(lambda: bool(world.told))
    assert world.told == [
        {
            "hook": "on_best",
            "study": "digits",
            "trial": 3,
            "attempt": 2,
            "outcome": "completed",
            "cause": None,
            "detail": "",
            "values": {"loss": 0.5},
            "params": {"lr": 0.1},
            "log": "/logs/a.log",
            "best": {"trial": 3, "values": {"loss": 0.5}, "params": {"lr": 0.1, "kind": "a"}},
        }
    ]


def test_failed_trial_is_told_once_it_is_given_up(make) -> None:
    world = make()
    world.happens(
        ended(1, Outcome.FAILED, will_retry=True),
        ended(2, Outcome.PRUNED),
        ended(4, is_best=False),
        ended(5, Outcome.TIMED_OUT),
    )
    world.finish()
    failure, finish = sorted(world.told, key=lambda told: told["hook"])
    assert (failure["hook"], failure["trial"], failure["outcome"]) == ("on_failure", 5, "timed_out")
    assert (failure["cause"], failure["detail"]) == ("exception", "ValueError: x")
    assert finish["hook"] == "on_finish"


def test_end_of_the_study_is_told_and_waited_for(make) -> None:
    world = make(commands={Hook.FINISH: ("sh", "-c", "sleep 0.3; cat > told.jsonl")})
    world.happens(ended(3))
    world.finish()
    assert world.told == [
        {
            "hook": "on_finish",
            "study": "digits",
            "reason": "budget reached: 8 trials",
            "is_interrupted": False,
            "counts": {"completed": 4, "pruned": 2, "failed": 1},
            "best": {"trial": 3, "values": {"loss": 0.5}, "params": {"lr": 0.1, "kind": "a"}},
        }
    ]
    assert world.said == []


def test_study_that_ends_by_an_error_is_told_too(make) -> None:
    world = make()
    world.happens()
    with pytest.raises(DeviceError), world.hooks:
        raise DeviceError("No device of the study is left.")
    (told,) = world.told
    assert told["reason"] == "No device of the study is left."
    assert told["counts"] == {"completed": 1, "pruned": 2, "failed": 3}


def test_what_programs_print_is_in_a_log(make) -> None:
    world = make()
    world.happens(ended(3))
    world.finish()
    log = (world.folder / "hooks.log").read_text()
    assert "on_best, trial 3\n" in log
    assert log.count("heard me\n") == 2


def test_program_that_fails_is_said_once(make) -> None:
    world = make(commands={Hook.FAILURE: ("sh", "-c", "exit 3")})
    for number in range(3):
        world.happens(ended(number, Outcome.FAILED))
    world.finish()
    assert world.said == [
        "on_failure ended with exit code 3. The study continues. "
        f"What it printed: {world.folder / 'hooks.log'}"
    ]


def test_program_that_is_gone_is_said(make) -> None:
    world = make(commands={Hook.BEST: ("./gone",), Hook.FINISH: KEEP})
    world.happens(ended(3))
    world.finish()
    assert [said.partition(". ")[0] for said in world.said] == [
        "on_best could not be started: No such file or directory"
    ]
    assert [told["hook"] for told in world.told] == ["on_finish"]


class LateGuard:
    """Knows of a group only after a while, and whether a program had begun by then."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.has_begun: list[bool] = []
        self.watched: set[int] = set()

    def watch(self, group: int) -> None:
        time.sleep(0.5)
        self.watched.add(group)
        self.has_begun.append((self._folder / "told.jsonl").exists())

    def release(self, group: int) -> None:
        self.watched.remove(group)


def test_a_program_begins_only_once_the_guardian_knows_it(make, tmp_path: Path) -> None:
    guard = LateGuard(tmp_path)
    world = make(groups=guard)
    world.happens(ended(3))
    world.finish()
    assert [told["hook"] for told in world.told] == ["on_best", "on_finish"]
    assert not guard.has_begun[0]
    assert not guard.watched


@pytest.mark.parametrize(("word", "is_run"), [(b"\n", True), (b"", False)], ids=["told", "killed"])
def test_a_program_whose_dispatcher_was_killed_before_does_not_begin(
    tmp_path: Path, word: bytes, is_run: bool
) -> None:
    reading, writing = os.pipe()
    command = [sys.executable, "-I", "-S", hook_entry.__file__, str(reading), "touch", "begun"]
    entry = subprocess.Popen(command, pass_fds=(reading,), cwd=tmp_path)
    os.write(writing, word)
    os.close(writing)
    os.close(reading)
    assert entry.wait(PATIENCE_S) == 0
    assert (tmp_path / "begun").exists() is is_run


def test_a_hook_without_a_free_descriptor_only_causes_a_message(make) -> None:
    world = make()
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (3, hard))
    try:
        world.happens(ended(3))
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert "on_best could not be started: Too many open files" in world.said[0]


def test_program_that_hangs_is_ended_with_all_that_it_started(make) -> None:
    hang = "trap '' TERM; sleep 600 & echo $! > child; wait; wait; sleep 600"
    world = make(commands={Hook.BEST: ("sh", "-c", hang)}, limit_s=0.3, grace_s=0.2)
    world.happens(ended(3))
    wait_until((world.folder / "child").exists)
    world.finish()
    assert "on_best did not end within 0.3 s, and was ended." in world.said[0]
    child = int((world.folder / "child").read_text())
    wait_until(lambda: not is_alive(child))


def is_alive(pid: int) -> bool:
    return psutil.pid_exists(pid) and psutil.Process(pid).status() != psutil.STATUS_ZOMBIE


def test_program_that_does_not_read_much_blocks_nobody(make) -> None:
    world = make(commands={Hook.FAILURE: ("sh", "-c", "exit 0")})
    huge = replace(
        ended(1, Outcome.FAILED), ending=Ending(outcome=Outcome.FAILED, detail="x" * 10**6)
    )
    world.happens(huge)
    world.finish()
    assert world.said == []


def test_best_trials_that_wait_are_replaced_by_the_newest(make) -> None:
    wait = "while [ ! -e go ]; do sleep 0.02; done; cat >> told.jsonl"
    world = make(commands={Hook.BEST: ("sh", "-c", wait)})
    for number in range(6):
        world.happens(ended(number))
    (world.folder / "go").touch()
    world.finish()
    assert sorted(told["trial"] for told in world.told) == [0, 1, 5]


def test_end_is_told_before_what_waits_and_what_is_left_out_is_counted(make) -> None:
    wait = "while [ ! -e go ]; do sleep 0.02; done; cat >> told.jsonl"
    world = make(commands={Hook.FAILURE: ("sh", "-c", wait), Hook.FINISH: KEEP})
    for number in range(5):
        world.happens(ended(number, Outcome.FAILED))
    looks = iter(range(1000))

    def let_go_then_end(seconds: float) -> bool:
        (world.folder / "go").touch()
        sleep(seconds)
        return any(told["hook"] == "on_finish" for told in world.told) or next(looks) > 500

    world.finish(let_go_then_end)
    assert "on_finish" in [told["hook"] for told in world.told]
    assert len(world.told) < 6 or world.said == []


def test_line_has_an_end(make) -> None:
    wait = "while [ ! -e go ]; do sleep 0.02; done; cat >> told.jsonl"
    world = make(commands={Hook.FAILURE: ("sh", "-c", wait)})
    world.happens(*(ended(number, Outcome.FAILED) for number in range(110)))
    assert world.said[0].startswith("on_failure was not started: 100 programs wait already.")
    world.finish(lambda _: True)
    assert world.said[-1] == "Programs of hooks that were not started: 108."


def test_nothing_is_started_where_no_hook_is_named(make) -> None:
    world = make(commands={})
    world.happens(ended(3), ended(4, Outcome.FAILED))
    world.finish()
    assert world.told == []
    assert not (world.folder / "hooks.log").exists()


def test_a_study_without_a_trial_is_told_after_a_minute_with_what_helps(make) -> None:
    world = make(commands={Hook.ALERT: KEEP})
    idle = replace(SNAPSHOT, n_failed=0, idle_causes={"cpu:0": "no_suggestion"})
    for world.now_s in (0.0, 50.0, 61.0, 90.0):
        world.hooks.refresh(idle)
    wait_until(lambda: len(world.told) == 2)
    world.finish()
    told = {each["alert"]: each["text"] for each in world.told}
    assert len(world.told) == len(told) == 2
    assert told["standstill"] == "no trial has run for over a minute (no suggestion ready)"
    assert told["idle_devices"] == (
        "idle for over a minute, no suggestion ready: cpu:0. To fix it, choose a faster sampler"
    )


def test_alert_is_told_once(make) -> None:
    world = make(commands={Hook.ALERT: KEEP})
    world.happens()
    world.happens()
    wait_until(lambda: bool(world.told))
    world.finish()
    (alert,) = world.told
    assert (alert["hook"], alert["alert"]) == ("on_alert", "failures")
    assert alert["text"] == "3 of 6 finished trials failed"
    assert alert["best"]["trial"] == 3
