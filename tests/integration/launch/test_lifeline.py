"""What holds a lifeline is killed by the kernel once nobody owns it, whatever it is doing."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.contract.launch.conftest import is_process_alive, until
from tuner.launch.local_host.lifeline import Lifeline

_ROOT = Path(__file__).parents[3]
#: Sees no signal that has a handler, and says nothing.
LOOPS_IN_C = "sum(range(10**13))"
SLEEPS = "time.sleep(600)"
ECHOES = "print(sys.stdin.readline(), flush=True); time.sleep(600)"
HOLDS = """
import os, signal, subprocess, sys, time
from tuner.launch.local_host.lifeline import hold

os.setsid()
signal.signal(signal.SIGTERM, signal.SIG_IGN)
HOLD()
print(subprocess.Popen(["sleep", "600"]).pid, flush=True)
"""


@pytest.fixture
def lifeline(tmp_path: Path) -> Iterator[Lifeline]:
    made = Lifeline(tmp_path)
    yield made
    made.close()


def a_holder(
    lifeline: Lifeline, then: str, hold: str = "hold(sys.argv[1])"
) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", HOLDS.replace("HOLD()", hold) + then, str(lifeline.path)],
        env={**os.environ, "PYTHONPATH": str(_ROOT)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


def child_of(holder: subprocess.Popen[str]) -> int:
    """Waits until it holds on."""
    assert holder.stdout is not None
    return int(holder.stdout.readline())


def says_something(holder: subprocess.Popen[str]) -> bool:
    """A process that is to be killed gets no further."""
    assert holder.stdin is not None
    assert holder.stdout is not None
    holder.stdin.write("still here\n")
    holder.stdin.flush()
    return holder.stdout.readline() == "still here\n"


@pytest.mark.parametrize("then", [SLEEPS, LOOPS_IN_C], ids=["sleeps", "loops-in-c"])
def test_all_groups_are_killed_when_the_last_owner_lets_go(lifeline: Lifeline, then: str) -> None:
    holders = [a_holder(lifeline, then) for _ in range(3)]
    children = [child_of(holder) for holder in holders]
    lifeline.close()
    assert [holder.wait(30) for holder in holders] == [-9] * 3
    until(lambda: not any(map(is_process_alive, children)), "what they started is gone")


@pytest.mark.parametrize("word", ["", ", is_alone=True"], ids=["group", "alone"])
def test_who_comes_after_all_was_cleared_away_ends_without_a_traceback(
    lifeline: Lifeline, word: str
) -> None:
    lifeline.close()
    lifeline.path.unlink()
    late = subprocess.run(
        [sys.executable, "-c", HOLDS.replace("HOLD()", f"hold(sys.argv[1]{word})"), lifeline.path],
        env={**os.environ, "PYTHONPATH": str(_ROOT)},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert late.returncode == -9
    assert late.stdout == ""
    assert late.stderr == f"{lifeline.path} is gone, and so is its dispatcher: this process ends.\n"


def test_who_holds_on_alone_is_killed_alone(lifeline: Lifeline) -> None:
    holder = a_holder(lifeline, SLEEPS, hold="hold(sys.argv[1], is_alone=True)")
    child = child_of(holder)
    lifeline.close()
    assert holder.wait(30) == -9
    os.kill(child, signal.SIGKILL)  # It is still there, as else this would be an error.


def test_who_lets_go_lives_on(lifeline: Lifeline) -> None:
    holder = a_holder(lifeline, ECHOES, hold="os.close(hold(sys.argv[1]))")
    child_of(holder)
    lifeline.close()
    assert says_something(holder)
    os.killpg(holder.pid, signal.SIGKILL)
    holder.wait()


def test_one_owner_is_enough(lifeline: Lifeline) -> None:
    other = subprocess.Popen(["sleep", "600"], pass_fds=[lifeline.fd])
    holder = a_holder(lifeline, ECHOES)
    child_of(holder)
    lifeline.close()
    assert says_something(holder)
    other.kill()
    other.wait()
    assert holder.wait(30) == -9


def test_who_comes_after_the_owners_is_killed_as_well(lifeline: Lifeline) -> None:
    lifeline.close()
    holder = a_holder(lifeline, SLEEPS)
    assert holder.wait(30) == -9
    assert holder.stdout is not None
    assert not holder.stdout.read(), "it did not get beyond"


def test_an_end_of_one_holder_means_nothing_to_the_others(lifeline: Lifeline) -> None:
    first, second = (a_holder(lifeline, ECHOES) for _ in range(2))
    children = [child_of(first), child_of(second)]
    first.kill()
    first.wait()
    assert says_something(second)
    lifeline.close()
    assert second.wait(30) == -9
    until(lambda: not is_process_alive(children[1]), "its child is gone")
    os.kill(children[0], signal.SIGKILL)
