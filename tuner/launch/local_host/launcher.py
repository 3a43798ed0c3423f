"""Workers as processes of this host, forked from the standard library's fork server."""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import socket
import sys
import time
from collections import deque
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from multiprocessing.connection import Connection, wait
from multiprocessing.context import ForkServerProcess
from pathlib import Path
from typing import TypeAlias

from tuner.config.sections import max_log
from tuner.domain.attempt import AttemptId
from tuner.errors import LaunchError
from tuner.host.process_identity import ProcessIdentity
from tuner.launch.inbox import Event, Inbox, WorkerExited
from tuner.launch.local_host import announced_stop, entry, fork_server, preload
from tuner.launch.local_host.fork_server import ForkServer
from tuner.launch.local_host.guardian import Guardian
from tuner.launch.local_host.leftover_workers import Remains
from tuner.launch.local_host.lifeline import Lifeline
from tuner.launch.local_host.orphans import end_all, end_strays
from tuner.launch.local_host.ports import Ports
from tuner.launch.local_host.processes import n_readable, signal_group
from tuner.launch.local_host.socket_folder import SocketFolder
from tuner.launch.log_limit import LogLimit
from tuner.launch.request import FunctionProgram, LaunchRequest, Program

_log = logging.getLogger(__name__)

#: Each waiting process holds some 5 MB of its own.
_MAX_SPARES = 16
_MAX_LOG_BYTES = max_log.read_max_log(max_log.DEFAULT)
#: Maximum seconds at the end for workers' remaining processes, if some do not die.
_STRAYS_S = 20.0
_LOOK_EVERY_S = 0.01
#: Maximum interval in seconds between checks for strays, if some do not die.
_LONGEST_LOOK_S = 1.0
#: After that a worker that was killed counts as ended. A large program takes seconds to end.
_GIVE_UP_S = 60.0
#: Exit code that multiprocessing returns if the fork server could not report it.
_NOBODY_KNOWS = 255


_Key: TypeAlias = tuple[AttemptId, int]
"""An attempt and one of its ranks."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Worker:
    """A forked process, before and after it got its request."""

    process: ForkServerProcess
    pid: int
    #: Pid of the fork server that started it.
    server_pid: int
    requests: Connection
    log_path: Path | None = None


class LocalLauncher:
    """One process per rank of an attempt, each in its own session, forked from a warm server.

    Args:
        inbox: Receives exits.
        modules: Imported once, before the first fork.
        environment: Environment of the fork server and thus of every worker.
        log_path: Log for the output of these imports.
        import_path: Folders of the user's modules, before those of this process.
        n_spares: Processes to fork ahead; as many as may be needed at once.
        max_log_bytes: Maximum log size per rank of an attempt.
        remains: Makes later starts wait for remaining workers; None if no trial runs here.
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
        max_log_bytes: int = _MAX_LOG_BYTES,
        remains: Remains | None = None,
    ) -> None:
        self._remains = remains
        self._dispatcher_file = remains.add_own() if remains else None
        self._inbox = inbox
        self._environment = environment
        self._log_path = log_path
        self._import_path = tuple(import_path)
        self._logs = LogLimit(max_log_bytes)
        self._workers: dict[_Key, _Worker] = {}
        #: For those that were killed: when their exit is not waited for any more.
        self._give_up_at_s: dict[_Key, float] = {}
        #: Killed, not ended in time, and of no attempt any more.
        self._late: list[_Worker] = []
        self._alarm, self._alarm_bell = socket.socketpair()
        self._ports = Ports()
        self._spares: deque[_Worker] = deque()
        self._n_spares = min(n_spares, _MAX_SPARES)
        #: Checks since the last one that found none, and when the next is due.
        self._n_looks_in_vain = 0
        self._look_again_at_s = 0.0
        self._sockets = SocketFolder()
        #: For sockets, including those of other parts; removed when this is closed or the process
        #: dies.
        self.folder = self._sockets.path
        self._lifeline = Lifeline(self.folder)
        #: Ends remaining processes if this process dies; other parts register theirs, too.
        self.guard = Guardian(owns=[self._lifeline.fd], folder=self.folder)
        self._server = ForkServer(folder=self.folder, guard=self.guard)
        inbox.watch(self._alarm, self._give_up_overdue)
        inbox.when_idle(self._fork_ahead)
        inbox.when_idle(self.guard.look)
        inbox.when_idle(self._look_for_strays)
        inbox.when_idle(self._look_for_overdue)
        self._start_server(modules)

    def check(self, program: Program, parameters: Sequence[str] = ()) -> tuple[str, ...]:
        """Waits for the modules and tries the program's functions.

        Args:
            program: The program of the trials.
            parameters: Names of the search space, for the messages.

        Returns:
            Notes on the program, which works.

        Raises:
            LaunchError: If a function cannot be imported or called with a trial; worded to follow
                the name of the study file.
        """
        found = self._ask_child(program, parameters)
        if found.is_unsafe_to_preload:
            self._start_server([*_base_modules(program), *found.libraries])
        if found.problem:
            raise LaunchError(found.problem)
        return found.remarks

    def leaves_workers(self, process: ProcessIdentity) -> bool:
        return self._remains is not None and self._remains.are_left_by(process)

    def launch(self, requests: Sequence[LaunchRequest]) -> tuple[int, ...]:
        try:
            return tuple(self._start(request) for request in requests)
        except LaunchError:
            self._drop(self._of(requests[0].attempt_id))
            raise

    def _start(self, request: LaunchRequest) -> int:
        worker = self._spare() or self._fork()
        try:
            worker.requests.send(request)
        except OSError:
            # It died while it waited (it was killed); a new one has no such past.
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
            self._end_spares([spare])
        return None

    def _drop(self, keys: Collection[_Key]) -> None:
        """Kills workers without events for their exits; leaves those that do not end in time."""
        for attempt_id in {attempt_id for attempt_id, _ in keys}:
            self._signal(attempt_id, signal.SIGKILL)
        fork_server.join([self._workers[key].process for key in keys])
        for key in keys:
            if self._workers[key].process.exitcode is None:
                self._give_up(key)
            else:
                for _ in self._reap(key):
                    pass

    def free_port(self) -> int:
        return self._ports.take()

    def _fork(self) -> _Worker:
        try:
            try:
                return self._fork_once()
            except (EOFError, ConnectionError, TimeoutError):
                if not self._server.has_died():
                    raise
                # It was killed during the request, which is not the trial's fault.
                return self._fork_once()
        except (OSError, EOFError) as error:
            raise LaunchError(f"The process could not be started: {error}") from error

    def _fork_once(self) -> _Worker:
        reader, writer = self._server.pipe()
        try:
            process = self._server.fork(entry.wait, (reader, self._lifeline.path))
        except (OSError, EOFError):
            writer.close()
            raise
        finally:
            reader.close()
        assert process.pid is not None
        self.guard.watch(process.pid)
        server_pid = self._server.pid
        return _Worker(process=process, pid=process.pid, server_pid=server_pid, requests=writer)

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
        give_up_at_s = time.monotonic() + _GIVE_UP_S
        for key in self._of(attempt_id):
            self._give_up_at_s.setdefault(key, give_up_at_s)

    def close(self) -> None:
        self._end_spares(self._spares)
        self._spares.clear()
        self._drop(list(self._workers))
        if (pid := self._server.running_pid) is not None:
            end_all(pid, _STRAYS_S)
        self._server.close()
        self._leave_late()
        self._logs.close()
        self.guard.close()
        if self._remains and not self._late:
            self._remains.remove_own()
        self._lifeline.close()
        self._sockets.close()

    def _reap(self, key: _Key) -> Iterable[Event]:
        worker = self._take(key)
        # The fork server alone knows how a process ends; where it is gone, its pipe is empty, and
        # multiprocessing makes 255 of that. An empty pipe alone does not tell: at each start of
        # another process multiprocessing reads the exit codes that have come.
        is_empty = not n_readable(worker.process.sentinel)
        worker.process.join()
        exit_code = worker.process.exitcode
        # What the program started and left behind would keep the device.
        signal_group(worker.pid, signal.SIGKILL)
        self.guard.release(worker.pid)
        worker.process.close()
        yield WorkerExited(
            attempt_id=key[0],
            rank=key[1],
            exit_code=1 if exit_code is None else exit_code,
            is_lost=is_empty
            and exit_code == _NOBODY_KNOWS
            and fork_server.is_ending(worker.server_pid),
        )

    def _take(self, key: _Key) -> _Worker:
        """Removes a worker that has ended, or counts as ended, from its attempt."""
        worker = self._workers.pop(key)
        self._give_up_at_s.pop(key, None)
        self._inbox.forget(worker.process.sentinel)
        if worker.log_path is not None:
            self._logs.release(worker.log_path)
        if not self._of(key[0]):
            announced_stop.withdraw(self.folder, key[0])
        return worker

    def _look_for_overdue(self) -> bool:
        now_s = time.monotonic()
        if any(now_s >= give_up_at_s for give_up_at_s in self._give_up_at_s.values()):
            self._alarm_bell.send(b"\0")
        return False

    def _give_up_overdue(self) -> Iterable[Event]:
        self._alarm.recv(64)
        now_s = time.monotonic()
        for key, give_up_at_s in list(self._give_up_at_s.items()):
            if now_s >= give_up_at_s:
                self._give_up(key)
                yield WorkerExited(attempt_id=key[0], rank=key[1], exit_code=-signal.SIGKILL)

    def _give_up(self, key: _Key) -> None:
        """Leaves a worker that was killed: SIGKILL keeps it from running any more of its code."""
        worker = self._take(key)
        _log.warning(
            "A worker of attempt %s (pid %d) was killed and has not ended: not waited for",
            key[0],
            worker.pid,
        )
        self._late.append(worker)
        self._inbox.watch(worker.process.sentinel, partial(self._reap_late, worker))

    def _reap_late(self, worker: _Worker) -> Iterable[Event]:
        self._late.remove(worker)
        self._inbox.forget(worker.process.sentinel)
        self.guard.release(worker.pid)
        worker.process.join()
        worker.process.close()
        return ()

    def _leave_late(self) -> None:
        """Lets this process end although some workers have not."""
        for worker in self._late:
            fork_server.forget(worker.process)
            with contextlib.suppress(KeyError):
                self._inbox.forget(worker.process.sentinel)
        if self._alarm.fileno() >= 0:
            self._inbox.forget(self._alarm)
        self._alarm.close()
        self._alarm_bell.close()

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
        return end_strays(self._server.pid, workers, {key[0] for key in self._workers})

    def _end_spares(self, spares: Collection[_Worker]) -> None:
        """Ends waiting processes: they exit when their pipes close, else by SIGKILL."""
        for spare in spares:
            spare.requests.close()
        fork_server.join([spare.process for spare in spares])
        stubborn = [spare.process for spare in spares if spare.process.exitcode is None]
        fork_server.kill(stubborn)
        for spare in spares:
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

    def _ask_child(self, program: Program, parameters: Sequence[str]) -> entry.ProgramCheck:
        give_up_at_s = time.monotonic() + fork_server.IMPORT_S
        reader, writer = self._server.pipe()
        try:
            try:
                arguments = (program, parameters, writer, self._lifeline.path)
                process = self._server.fork(entry.check, arguments)
            finally:
                writer.close()
            found = _answer(reader, give_up_at_s, process)
        except TimeoutError as error:
            raise LaunchError(
                f"Importing the program took more than {fork_server.IMPORT_S:.0f} s. "
                f"What it printed is in {self._log_path}."
            ) from error
        except (EOFError, OSError) as error:
            raise LaunchError(
                "The process that imports the program died. What it printed is in "
                f"{self._log_path}."
            ) from error
        assert isinstance(found, entry.ProgramCheck)
        return found

    def _start_server(self, modules: Sequence[str]) -> None:
        self._server.start(
            {
                **self._environment,
                preload.ENV_MODULES: ",".join(modules),
                preload.ENV_SYS_PATH: os.pathsep.join([*self._import_path, *sys.path]),
                preload.ENV_LOG: str(self._log_path),
                preload.ENV_LIFELINE: str(self._lifeline.path),
                preload.ENV_DISPATCHER: str(self._dispatcher_file or ""),
            }
        )


def modules_of(program: Program) -> list[str]:
    """Modules to import before the first fork: the worker, and the user's modules."""
    modules = _base_modules(program)
    if isinstance(program, FunctionProgram):
        modules.append(program.module)
    if program.space:
        modules.append(program.space.partition(":")[0])
    return modules


def _base_modules(program: Program) -> list[str]:
    if isinstance(program, FunctionProgram):
        return [entry.__name__, entry.FUNCTION_WORKER]
    if program.space:
        # The trial that is passed to the function; it would be imported in each fork.
        return [entry.__name__, entry.COMMAND_WORKER, entry.FUNCTION_WORKER]
    return [entry.__name__, entry.COMMAND_WORKER]


def _answer(reader: Connection, give_up_at_s: float, process: ForkServerProcess) -> object:
    """The message of a process, which then ends or is killed.

    Raises:
        TimeoutError: If it sends nothing in time.
        EOFError: If it dies.
    """
    try:
        if not reader.poll(max(0.0, give_up_at_s - time.monotonic())):
            raise TimeoutError
        answer: object = reader.recv()
    except BaseException:
        fork_server.kill([process])
        raise
    # Threads of the user's modules may keep it from ending.
    fork_server.join([process])
    if process.exitcode is None:
        fork_server.kill([process])
    return answer
