"""The calling process's side: starts the study's process, reads its messages, and stops it."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence
from pathlib import Path

from tuner.api.messages import Begun, Call, Finished, Message, Refused, decode
from tuner.errors import StudyFailed

#: Makes the package importable if it is not installed but in a folder of `sys.path`.
_ROOT = Path(__file__).parents[2]
# -P: a file of the user's in the present folder must not hide a module of ours.
_PROGRAM = (
    "import sys; sys.path.append({root!r}); from tuner.api.dispatch_process import main; "
    "sys.exit(main(sys.argv[1:]))"
)


class Child:
    """A dispatching process.

    Args:
        call: What it runs.
        hear: Called with every message, from a thread of its own.
        keep_open: Descriptors that the process inherits.
    """

    def __init__(
        self, call: Call, hear: Callable[[Message], None], keep_open: Sequence[int] = ()
    ) -> None:
        self._hear = hear
        self._begun_or_ended = threading.Event()
        self._ended = threading.Event()
        self._last: Finished | Refused | None = None
        reading, writing = os.pipe()
        try:
            self._process = subprocess.Popen(
                [
                    *(sys.executable, "-P", "-c", _PROGRAM.format(root=str(_ROOT))),
                    *(str(writing), str(os.getpid())),
                ],
                stdin=subprocess.PIPE,
                stdout=None if call.draws else subprocess.DEVNULL,
                pass_fds=[writing, *keep_open],
                # Ctrl-C in a terminal is for the caller, which hands it on once.
                process_group=0,
            )
        except BaseException:
            os.close(reading)
            raise
        finally:
            os.close(writing)
        self._tell(call)
        self._reader = threading.Thread(
            target=self._read, args=(reading,), name="tuner-study", daemon=True
        )
        self._reader.start()

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def has_ended(self) -> bool:
        return self._ended.is_set()

    def wait_for_begin(self) -> None:
        """Waits until trials start, or the process ends."""
        # In parts: a wait without an end can not be interrupted on every system.
        while not self._begun_or_ended.wait(0.2):
            pass

    def wait(self, timeout_s: float | None = None) -> bool:
        """Waits for the end; False after a timeout."""
        return self._ended.wait(timeout_s)

    def interrupt(self) -> None:
        """As Ctrl-C: once lets trials save, twice ends them at once."""
        if not self.has_ended:
            with contextlib.suppress(ProcessLookupError):
                self._process.send_signal(signal.SIGINT)

    def outcome(self) -> Finished | Refused:
        """Its result; call it only after its end."""
        if self._last is not None:
            return self._last
        code = self._process.returncode
        how = f"by signal {-code}" if code < 0 else f"with exit code {code}"
        return Refused(
            error=StudyFailed.__name__,
            message=f"The process that ran the study ended {how}. Its trials are stopped, and what "
            "had finished is in the database. The same call continues the study.",
            exit_code=StudyFailed.exit_code,
        )

    def _tell(self, call: Call) -> None:
        assert self._process.stdin is not None
        # A process that has died says so at its end.
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.write(call.encode())
            self._process.stdin.flush()

    def _read(self, fd: int) -> None:
        with os.fdopen(fd, "rb") as lines:
            for line in lines:
                if not line.endswith(b"\n"):
                    break  # It died in the middle of a message.
                self._take(decode(line))
        self._process.wait()
        assert self._process.stdin is not None
        with contextlib.suppress(OSError):
            self._process.stdin.close()
        self._ended.set()
        self._begun_or_ended.set()

    def _take(self, message: Message) -> None:
        if isinstance(message, Finished | Refused):
            self._last = message
        self._hear(message)
        if isinstance(message, Begun):
            self._begun_or_ended.set()
