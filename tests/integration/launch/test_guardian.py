"""The guardian as a process: it ends what its dispatcher left behind, and nothing else."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.contract.launch.conftest import (
    LocalBench,
    command_of,
    is_process_alive,
    our_children,
    until,
)
from tuner.launch.local_host.guardian import Guardian

#: Our zombies, which nobody has waited for yet, look alive to the guardian for this long.
SHORT_S = 0.2
STUBBORN = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print(flush=True)"


def a_group(*argv: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen(argv, start_new_session=True, stdout=subprocess.PIPE)


def ignores(pid: int, number: int) -> bool:
    status = Path(f"/proc/{pid}/status").read_text()
    ignored = next(line for line in status.splitlines() if line.startswith("SigIgn"))
    return bool(int(ignored.split()[1], 16) & (1 << (number - 1)))


def sleeper() -> subprocess.Popen[bytes]:
    return a_group("sleep", "600")


@pytest.mark.parametrize("n_groups", [1, 3])
def test_groups_that_are_left_end_when_the_pipe_closes(n_groups: int):
    guardian = Guardian(SHORT_S)
    groups = [sleeper() for _ in range(n_groups)]
    for group in groups:
        guardian.watch(group.pid)
    assert all(is_process_alive(group.pid) for group in groups)
    guardian.close()
    assert [group.wait(10) for group in groups] == [-15] * n_groups


def test_released_group_is_left_alone():
    guardian = Guardian()
    group = sleeper()
    guardian.watch(group.pid)
    guardian.release(group.pid)
    guardian.close()
    assert is_process_alive(group.pid)
    group.kill()
    group.wait()


def test_group_that_ignores_sigterm_is_killed():
    guardian = Guardian(SHORT_S)
    group = a_group(sys.executable, "-c", f"{STUBBORN}; time.sleep(600)")
    assert group.stdout is not None
    group.stdout.readline()
    guardian.watch(group.pid)
    guardian.close()
    assert group.wait(10) == -9


def test_group_that_is_gone_already_is_no_error():
    guardian = Guardian()
    group = a_group("true")
    group.wait()
    guardian.watch(group.pid)
    guardian.close()
    guardian.close()


def test_signals_of_the_terminal_do_not_end_the_guardian():
    before = our_children()
    guardian = Guardian(SHORT_S)
    (pid,) = our_children() - before
    group = sleeper()
    guardian.watch(group.pid)
    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    # Whoever started the tests may have had it ignore one of them.
    until(lambda: all(ignores(pid, number) for number in numbers), "it has started")
    for number in numbers:
        os.kill(pid, number)
    guardian.close()
    assert group.wait(10) == -15


def test_guardian_that_was_killed_is_replaced_by_one_that_knows_all():
    before = our_children()
    guardian = Guardian(SHORT_S)
    groups = [sleeper() for _ in range(3)]
    for group in groups:
        guardian.watch(group.pid)
    guardian.release(groups[0].pid)
    assert not guardian.look()
    (pid,) = our_children() - before - {group.pid for group in groups}
    os.kill(pid, signal.SIGKILL)
    until(guardian.look, "its death is seen")
    guardian.close()
    assert [group.wait(10) for group in groups[1:]] == [-15, -15]
    assert is_process_alive(groups[0].pid)
    groups[0].kill()
    groups[0].wait()


def test_launcher_looks_after_its_guardian_while_it_waits(local: LocalBench):
    def guardians() -> set[int]:
        return {pid for pid in our_children() if "guardian.py" in command_of(pid)}

    (before,) = guardians()
    os.kill(before, signal.SIGKILL)
    until(lambda: local.look() and bool(guardians() - {before}), "there is another one")
