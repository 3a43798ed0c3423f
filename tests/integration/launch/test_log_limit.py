"""A log that grows without end: its first and last part stay, while the program writes on."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

from tests.contract.launch.conftest import until
from tuner.launch import log_limit
from tuner.launch.failure_diagnosis import last_lines
from tuner.launch.log_limit import LogLimit, read_log

MIB = 1024 * 1024
LINE = b"%011d\n"
N_LINES = 10 * MIB // 12


@pytest.fixture
def limit(monkeypatch: pytest.MonkeyPatch) -> LogLimit:
    monkeypatch.setattr(log_limit, "_LOOK_EVERY_S", 0.01)
    return LogLimit(MIB)


@pytest.fixture(params=["holes", "no holes"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    if request.param == "no holes":
        monkeypatch.setattr(log_limit, "_punch", lambda fd, begin, n_bytes: False)
    return str(request.param)


def write(fd: int, first: int, after: int) -> None:
    os.write(fd, b"".join(LINE % number for number in range(first, after)))


def open_log(path: Path) -> int:
    return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)


def used_bytes(path: Path) -> int:
    return path.stat().st_blocks * 512


def left_out(text: bytes) -> list[int]:
    found = re.findall(rb"\[tuner\] ([\d,]+) bytes are left out here", text)
    return [int(number.replace(b",", b"")) for number in found]


def test_first_and_last_part_stay_and_a_line_says_how_much_is_missing(
    limit: LogLimit, tmp_path: Path
) -> None:
    log = tmp_path / "attempt-1.log"
    limit.watch(log)
    fd = open_log(log)
    for first in range(0, N_LINES, N_LINES // 20):
        write(fd, first, min(N_LINES, first + N_LINES // 20))
    os.close(fd)
    limit.release(log)
    limit.close()
    text = log.read_bytes()
    assert len(text) < MIB + 3 * 4096
    assert b"\0" not in text
    assert text.startswith(LINE % 0 + LINE % 1)
    assert text.endswith(LINE % (N_LINES - 2) + LINE % (N_LINES - 1))
    (n_bytes,) = left_out(text)
    assert abs(n_bytes + len(text) - 12 * N_LINES) < 1000
    assert [path.name for path in tmp_path.iterdir()] == ["attempt-1.log"]


def test_program_writes_on_while_its_log_is_shortened(
    limit: LogLimit, tmp_path: Path, way: str
) -> None:
    log = tmp_path / "attempt-1.log"
    limit.watch(log)
    fd = open_log(log)
    for first in range(0, N_LINES, N_LINES // 4):
        write(fd, first, first + N_LINES // 4)
        last = LINE % (first + N_LINES // 4 - 1)

        def is_short(last: bytes = last) -> bool:
            # Where there are no holes, the end of the log is away for a moment.
            return used_bytes(log) < MIB + 64 * 1024 and b"".join(read_log(log)).endswith(last)

        until(is_short, "its middle is given back, and its end is there")
        assert last_lines(log, 1).encode() + b"\n" == last
    text = b"".join(read_log(log))
    assert b"\0" not in text
    assert len(left_out(text)) == 1
    os.close(fd)
    limit.close()


def test_short_log_is_left_as_it_is(limit: LogLimit, tmp_path: Path) -> None:
    log = tmp_path / "attempt-1.log"
    limit.watch(log)
    log.write_bytes(b"a\0b" * 1000)
    before = log.stat().st_ino
    limit.release(log)
    limit.watch(tmp_path / "never-there.log")
    limit.release(tmp_path / "never-there.log")
    limit.close()
    limit.close()
    assert log.stat().st_ino == before
    assert b"".join(read_log(log)) == log.read_bytes() == b"a\0b" * 1000


def test_program_that_empties_its_own_log(limit: LogLimit, tmp_path: Path) -> None:
    log = tmp_path / "attempt-1.log"
    limit.watch(log)
    fd = open_log(log)
    write(fd, 0, N_LINES)
    until(lambda: used_bytes(log) < MIB + 64 * 1024, "its middle is given back")
    os.truncate(log, 0)
    os.write(fd, b"anew\n")
    limit.release(log)
    limit.close()
    os.close(fd)
    assert log.read_bytes() == b"anew\n"


def test_log_that_cannot_be_opened_costs_the_others_nothing(
    limit: LogLimit, tmp_path: Path
) -> None:
    (tmp_path / "file").touch()
    limit.watch(tmp_path / "file" / "attempt-1.log")
    good = tmp_path / "good.log"
    limit.watch(good)
    fd = open_log(good)
    write(fd, 0, N_LINES)
    until(lambda: used_bytes(good) < MIB + 64 * 1024, "the other one is shortened")
    os.close(fd)
    limit.close()
