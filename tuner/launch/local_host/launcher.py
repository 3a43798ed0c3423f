"""Workers as processes of this host, forked from the standard library's fork server."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import signal
import sys
import time
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from multiprocessing import forkserver
from multiprocessing.connection import Connection, wait
from multiprocessing.context import ForkServerProcess
from multiprocessing.process import current_process
from pathlib import Path
from typing import Any, TypeAlias

from tuner.attempt import AttemptId
from tuner.config.sections.logs import DEFAULT_MAX_LOG_BYTES
from tuner.errors import LaunchError
from tuner.launch.inbox import Event, Inbox, WorkerExited
from tuner.launch.local_host import announced_stop, entry, preload
from tuner.launch.local_host.environment import environment, no_main_module
from tuner.launch.local_host.guardian import Guardian
from tuner.launch.local_host.leftover_workers import Remains
from tuner.launch.local_host.lifeline import Lifeline
from tuner.launch.local_host.orphans import end_all, end_strays
from tuner.launch.local_host.ports import Ports
from tuner.launch.local_host.processes import is_gone, n_readable, signal_group
from tuner.launch.local_host.socket_folder import SocketFolder
from tuner.launch.log_limit import LogLimit
from tuner.launch.request import FunctionProgram, LaunchRequest, Program
from tuner.process_identity import ProcessIdentity

_CHECK_TIMEOUT_S = 300.0
#: Each waiting process holds some 5 MB of its own.
_MAX_SPARES = 16
#: At the end, for what workers have left behind: at most, where something does not die.
_STRAYS_S = 20.0
_LOOK_EVERY_S = 0.01
#: From one look for strays to the next, where some do not go.
_LONGEST_LOOK_S = 1.0
#: From the end of a fork server's connections to its own.
_DEATH_S = 1.0
#: The exit code that multiprocessing gives where the fork server could not tell it.
_NOBODY_KNOWS = 255


_Key: TypeAlias = tuple[AttemptId, int]
"""An attempt and one of its ranks."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Worker:
    """A forked process, before and after it got its request."""

    process: ForkServerProcess
    pid: int
    requests: Connection
    log_path: Path | None = None


class LocalLauncher:
    """One process for each rank of an attempt, in a session of its own, from one warm fork server.

    Args:
        inbox: Where exits go.
        modules: Imported once, before the first fork.
        environment: Of the fork server, and so of every worker.
        log_path: Where importing those modules may print.
        import_path: Folders of the user's modules, before those of this process.
        n_spares: Processes to fork ahead; as many as may be wanted at the same moment.
        max_log_bytes: What each rank of an attempt may keep of its output.
        remains: Lets later starts wait for workers that are left; None where none runs a trial.
    """

    def __init__(
        self,
        inbox: Inbox,
        *,
        modules: Sequence[str],
        environment: Mapping[str, str],
        log_path: Path,
        import_path: Sequence[str] = (),
        n_spares: int = 1,
        max_log_bytes: int = DEFAULT_MAX_LOG_BYTES,
        remains: Remains | None = None,
    ) -> None:
        self._remains = remains
        self._dispatcher_file = remains.add_own() if remains else None
        self._inbox = inbox
        self._environment = environment
        self._log_path = log_path
        self._import_path = tuple(import_path)
        self._logs = LogLimit(max_log_bytes)
        self._context = multiprocessing.get_context("forkserver")
        self._workers: dict[_Key, _Worker] = {}
        self._ports = Ports()
        self._spares: deque[_Worker] = deque()
        self._n_spares = min(n_spares, _MAX_SPARES)
        #: Since the last look that found none, and when to look again.
        self._n_looks_in_vain = 0
        self._look_again_at_s = 0.0
        self._sockets = SocketFolder()
        #: For sockets, also of others; it goes when this is closed, or when this process dies.
        self.folder = self._sockets.path
        self._lifeline = Lifeline(self.folder)
        #: Ends what is left should this process die; told also of what others start.
        self.guard = Guardian(owns=[self._lifeline.fd], folder=self.folder)
        inbox.when_idle(self._fork_ahead)
        inbox.when_idle(self.guard.look)
        inbox.when_idle(self._look_for_strays)
        self._start_server(modules)

    def check(self, program: Program) -> None:
        """Waits for the modules and tries the program's functions.

        Raises:
            LaunchError: If a function cannot be imported or called with a trial; the message is
                to be read after the name of the study file.
        """
        found = self._ask_child(program)
        if found.is_unsafe_to_preload:
            self._start_server(_base_modules(program))
        if found.problem:
            raise LaunchError(found.problem)

    def leaves_workers(self, process: ProcessIdentity) -> bool:
        return self._remains is not None and self._remains.are_left_by(process)

    def launch(self, requests: Sequence[LaunchRequest]) -> tuple[int, ...]:
        try:
            return tuple(self._start(request) for request in requests)
        except LaunchError:
            self._drop(requests[0].attempt_id)
            raise

    def _start(self, request: LaunchRequest) -> int:
        worker = self._spare() or self._fork()
        try:
            worker.requests.send(request)
        except OSError:
            # It died while it waited (somebody killed it); a new one has no such past.
            worker = self._fork()
            worker.requests.send(request)
        worker.requests.close()
        key = (request.attempt_id, request.rank)
        log_path = Path(request.log_path)
        self._logs.watch(log_path)
        self._workers[key] = replace(worker, log_path=log_path)
        self._inbox.watch(worker.process.sentinel, partial(self._reap, key))
        return worker.pid

    def _spare(self) -> _Worker | None:
        """A process that waits, if neither it nor its fork server has died meanwhile."""
        while self._spares:
            spare = self._spares.popleft()
            if not wait([spare.process.sentinel], 0.0):
                return spare
            self._end_spare(spare)
        return None

    def _drop(self, attempt_id: AttemptId) -> None:
        """Ends the ranks that were started before one could not be; nobody hears of them."""
        self.kill(attempt_id)
        for key in self._of(attempt_id):
            self._workers[key].process.join()
            for _ in self._reap(key):
                pass

    def free_port(self) -> int:
        return self._ports.take()

    def _fork(self) -> _Worker:
        try:
            try:
                return self._fork_once()
            except (EOFError, ConnectionError):
                if not self._has_server_died():
                    raise
                # Somebody has killed it while it was asked, which is no fault of the trial's.
                return self._fork_once()
        except (OSError, EOFError) as error:
            raise LaunchError(f"The process could not be started: {error}") from error

    def _fork_once(self) -> _Worker:
        reader, writer = self._context.Pipe(duplex=False)
        process = self._context.Process(target=entry.wait, args=(reader, self._lifeline.path))
        try:
            # The variables are for a fork server that multiprocessing starts anew, should it
            # have died.
            with no_main_module(), environment(self._variables):
                process.start()
        except (OSError, EOFError):
            writer.close()
            raise
        finally:
            reader.close()
        assert process.pid is not None
        self.guard.watch(process.pid)
        self._watch_server()
        return _Worker(process=process, pid=process.pid, requests=writer)

    def _has_server_died(self) -> bool:
        """Its connections end a moment before multiprocessing can see that it is gone."""
        give_up_at_s = time.monotonic() + _DEATH_S
        while not (has_died := is_gone(self._server_pid)) and time.monotonic() < give_up_at_s:
            time.sleep(_LOOK_EVERY_S)
        return has_died

    def _fork_ahead(self) -> bool:
        if len(self._spares) >= self._n_spares or not self._workers:
            return False
        try:
            self._spares.append(self._fork())
        except LaunchError:
            return False  # The launch itself will say so, for a trial.
        return True

    def terminate(self, attempt_id: AttemptId) -> None:
        announced_stop.announce(self.folder, attempt_id)
        self._signal(attempt_id, signal.SIGTERM)

    def kill(self, attempt_id: AttemptId) -> None:
        self._signal(attempt_id, signal.SIGKILL)

    def close(self) -> None:
        while self._spares:
            self._end_spare(self._spares.pop())
        for attempt_id in {attempt_id for attempt_id, _ in self._workers}:
            self._drop(attempt_id)
        self._end_all()
        self._stop_server()
        self._logs.close()
        self.guard.close()
        if self._remains:
            self._remains.remove_own()
        self._lifeline.close()
        # A fork server that this process starts later would look for its socket there.
        _multiprocessing_config().pop("tempdir", None)
        self._sockets.close()

    def _reap(self, key: _Key) -> Iterable[Event]:
        worker = self._workers.pop(key)
        self._inbox.forget(worker.process.sentinel)
        # The fork server alone knows how a process ends; where it is gone, its pipe is empty, and
        # multiprocessing makes 255 of that. The pipe alone does not tell: at each start of another
        # process multiprocessing reads the exit codes that have come.
        is_empty = not n_readable(worker.process.sentinel)
        worker.process.join()
        exit_code = worker.process.exitcode
        # What the program started and left behind would keep the device.
        signal_group(worker.pid, signal.SIGKILL)
        self.guard.release(worker.pid)
        worker.process.close()
        if worker.log_path is not None:
            self._logs.release(worker.log_path)
        attempt_id, rank = key
        if not self._of(attempt_id):
            announced_stop.withdraw(self.folder, attempt_id)
        yield WorkerExited(
            attempt_id=attempt_id,
            rank=rank,
            exit_code=1 if exit_code is None else exit_code,
            is_lost=is_empty and exit_code == _NOBODY_KNOWS,
        )

    def _look_for_strays(self) -> bool:
        """Ends strays, less and less often while some stay: one may be in uninterruptible sleep."""
        now_s = time.monotonic()
        if now_s < self._look_again_at_s:
            return False
        self._n_looks_in_vain = self._n_looks_in_vain + 1 if self._end_strays() else 0
        if self._n_looks_in_vain:
            wait_s = min(_LOOK_EVERY_S * 2 ** min(self._n_looks_in_vain, 10), _LONGEST_LOOK_S)
            self._look_again_at_s = now_s + wait_s
        return False

    def _end_strays(self) -> bool:
        workers = {worker.pid for worker in (*self._workers.values(), *self._spares)}
        return end_strays(self._server_pid, workers, {key[0] for key in self._workers})

    def _end_all(self) -> None:
        # multiprocessing knows the pid until it has seen the end: nobody else has that pid.
        server: Any = forkserver._forkserver
        if (pid := server._forkserver_pid) is not None:
            end_all(pid, _STRAYS_S)

    def _end_spare(self, spare: _Worker) -> None:
        """One that waits ends by itself when its pipe closes."""
        spare.requests.close()
        spare.process.join()
        self.guard.release(spare.pid)

    def _signal(self, attempt_id: AttemptId, number: signal.Signals) -> None:
        for key in self._of(attempt_id):
            pid = self._workers[key].pid
            # Until it has made its own session the process has no group to signal.
            if not signal_group(pid, number):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, number)

    def _of(self, attempt_id: AttemptId) -> list[_Key]:
        return [key for key in self._workers if key[0] == attempt_id]

    def _ask_child(self, program: Program) -> entry.ProgramCheck:
        reader, writer = self._context.Pipe(duplex=False)
        process = self._context.Process(
            target=entry.check, args=(program, writer, self._lifeline.path)
        )
        try:
            with no_main_module():
                process.start()
            writer.close()
            if not reader.poll(_CHECK_TIMEOUT_S):
                process.kill()
                raise LaunchError(
                    f"Importing the program took more than {_CHECK_TIMEOUT_S:.0f} s. "
                    f"What it printed is in {self._log_path}."
                )
            found = reader.recv()
        except (EOFError, OSError) as error:
            raise LaunchError(
                "The process that imports the program died. What it printed is in "
                f"{self._log_path}."
            ) from error
        process.join()
        assert isinstance(found, entry.ProgramCheck)
        return found

    def _start_server(self, modules: Sequence[str]) -> None:
        # One that runs already knows nothing of these modules: multiprocessing would take it.
        self._stop_server()
        self._variables = {
            **self._environment,
            preload.ENV_MODULES: ",".join(modules),
            preload.ENV_SYS_PATH: os.pathsep.join([*self._import_path, *sys.path]),
            preload.ENV_LOG: str(self._log_path),
            preload.ENV_LIFELINE: str(self._lifeline.path),
            preload.ENV_DISPATCHER: str(self._dispatcher_file or ""),
        }
        forkserver.set_forkserver_preload([preload.__name__])
        # Its own choice of a place for its socket fails in a deep TMPDIR.
        _multiprocessing_config()["tempdir"] = str(self.folder)
        with environment(self._variables):
            forkserver.ensure_running()
        self._server_pid = 0
        self._watch_server()

    def _watch_server(self) -> None:
        """multiprocessing starts a new one by itself where the last one has died."""
        server: Any = forkserver._forkserver
        if server._forkserver_pid != self._server_pid:
            if self._server_pid:
                self.guard.release(self._server_pid)
            self._server_pid = server._forkserver_pid
            self.guard.watch(self._server_pid)

    def _stop_server(self) -> None:
        """Ends the fork server, also one that still imports the user's modules. Safe twice."""
        # There is no public way to end it.
        server: Any = forkserver._forkserver
        if (pid := server._forkserver_pid) is not None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
            server._stop()
            self.guard.release(pid)


def modules_of(program: Program) -> list[str]:
    """What to import before the first fork: the worker, and the user's modules."""
    modules = _base_modules(program)
    if isinstance(program, FunctionProgram):
        modules.append(program.module)
    if program.space:
        modules.append(program.space.partition(":")[0])
    return modules


def _base_modules(program: Program) -> list[str]:
    if isinstance(program, FunctionProgram):
        return [entry.__name__, entry.FUNCTION_WORKER]
    return [entry.__name__, entry.COMMAND_WORKER]


def _multiprocessing_config() -> dict[str, Any]:
    # There is no public way to say where multiprocessing puts its sockets.
    config: dict[str, Any] = current_process()._config  # type: ignore[attr-defined]
    return config
