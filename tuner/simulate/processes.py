"""Plays simulated studies side by side, each on a processor of its own."""

from __future__ import annotations

import functools
import multiprocessing
import signal
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import closing, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import optuna

from tuner.config import PrunerConfig
from tuner.launch.inherited import environment, no_main_module
from tuner.launch.lifeline import Lifeline, hold
from tuner.simulate.run import Simulated

Case = tuple[PrunerConfig, int]
"""A pruner and a seed."""

#: Threads of as many processes as there are processors wait for each other.
_ONE_THREAD = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
_play: Callable[[Case], Simulated]


def play_all(
    play: Callable[..., Simulated], cases: Sequence[Case], *, n_processes: int
) -> Iterator[Simulated]:
    """
    Args:
        play: Takes `pruner` and `seed`; has to be picklable.
        cases: What is played.
        n_processes: With one, or for one case, it is played in this process.

    Yields:
        What came of each case, in their order.
    """
    n_processes = min(n_processes, len(cases))
    one = functools.partial(_played, play)
    if n_processes <= 1:
        yield from map(one, cases)
        return
    with _workers(one, n_processes) as workers:
        yield from workers.map(_play_here, cases)


def _played(play: Callable[..., Simulated], case: Case) -> Simulated:
    pruner, seed = case
    return play(pruner=pruner, seed=seed)


@contextmanager
def _workers(play: Callable[[Case], Simulated], n: int) -> Iterator[ProcessPoolExecutor]:
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([_played.__module__])
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
            # Else what is under way would go on to its end first.
            workers.shutdown(wait=False, cancel_futures=True)
            lifeline.close()
            raise


def _begin(play: Callable[[Case], Simulated], lifeline: Path) -> None:
    """Makes ready a process that ends with the one that has started it."""
    global _play
    _play = play
    # Ctrl-C is for the process that shows the results.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    # The process that has started it says what there is to say.
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    hold(lifeline, is_alone=True)


def _play_here(case: Case) -> Simulated:
    return _play(case)
