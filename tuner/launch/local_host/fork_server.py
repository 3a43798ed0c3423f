"""The standard library's fork server, with a deadline for each wait.

multiprocessing has no public way to end its fork server, to choose the folder of its socket, or to
stop waiting for it. Only this module uses its private names.
"""

from __future__ import annotations

import contextlib
import logging
import multiprocessing
import os
import signal
import sys
import threading
import time
import types
from collections.abc import Callable, Collection, Iterator, Mapping
from multiprocessing import forkserver, process
from multiprocessing.connection import Connection
from multiprocessing.context import ForkServerProcess
from pathlib import Path
from typing import Any

from tuner.launch.local_host import preload
from tuner.launch.local_host.guardian import Guardian
from tuner.launch.local_host.processes import is_gone

_log = logging.getLogger(__name__)

#: For the first process of a server, which imports the user's modules before it answers.
IMPORT_S = 300.0
#: For each later process; an answer takes milliseconds.
_ANSWER_S = 30.0
#: Seconds after SIGKILL; the kernel takes milliseconds unless something hangs.
_END_S = 10.0
#: A server's connections end this long before its own end, at most.
_DEATH_S = 1.0
_POLL_S = 0.01


class ForkServer:
    """The one fork server of this process.

    Args:
        folder: The folder of its socket.
        guard: Ends the server if this process dies.
    """

    def __init__(self, *, folder: Path, guard: Guardian) -> None:
        self._folder = folder
        self._guard = guard
        self._context = multiprocessing.get_context("forkserver")
        self._variables: Mapping[str, str] = {}
        self._answered_pid = 0
        self.pid = 0

    def start(self, variables: Mapping[str, str]) -> None:
        """Starts a server and ends an earlier one, which has other modules in memory.

        Args:
            variables: Environment of the server, and so of each process forked from it; also that
                of a server that multiprocessing starts because this one has died.
        """
        self.stop()
        self._variables = variables
        forkserver.set_forkserver_preload([preload.__name__])
        # Its own choice of a place for its socket fails in a deep TMPDIR.
        _multiprocessing_config()["tempdir"] = str(self._folder)
        with environment(variables):
            forkserver.ensure_running()
        self.pid = 0
        self._watch()

    def pipe(self) -> tuple[Connection, Connection]:
        """The reading and the writing end of a pipe between a process and its child."""
        return self._context.Pipe(duplex=False)

    def fork(self, target: Callable[..., object], args: tuple[object, ...]) -> ForkServerProcess:
        """Starts a process, and a new server if the last one has died.

        Raises:
            TimeoutError: If the server does not answer in time. It is killed.
            OSError, EOFError: If the server cannot be reached, or dies.
        """
        child = self._context.Process(target=target, args=args)
        has_imported = self._answered_pid == self.running_pid and not is_gone(self._answered_pid)
        with no_main_module(), environment(self._variables):
            self._start_within(child, _ANSWER_S if has_imported else IMPORT_S)
        self._watch()
        self._answered_pid = self.pid
        return child

    @property
    def running_pid(self) -> int | None:
        """Pid of the server; None once multiprocessing has seen it end."""
        pid: int | None = _server()._forkserver_pid
        return pid

    def has_died(self) -> bool:
        """Whether the server is gone, after a moment: its connections end before it does."""
        return is_ending(self.pid)

    def stop(self) -> None:
        """Kills the server, also while it imports the user's modules. Safe to call twice."""
        if (pid := self.running_pid) is not None:
            _kill(pid)
            if _ends_within(pid, _END_S):
                _server()._stop()
            else:
                self._abandon()
            self._guard.release(pid)

    def close(self) -> None:
        """Stops the server. A later one of this process gets a folder of its own."""
        self.stop()
        _multiprocessing_config().pop("tempdir", None)

    def _start_within(self, child: ForkServerProcess, limit_s: float) -> None:
        """Starts a process in a thread, because multiprocessing reads the answer without a limit.

        Raises:
            TimeoutError: If that takes longer.
        """
        failures: list[BaseException] = []

        def start() -> None:
            try:
                child.start()
            except BaseException as error:
                failures.append(error)

        thread = threading.Thread(target=start, name="fork", daemon=True)
        thread.start()
        thread.join(limit_s)
        if thread.is_alive():
            self._end_silent(thread)
            raise TimeoutError(f"The fork server gave no answer within {limit_s:g} s.")
        if failures:
            raise failures[0]

    def _end_silent(self, asking: threading.Thread) -> None:
        """Kills the server, which lets go of a thread that waits for its answer."""
        pid = self.running_pid
        _log.warning(
            "The fork server (pid %s) gives no answer and is killed, and its workers with it", pid
        )
        if pid is not None:
            _kill(pid)
        asking.join(_END_S)
        if asking.is_alive():
            self._abandon()

    def _abandon(self) -> None:
        """Lets multiprocessing start another server if the old one does not end."""
        server = _server()
        _log.warning(
            "The fork server (pid %d) has not ended: not waited for", server._forkserver_pid
        )
        os.close(server._forkserver_alive_fd)
        server._forkserver_alive_fd = server._forkserver_pid = server._forkserver_address = None

    def _watch(self) -> None:
        if (pid := self.running_pid) is not None and pid != self.pid:
            if self.pid:
                self._guard.release(self.pid)
            self.pid = pid
            self._guard.watch(pid)


def is_ending(server_pid: int) -> bool:
    """Whether a server, which may have been followed by another, is gone after a moment."""
    return _ends_within(server_pid, _DEATH_S)


def join(processes: Collection[ForkServerProcess]) -> None:
    """Waits until all have ended, for a bounded time."""
    give_up_at_s = time.monotonic() + _END_S
    for child in processes:
        child.join(max(0.0, give_up_at_s - time.monotonic()))


def kill(processes: Collection[ForkServerProcess]) -> None:
    """Kills processes, and leaves those that do not end in time."""
    for child in processes:
        child.kill()
    join(processes)
    for child in processes:
        if child.exitcode is None:
            _log.warning(
                "A process (pid %s) was killed and has not ended: not waited for", child.pid
            )
            forget(child)


def forget(child: ForkServerProcess) -> None:
    """Keeps Python from waiting, at its own end, for a process that does not end."""
    children: set[object] = process._children  # type: ignore[attr-defined]
    children.discard(child)


@contextlib.contextmanager
def no_main_module() -> Iterator[None]:
    """Hides `__main__` from a child, which would otherwise import the command line again."""
    main = sys.modules["__main__"]
    sys.modules["__main__"] = types.ModuleType("__main__")
    try:
        yield
    finally:
        sys.modules["__main__"] = main


@contextlib.contextmanager
def environment(variables: Mapping[str, str]) -> Iterator[None]:
    """Sets some variables for a moment. Only those: a copy of all costs a millisecond a fork."""
    before = {name: os.environ.get(name) for name in variables}
    os.environ.update(variables)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


def _ends_within(pid: int, limit_s: float) -> bool:
    give_up_at_s = time.monotonic() + limit_s
    while not (has_ended := is_gone(pid)) and time.monotonic() < give_up_at_s:
        time.sleep(_POLL_S)
    return has_ended


def _kill(pid: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)


def _server() -> Any:
    return forkserver._forkserver


def _multiprocessing_config() -> dict[str, Any]:
    config: dict[str, Any] = process.current_process()._config  # type: ignore[attr-defined]
    return config
