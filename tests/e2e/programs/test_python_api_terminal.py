"""The live picture of `tuner.tune` in a real pseudo-terminal, and Ctrl-C that is typed there."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import signal
import struct
import subprocess
import sys
import termios
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field

import pytest

from tests.e2e.interruptions.test_interrupt import PATIENT
from tests.e2e.study_folder import StudyFolder, wait_until

pytestmark = [pytest.mark.programs, pytest.mark.timeout(300)]
_TIMEOUT_S = 110.0
_CTRL_C = b"\x03"
_HIDE_CURSOR, _SHOW_CURSOR = "\x1b[?25l", "\x1b[?25h"
_ESCAPES = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
#: The terminal becomes the one that Ctrl-C in it signals.
_OWN_TERMINAL = """
import fcntl, os, sys, termios
fcntl.ioctl(0, termios.TIOCSCTTY, 0)
os.execv(sys.executable, [sys.executable, *sys.argv[1:]])
"""
SCRIPT = f"""
import tuner
{PATIENT}
tuner.tune(train, {{"x": [0, 1]}}, name="small", trials=3, devices="cpu:2", pruner="none")
print("after the call")
"""


@dataclass(kw_only=True)
class Terminal:
    """A script in a terminal of its own."""

    process: subprocess.Popen[bytes]
    #: The side of the user.
    fd: int
    _parts: list[bytes] = field(default_factory=list)

    def read(self) -> None:
        """Reads what is shown until the terminal is closed."""
        while True:
            try:
                part = os.read(self.fd, 65536)
            except OSError:  # the last process has closed it
                return
            if not part:
                return
            self._parts.append(part)

    @property
    def raw(self) -> str:
        return b"".join(self._parts).decode()

    @property
    def text(self) -> str:
        """What was written, without the escapes that place and colour it."""
        return _ESCAPES.sub("", self.raw)

    def type(self, keys: bytes) -> None:
        os.write(self.fd, keys)


@pytest.fixture
def terminal(study_folder: StudyFolder) -> Iterator[Terminal]:
    study_folder.write("script.py", SCRIPT)
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 120, 0, 0))
    process = subprocess.Popen(
        [sys.executable, "-c", _OWN_TERMINAL, "script.py"],
        cwd=study_folder.path,
        env=study_folder.environment({"TERM": "xterm-256color"}),
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        start_new_session=True,
    )
    os.close(theirs)
    found = Terminal(process=process, fd=ours)
    reader = threading.Thread(target=found.read)
    reader.start()
    yield found
    if process.poll() is None:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    reader.join()
    os.close(ours)


def _wait_for_two(terminal: Terminal, folder: StudyFolder) -> None:
    wait_until(
        lambda: {"begun-0-1", "begun-1-1"} <= folder.files() or terminal.process.poll() is not None,
        "two trials are at work",
        _TIMEOUT_S,
    )
    assert terminal.process.poll() is None, terminal.text


def test_live_picture_replaces_itself_and_leaves_the_terminal_as_it_was(
    terminal: Terminal, study_folder: StudyFolder
) -> None:
    _wait_for_two(terminal, study_folder)
    wait_until(
        lambda: all(re.search(rf"cpu:{slot} +\d", terminal.text) for slot in range(2)),
        "the picture shows both trials on their devices",
        _TIMEOUT_S,
    )
    assert "study small" in terminal.text
    study_folder.write("go", "")
    assert terminal.process.wait(_TIMEOUT_S) == 0, terminal.text
    wait_until(lambda: "after the call" in terminal.text, "all is read")
    assert terminal.raw.count(_HIDE_CURSOR) == terminal.raw.count(_SHOW_CURSOR) > 0
    assert "\x1b[1A" in terminal.raw, "the picture is drawn over the one before"
    summary = "budget reached: 3 trials: 3 completed, 0 pruned, 0 failed"
    last = terminal.raw.rpartition(_SHOW_CURSOR)[2]
    assert summary in last
    assert "after the call" in last


def test_typed_ctrl_c_loses_nothing(terminal: Terminal, study_folder: StudyFolder) -> None:
    _wait_for_two(terminal, study_folder)
    terminal.type(_CTRL_C)
    assert terminal.process.wait(_TIMEOUT_S) != 0
    wait_until(lambda: "StudyInterrupted" in terminal.text, "all is read")
    assert terminal.raw.count(_HIDE_CURSOR) == terminal.raw.count(_SHOW_CURSOR) > 0
    assert "after the call" not in terminal.text
    assert study_folder.states() == ["WAITING", "WAITING"]
    assert {each.outcome for each in study_folder.attempts()} == {"cancelled"}
