"""Which process a pid means, and whether it is still there."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import psutil
import pytest

from tests.hosts import NO_PID
from tuner.host.process_identity import Life, ProcessIdentity, life_of, own_process, start_ticks_of

HERE = own_process()


def life(process: ProcessIdentity) -> Life:
    return life_of(process, here=HERE)


def test_this_process_is_alive():
    assert HERE.pid == os.getpid()
    assert life(HERE) is Life.ALIVE


def test_a_pid_that_nobody_has_is_gone():
    assert life(replace(HERE, pid=NO_PID)) is Life.GONE


def test_a_later_process_of_the_same_pid_is_another_one():
    assert life(replace(HERE, start_ticks=HERE.start_ticks - 1)) is Life.GONE


def test_a_zombie_is_gone():
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as child:
        ticks = start_ticks_of(child.pid)
        assert ticks is not None
        process = replace(HERE, pid=child.pid, start_ticks=ticks)
        assert life(process) is Life.ALIVE
        child.kill()
        give_up_at = time.monotonic() + 60
        while psutil.Process(child.pid).status() != psutil.STATUS_ZOMBIE:
            assert time.monotonic() < give_up_at
        assert life(process) is Life.GONE


@pytest.mark.parametrize(
    "change",
    [{"host": "other"}, {"boot_id": "other"}, {"boot_id": ""}, {"pid_namespace": "1"}],
    ids=["host", "boot", "unknown boot", "namespace"],
)
def test_a_pid_decides_nothing_elsewhere(change: dict[str, str]):
    assert life(replace(HERE, **change)) is Life.UNKNOWN
    assert life(replace(HERE, pid=NO_PID, **change)) is Life.UNKNOWN


def test_facts_are_read_again():
    assert ProcessIdentity.from_facts(HERE.host, HERE.pid, HERE.facts()) == HERE


@pytest.mark.parametrize("facts", [{}, {"start_ticks": "-1"}, {"start_ticks": None}])
def test_what_is_missing_or_malformed_is_not_known(facts: dict[str, object]):
    known = {"boot_id": HERE.boot_id, "pid_namespace": HERE.pid_namespace}
    process = ProcessIdentity.from_facts(HERE.host, HERE.pid, known | facts)
    assert life(process) is Life.UNKNOWN


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="there is no procfs")
def test_start_ticks_are_those_of_the_kernel_whatever_the_program_is_called(tmp_path: Path):
    program = tmp_path / "a) S 1 (b"
    shutil.copy("/bin/sleep", program)
    with subprocess.Popen([str(program), "60"]) as child:
        stat = Path(f"/proc/{child.pid}/stat").read_text()
        # The last parenthesis ends the name.
        fields = re.sub(r".*\)", "", stat).split()
        assert start_ticks_of(child.pid) == int(fields[19])
        child.kill()


def test_a_clock_that_was_set_makes_no_process_another_one(monkeypatch: pytest.MonkeyPatch):
    """psutil derives when a process began from the boot time, which moves with the clock."""
    hour_later = psutil.Process().create_time() + 3600.0
    monkeypatch.setattr(psutil.Process, "create_time", lambda _self: hour_later)
    assert own_process() == HERE
    assert life(HERE) is Life.ALIVE


def in_namespace(*options: str) -> subprocess.CompletedProcess[str]:
    program = (
        "from tuner.host.process_identity import own_process; print(own_process().facts(), end='')"
    )
    return subprocess.run(
        ["unshare", "--pid", "--fork", *options, sys.executable, "-c", program],
        capture_output=True,
        text=True,
        check=False,
    )


def test_another_pid_namespace_is_another_place():
    there = in_namespace("--mount-proc")
    if there.returncode != 0:
        pytest.skip(f"this user cannot make a PID namespace: {there.stderr}")
    assert HERE.boot_id in there.stdout
    assert repr(HERE.pid_namespace) not in there.stdout
    # Its /proc shows other processes than its pids mean.
    without_own_proc = in_namespace()
    assert "'pid_namespace': ''" in without_own_proc.stdout
