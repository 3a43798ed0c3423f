"""Commands in processes of their own that need not import the tuner first.

Importing takes a second of a core, which is more than most commands take for all else, and the
tests start hundreds. A server imports once; each command is a fork of it, in which `python -m` or
`python -c` goes on as in a new process. What is decided when a process begins is the server's:
variables that Python and the loader read, `/proc/PID/cmdline` and `/proc/PID/environ`. Where that
matters, a test starts a new process.
"""

from __future__ import annotations

import atexit
import ctypes
import gc
import importlib
import json
import os
import runpy
import select
import signal
import socket
import subprocess
import sys
import tempfile
import time
import types
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path

_PR_SET_PDEATHSIG = 1
#: What `tuner.run` and most verbs import. None of them may import torch: a test looks for it.
_MODULES = (
    *("tuner.cli.main", "tuner.compose.start", "tuner.queries.locate", "tuner.queries.status"),
    *("tuner.queries.results.best", "tuner.terminal.studies", "tuner.terminal.trials"),
    *("tuner.store.connection.database", "tuner.store.connection.optuna_storage"),
    *("tuner.compose.run_report", "tuner.actions.enqueue", "multiprocessing.popen_forkserver"),
)


@dataclass(frozen=True, kw_only=True)
class Command:
    """A command to start."""

    #: What follows `python`: `-m` or `-c`, and what belongs to it.
    words: Sequence[str]
    folder: str
    env: Mapping[str, str]
    out_file: str
    err_file: str


@dataclass(kw_only=True, eq=False)
class WarmProcess:
    """A command that was started. What `subprocess.Popen` has of the same name."""

    pid: int
    server: WarmPython
    returncode: int | None = None

    def poll(self) -> int | None:
        if self.returncode is None:
            self.returncode = self.server.code_of(self.pid, timeout_s=0.0)
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        if self.poll() is None:
            self.returncode = self.server.code_of(self.pid, timeout_s=timeout)
        if self.returncode is None:
            raise subprocess.TimeoutExpired(f"process {self.pid}", timeout or 0.0)
        return self.returncode

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            with suppress(ProcessLookupError):
                os.kill(self.pid, number)


@dataclass(eq=False)
class WarmPython:
    """The server, which ends with the process that started it.

    Args:
        env: Its environment. Commands may differ in what is not read as a process begins.
    """

    env: Mapping[str, str]
    _codes: dict[int, int] = field(default_factory=dict)
    _unread: bytes = b""

    def __post_init__(self) -> None:
        self._socket, theirs = socket.socketpair()
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, __file__, str(theirs.fileno()), str(os.getpid())],
                env=self.env,
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                start_new_session=True,
            )
        atexit.register(self.close)

    def close(self) -> None:
        """Ends it; commands that still run go on."""
        self._socket.close()
        self._process.wait()

    def start(self, command: Command) -> WarmProcess:
        self._socket.sendall(json.dumps(asdict(command)).encode() + b"\n")
        while (pid := self._codes.pop(0, None)) is None:
            self._read(None)
        return WarmProcess(pid=pid, server=self)

    def code_of(self, pid: int, *, timeout_s: float | None) -> int | None:
        """As `subprocess.Popen.returncode`; None where the command has not ended by then."""
        give_up_at_s = None if timeout_s is None else time.monotonic() + timeout_s
        while pid not in self._codes:
            left_s = None if give_up_at_s is None else max(0.0, give_up_at_s - time.monotonic())
            if not self._read(left_s):
                return None
        return self._codes.pop(pid)

    def _read(self, timeout_s: float | None) -> bool:
        """Reads what the server says: `0 PID` of one that has begun, `PID CODE` of an ended one."""
        if not select.select([self._socket], [], [], timeout_s)[0]:
            return False
        said = self._socket.recv(65536)
        if not said:
            raise RuntimeError(f"The server of warm processes has ended: {self._process.wait()}.")
        *lines, self._unread = (self._unread + said).split(b"\n")
        self._codes.update((int(line.split()[0]), int(line.split()[1])) for line in lines)
        return True


def serve(connection: socket.socket) -> Command:
    """Forks one process for each command that is asked for; returns in those alone."""
    woken, wakes = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
    signal.set_wakeup_fd(wakes, warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    unread = b""
    while True:
        ready = select.select([connection, woken], [], [])[0]
        if woken in ready:
            os.read(woken, 4096)
            _tell_ends(connection)
        if connection not in ready:
            continue
        asked = connection.recv(65536)
        if not asked:
            os._exit(0)
        *lines, unread = (unread + asked).split(b"\n")
        for line in lines:
            if os.fork() == 0:
                signal.set_wakeup_fd(-1)
                signal.signal(signal.SIGCHLD, signal.SIG_DFL)
                os.close(woken)
                os.close(wakes)
                return Command(**json.loads(line))


def _tell_ends(connection: socket.socket) -> None:
    with suppress(ChildProcessError):
        while (ended := os.waitpid(-1, os.WNOHANG))[0]:
            pid, status = ended
            connection.sendall(b"%d %d\n" % (pid, os.waitstatus_to_exitcode(status)))


def become(command: Command) -> None:
    """Makes this process the command's: session, folder, environment and output files."""
    os.setsid()
    os.chdir(command.folder)
    os.environ.clear()
    os.environ.update(command.env)
    time.tzset()
    tempfile.tempdir = None
    for fd, path in ((1, command.out_file), (2, command.err_file)):
        opened = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o666)
        os.dup2(opened, fd)
        os.close(opened)


def run(words: Sequence[str]) -> None:
    """What Python does with the words of its command line."""
    option, what, *rest = words
    if option == "-m":
        sys.path[0] = os.getcwd()
        sys.argv[:] = [what, *rest]
        runpy.run_module(what, run_name="__main__", alter_sys=True)
        return
    sys.path[0] = ""
    sys.argv[:] = ["-c", *rest]
    main = types.ModuleType("__main__")
    sys.modules["__main__"] = main
    exec(what, main.__dict__)


def _main(fd: int, parent_pid: int) -> None:
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent_pid:
        return
    # This folder is none in which a module is looked for.
    sys.path[0] = str(Path(__file__).parents[2])
    for name in _MODULES:
        importlib.import_module(name)
    gc.collect()
    gc.freeze()
    connection = socket.socket(fileno=fd)
    command = serve(connection)
    become(command)
    with connection:
        connection.sendall(b"0 %d\n" % os.getpid())
    run(command.words)


if __name__ == "__main__":
    _main(int(sys.argv[1]), int(sys.argv[2]))
