"""What every attempt's process does, whatever its program: set itself up, connect, leave."""

from __future__ import annotations

import atexit
import contextlib
import multiprocessing.util
import os
import signal
import sys
from collections.abc import Callable, Sequence
from typing import NoReturn

from tuner.domain.attempt import Cause, Outcome
from tuner.domain.messages import Finished
from tuner.launch.descriptors import ENV_SOFT_LIMIT, give_back_limit
from tuner.launch.local_host import preload
from tuner.launch.request import (
    ENV_CHANNEL,
    ENV_OPENMP_THREADS,
    ENV_TOKEN,
    OPENMP_VARIABLES,
    LaunchRequest,
)
from tuner.trials.worker.link import DispatcherLink
from tuner.trials.worker.termination import REASON, Termination

EXIT_OK = 0
EXIT_TERMINATED = 128 + signal.SIGTERM
EXIT_DISPATCHER_GONE = 75


def settle(request: LaunchRequest, leave: Callable[[], None]) -> Termination:
    """Sets up this process's output, environment, folder and SIGTERM handler.

    Args:
        request: The launch request.
        leave: Called by a SIGTERM that ends this process.
    """
    # Those of the fork server; torch's alone cost 40 ms at the end of each trial.
    atexit._clear()
    for handler in preload.exit_handlers:
        atexit.register(handler)
    # A process that comes from a fork server would start its own processes through another one:
    # slower, and only with what can be pickled.
    multiprocessing.set_start_method(preload.start_method, force=True)
    log = os.open(request.log_path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    for stream in (sys.stdout.fileno(), sys.stderr.fileno()):
        os.dup2(log, stream)
    os.close(log)
    for text in (sys.stdout, sys.stderr):
        text.reconfigure(line_buffering=True)  # type: ignore[union-attr]
    if wanted := os.environ.pop(ENV_OPENMP_THREADS, None):
        os.environ.update(dict.fromkeys(OPENMP_VARIABLES, wanted))
    if soft_limit := os.environ.pop(ENV_SOFT_LIMIT, None):
        give_back_limit(int(soft_limit))
    os.environ.update(request.environment)
    stay_near(request.cores)
    os.chdir(request.folder)
    termination = Termination(request.environment, leave, rank=request.rank)
    termination.install()
    return termination


def stay_near(cores: Sequence[int]) -> None:
    """Keeps to the cores nearest to the devices, as far as this process may use them."""
    # macOS has no affinity masks.
    if hasattr(os, "sched_setaffinity") and (near := os.sched_getaffinity(0) & set(cores)):
        os.sched_setaffinity(0, near)


def connect(request: LaunchRequest, termination: Termination, *, world_size: int) -> DispatcherLink:
    """Connects to the dispatcher.

    Args:
        request: The launch request.
        termination: Knows whether this process received a SIGTERM.
        world_size: Number of ranks that act alike at each step; 1 for a process that runs a
            command.
    """
    return DispatcherLink(
        request.environment[ENV_CHANNEL],
        request.attempt_id,
        request.environment[ENV_TOKEN],
        request.assign,
        rank=request.rank,
        world_size=world_size,
        termination=termination,
    )


def leave(code: int) -> NoReturn:
    """Exits without the interpreter's teardown: the next trial needs the devices.

    Exit handlers of the user's code still run, and child processes are ended.
    """
    atexit._run_exitfuncs()
    multiprocessing.util._exit_function()  # type: ignore[attr-defined]  # joins data loaders
    for text in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError):
            text.flush()
    os._exit(code)


def cancelled(link: DispatcherLink) -> Finished:
    """The ending of a process that received a SIGTERM from outside the tuner."""
    return Finished(
        attempt_id=link.assign.attempt_id,
        outcome=Outcome.CANCELLED,
        cause=Cause.SIGNAL,
        detail=REASON,
    )
