"""What the dispatcher may expect of every launcher, tried on the fake one and on real processes."""

from __future__ import annotations

import os
import signal

import pytest

from tests.contract.launch.conftest import (
    Bench,
    FakeBench,
    LocalBench,
    children_of,
    is_process_alive,
    our_children,
    until,
)
from tuner.domain.attempt import AttemptId
from tuner.errors import LaunchError

FIRST, SECOND = AttemptId("1.1"), AttemptId("2.1")


def test_launch_gives_the_pid_of_a_living_process(bench: Bench):
    first, second = bench.start("sleeps", FIRST), bench.start("sleeps", SECOND)
    assert first != second
    assert bench.is_alive(first)
    assert bench.is_alive(second)


@pytest.mark.parametrize(
    ("program", "exit_code"), [("exits_3", 3), ("kills_itself", -signal.SIGKILL)]
)
def test_exit_arrives_once_with_its_code(bench: Bench, program, exit_code):
    pid = bench.start(program)
    (exited,) = bench.exits()
    assert (exited.attempt_id, exited.exit_code) == (FIRST, exit_code)
    assert not bench.is_alive(pid)


def test_terminate_ends_the_attempt_and_no_other(bench: Bench):
    first, second = bench.start("sleeps", FIRST), bench.start("sleeps", SECOND)
    bench.launcher.terminate(FIRST)
    assert [exited.attempt_id for exited in bench.exits()] == [FIRST]
    assert not bench.is_alive(first)
    assert bench.is_alive(second)


def test_kill_ends_what_ignores_terminate(bench: Bench):
    pid = bench.start("stubborn")
    bench.launcher.terminate(FIRST)
    assert bench.is_alive(pid)
    bench.launcher.kill(FIRST)
    (exited,) = bench.exits()
    assert exited.exit_code == -signal.SIGKILL
    assert not bench.is_alive(pid)


def test_each_rank_is_a_process_whose_exit_names_it(bench: Bench):
    pids = bench.start_ranks("sleeps", "exits_3", "sleeps")
    assert len(set(pids)) == 3
    (exited,) = bench.exits()
    assert (exited.attempt_id, exited.rank, exited.exit_code) == (FIRST, 1, 3)
    assert [bench.is_alive(pid) for pid in pids] == [True, False, True]


@pytest.mark.parametrize("way", ["terminate", "kill"])
def test_a_signal_reaches_every_rank(bench: Bench, way):
    pids = bench.start_ranks("sleeps", "sleeps", "sleeps")
    getattr(bench.launcher, way)(FIRST)
    ended = {exited.rank for exited in bench.exits()}
    while len(ended) < 3:
        ended |= {exited.rank for exited in bench.exits()}
    assert not any(map(bench.is_alive, pids))


def test_ports_differ(bench: Bench):
    ports = [bench.launcher.free_port() for _ in range(50)]
    assert len(set(ports)) == len(ports)
    assert all(1024 <= port < 65536 for port in ports)


def test_signals_after_the_exit_are_no_error(bench: Bench):
    bench.start("exits_3")
    bench.exits()
    bench.launcher.terminate(FIRST)
    bench.launcher.kill(FIRST)
    bench.launcher.kill(AttemptId("99.1"))


def test_close_ends_everything_and_may_be_called_twice(bench: Bench):
    pids = [bench.start("sleeps", FIRST), bench.start("stubborn", SECOND)]
    bench.launcher.close()
    bench.launcher.close()
    assert [bench.is_alive(pid) for pid in pids] == [False, False]


def test_fake_launch_with_a_problem_raises():
    bench = FakeBench()
    bench.launcher.problem = "no more processes"
    with pytest.raises(LaunchError, match="no more processes"):
        bench.start("sleeps")


# -- what only real processes can show ---------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("way", ["terminate", "kill", "close"])
def test_grandchildren_end_with_their_attempt(local: LocalBench, way):
    pid = local.start("with_grandchild")
    family = [pid, *children_of(pid)]
    assert local.grandchild in family
    if way == "close":
        local.launcher.close()
    else:
        getattr(local.launcher, way)(FIRST)
        local.exits()
    until(lambda: not any(map(is_process_alive, family)), "worker and grandchildren are gone")


@pytest.mark.slow
def test_grandchild_that_a_program_left_behind_is_ended(local: LocalBench):
    local.start("leaves_grandchild")
    (exited,) = local.exits()
    assert exited.exit_code == 4
    until(lambda: not is_process_alive(local.grandchild), "the grandchild is gone")


@pytest.mark.slow
@pytest.mark.parametrize("way", ["terminate", "kill", "close"])
def test_sessions_that_a_program_made_end_with_their_attempt(local: LocalBench, way: str):
    local.start("as_a_starter_of_ranks_does", SECOND)
    others = local.grandchild
    local.start("as_a_starter_of_ranks_does", FIRST)
    assert local.grandchild != others
    if way == "close":
        local.launcher.close()
        until(lambda: not is_process_alive(others), "nothing is left")
    else:
        getattr(local.launcher, way)(FIRST)
        local.exits()
        until(
            lambda: local.look() and not is_process_alive(local.grandchild),
            "what has a session of its own is gone",
        )
        assert is_process_alive(others), "its attempt runs"
    until(lambda: not is_process_alive(local.grandchild), "what has a session is gone")


@pytest.mark.slow
def test_session_that_a_program_left_behind_is_ended(local: LocalBench):
    local.start("leaves_a_session")
    local.exits()
    until(
        lambda: local.look() and not is_process_alive(local.grandchild),
        "what has a session of its own is gone",
    )


@pytest.mark.slow
def test_no_process_is_left_after_close(local: LocalBench):
    local.start("sleeps", FIRST)
    local.start("with_grandchild", SECOND)
    spare = local.forked_ahead()
    family = our_children() - local.others
    assert {spare, local.grandchild} < family
    assert len(family) >= 6, "fork server, guardian, two workers, a grandchild, a spare"
    local.launcher.close()
    until(lambda: not any(map(is_process_alive, family)), "no child is left")


@pytest.mark.slow
def test_worker_that_was_killed_while_it_waited_is_replaced(local: LocalBench):
    local.start("sleeps", FIRST)
    spare = local.forked_ahead()
    os.kill(spare, signal.SIGKILL)
    until(lambda: not is_process_alive(spare), "the one that waits is gone")
    pid = local.start("sleeps", SECOND)
    assert pid != spare
    assert local.is_alive(pid)
