"""Want of processor is not taken for a file that does not answer; a lock is."""

from __future__ import annotations

import os
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
import sqlalchemy as sa

from tuner.store.connection.patience import await_working_thread
from tuner.store.connection.transactions import Access, Unavailable

PATIENCE_S = 0.4

pytestmark = pytest.mark.skipif(
    not Path("/proc/self/schedstat").exists(), reason="the kernel counts no waiting"
)


@pytest.fixture
def access(tmp_path: Path) -> Iterator[Access]:
    url = f"sqlite:///{tmp_path}/study.db"
    made = Access(sa.create_engine(url, connect_args={"timeout": 60}), url)
    made.run(lambda c: c.exec_driver_sql("CREATE TABLE x (y)"))
    made.wait_at_most(PATIENCE_S)
    yield made
    made.close()


@pytest.fixture
def crowded() -> Iterator[None]:
    """One processor for this process and many others that never wait."""
    allowed = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(allowed)})
    spin = [sys.executable, "-c", "while True: pass"]
    spinners = [subprocess.Popen(spin) for _ in range(12)]
    yield
    for each in spinners:
        each.kill()
        each.wait()
    os.sched_setaffinity(0, allowed)


def compute() -> str:
    """Takes more processor time than a caller's patience."""
    until_s = time.thread_time() + 1.2 * PATIENCE_S
    while time.thread_time() < until_s:
        pass
    return "done"


def test_one_that_computes_is_waited_for(access: Access) -> None:
    assert access.call(compute) == "done"
    assert access.is_open


@pytest.mark.usefixtures("crowded")
def test_one_that_gets_no_processor_is_waited_for(access: Access) -> None:
    for _ in range(20):
        access.run(lambda c: c.exec_driver_sql("INSERT INTO x VALUES (1)"))
    assert access.is_open


def test_a_file_that_is_locked_does_not_answer(access: Access, tmp_path: Path) -> None:
    with closing(sqlite3.connect(tmp_path / "study.db", isolation_level=None)) as other:
        other.execute("BEGIN EXCLUSIVE")
        with pytest.raises(Unavailable, match=r"has not answered for 0\.4 s"):
            access.run(lambda c: c.exec_driver_sql("INSERT INTO x VALUES (1)"))
        other.execute("ROLLBACK")


def test_threads_that_compute_without_end_are_not_waited_for_without_end() -> None:
    is_over = threading.Event()

    def spin() -> None:
        while not is_over.is_set():
            pass

    thread = threading.Thread(target=spin)
    thread.start()
    try:
        assert not await_working_thread(lambda part_s: is_over.wait(part_s), 0.05)
    finally:
        is_over.set()
        thread.join()
