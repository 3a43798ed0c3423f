"""Plays simulated studies in parallel, each on a processor of its own."""

from __future__ import annotations

import functools
import multiprocessing
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import closing, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import optuna

from tuner.config import PrunerConfig
from tuner.launch.local_host.fork_server import environment, no_main_module
from tuner.launch.local_host.lifeline import Lifeline, hold
from tuner.simulate.run import Simulated

Case = tuple[PrunerConfig, int]
"""A pruner and a seed."""

#: Threads of as many processes as there are processors wait for each other.
_ONE_THREAD = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
_play: Callable[[Case], Simulated]


def play_all(
    play: Callable[..., Simulated], cases: Sequence[Case], *, n_processes: int
) -> Iterator[Simulated]:
    """Runs simulations in parallel.

    Args:
        play: Takes `pruner` and `seed`; must be picklable.
        cases: The cases to simulate.
        n_processes: With one, or for one case, this process simulates.

    Yields:
        The result of each case, in order.
    """
    n_processes = min(n_processes, len(cases))
    one = functools.partial(_played, play)
    if n_processes <= 1:
        yield from map(one, cases)
        return
    with _workers(one, n_processes) as workers:
        # Not `map`, which cancels what is left while the pool itself fails it: a traceback.
        with _undisturbed():
            futures = [workers.submit(_play_here, case) for case in cases]
        yield from (future.result() for future in futures)


def _played(play: Callable[..., Simulated], case: Case) -> Simulated:
    pruner, seed = case
    return play(pruner=pruner, seed=seed)


@contextmanager
def _workers(play: Callable[[Case], Simulated], n: int) -> Iterator[ProcessPoolExecutor]:
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([_played.__module__])
    others = set(multiprocessing.active_children())
    with (
        TemporaryDirectory(prefix="tuner-simulate-") as folder,
        closing(Lifeline(Path(folder))) as lifeline,
        environment(_ONE_THREAD),
        no_main_module(),
        ProcessPoolExecutor(
            n, mp_context=context, initializer=_begin, initargs=(play, lifeline.path)
        ) as workers,
    ):
        try:
            yield workers
        except BaseException:
            # The pool waits for all that was submitted, unless it is broken.
            for process in set(multiprocessing.active_children()) - others:
                process.kill()
            raise


@contextmanager
def _undisturbed() -> Iterator[None]:
    """Delays Ctrl-C: during its start a process would receive an incomplete request.

    By a handler. A blocked signal would not be delayed: `multiprocessing` unblocks SIGINT when it
    starts its resource tracker, which happens here.
    """
    if threading.current_thread() is not threading.main_thread():
        yield  # Ctrl-C interrupts the main thread alone.
        return
    heard: list[int] = []
    before = signal.signal(signal.SIGINT, lambda number, _frame: heard.append(number))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
        if heard:
            signal.raise_signal(signal.SIGINT)


def _begin(play: Callable[[Case], Simulated], lifeline: Path) -> None:
    """Prepares a process that ends with its parent."""
    global _play
    _play = play
    # Ctrl-C is for the process that shows the results.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    # The process that has started it says what there is to say.
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    hold(lifeline, is_alone=True)


def _play_here(case: Case) -> Simulated:
    return _play(case)
