"""`tuner.current()`: one training script, under the tuner and alone."""

from __future__ import annotations

import atexit
import contextlib
import os
import signal
import sys
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from optuna.distributions import BaseDistribution

from tuner.domain.attempt import AttemptId
from tuner.domain.messages import Assign, Json, RemarkTopic, StudyPlace
from tuner.errors import ChannelClosed
from tuner.launch.request import ENV_ATTEMPT, ENV_CHANNEL, ENV_STORAGE, ENV_STUDY, ENV_TOKEN
from tuner.trials import active
from tuner.trials.context import TrialContext
from tuner.trials.profiling import begin_trace
from tuner.trials.worker.link import DispatcherLink
from tuner.trials.worker.termination import Termination


def current(
    defaults: Mapping[str, Any] | None = None,
    *,
    storage: str | None = None,
    study: str | None = None,
) -> TrialContext:
    """Returns the trial that this script evaluates.

    Under the tuner this is the assigned trial. If the script runs alone, it is a trial with the
    best configuration of a stored study, or with the defaults if no database is named. Reports
    are then printed, and nothing is pruned. Under `torchrun` and `mpirun` every rank may call it:
    all ranks are pruned at the same step, and only rank 0 reports.

    Args:
        defaults: Parameters for a run without the tuner. Those of the best trial override them.
        storage: URL of the database; the default is the environment variable `TUNER_STORAGE`.
        study: Name of the study; the default is `TUNER_STUDY`, or the only study of the database.

    Raises:
        StoreError: If the database or the study does not exist, or no trial has completed.
    """
    if active.context is None:
        _take_ranks_of_mpi()
        if ENV_CHANNEL in os.environ:
            active.context = _assigned()
            begin_trace(active.context)
        else:
            active.context = _alone(
                defaults or {},
                storage or os.environ.get(ENV_STORAGE),
                study or os.environ.get(ENV_STUDY),
            )
        atexit.register(_finish_saving, active.context)
    return active.context


def _take_ranks_of_mpi() -> None:
    """Under mpirun: sets the variables of torchrun from those of Open MPI."""
    if "RANK" in os.environ or "OMPI_COMM_WORLD_RANK" not in os.environ:
        return
    for name in ("RANK", "LOCAL_RANK"):
        os.environ[name] = os.environ[f"OMPI_COMM_WORLD_{name}"]
    os.environ["WORLD_SIZE"] = os.environ["OMPI_COMM_WORLD_SIZE"]
    os.environ["LOCAL_WORLD_SIZE"] = os.environ["OMPI_COMM_WORLD_LOCAL_SIZE"]


def _finish_saving(context: TrialContext) -> None:
    if context.trace is not None:
        context.trace.finish()
    if (error := context.checkpoints.settle()) is not None:
        print(f"The last checkpoint could not be saved: {error}", file=sys.stderr)


def _assigned() -> TrialContext:
    termination = _handle_sigterm()
    link = DispatcherLink(
        os.environ[ENV_CHANNEL],
        AttemptId(os.environ[ENV_ATTEMPT]),
        os.environ[ENV_TOKEN],
        None,
        rank=_rank(),
        world_size=int(os.environ.get("WORLD_SIZE", "1")),
        termination=termination,
    )
    atexit.register(_send_rest, link)
    return TrialContext(link.assign, link)


def _send_rest(link: DispatcherLink) -> None:
    """Sends reports that the dispatcher did not read in time."""
    with contextlib.suppress(ChannelClosed):
        link.flush()


def _handle_sigterm() -> Termination | None:
    """Takes a batch system's SIGTERM as an end at the next step, unless the script handles it."""
    is_handled = signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL
    if is_handled or threading.current_thread() is not threading.main_thread():
        return None
    termination = Termination(os.environ, _end_by_sigterm, rank=_rank())
    termination.install()
    return termination


def _end_by_sigterm() -> None:
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    signal.raise_signal(signal.SIGTERM)


def _alone(defaults: Mapping[str, Any], storage: str | None, study: str | None) -> TrialContext:
    params = dict(defaults)
    objectives: tuple[str, ...] = ("value",)
    number, seed = 0, 0
    if storage:
        from tuner.queries.results.best import load_best

        best = load_best(storage, study)
        params |= best.params
        objectives, number, seed = tuple(best.values), best.trial_number, best.seed
        study = best.study
    assign = Assign(
        attempt_id=AttemptId(f"{number}.0"),
        trial_number=number,
        attempt_number=0,
        params=params,
        seed=seed,
        # Each configuration its own: the state of one does not fit the network of another.
        checkpoint_dir=f"checkpoints/trial-{number}" if storage else "checkpoints/defaults",
        objectives=objectives,
        devices=_visible_devices(),
    )
    place = StudyPlace(attempt_id=assign.attempt_id, study=study or "", storage=storage or "")
    return TrialContext(assign, _PrintingLink(place, is_silent=_rank() > 0))


def _rank() -> int:
    return int(os.environ.get("RANK", "0"))


def _visible_devices() -> tuple[str, ...]:
    torch = sys.modules.get("torch")
    n_gpus = torch.cuda.device_count() if torch is not None else 0
    return tuple(f"GPU {index}" for index in range(n_gpus)) or ("cpu:0",)


class _PrintingLink:
    """A link without a dispatcher: prints reports, never prunes, requires known parameters."""

    def __init__(self, place: StudyPlace, *, is_silent: bool) -> None:
        self._place = place
        self._is_silent = is_silent

    def report(self, step: int, values: Mapping[str, float], metrics: Mapping[str, float]) -> None:
        if self._is_silent:
            return
        numbers = {**values, **metrics}
        print(f"step {step}: " + ", ".join(f"{k} {v:.6g}" for k, v in numbers.items()), flush=True)

    def should_stop(self) -> bool:
        return False

    def suggest(self, name: str, distribution: BaseDistribution) -> Json:
        """Refuses an unknown parameter.

        Raises:
            KeyError: Always; a run alone has no sampler.
        """
        raise KeyError(
            f"This run has no tuner, and parameter {name!r} is in neither the defaults nor a "
            "stored study. Give tuner.current(defaults={...}) a value, or name a storage."
        )

    def range_in_code(self, name: str, distribution: BaseDistribution) -> None:
        """Does nothing: there is no study file."""

    def study_place(self) -> StudyPlace:
        return self._place

    def stop_study(self) -> None:
        """Nothing runs that could be stopped."""

    def remark(self, topic: RemarkTopic, text: str) -> None:
        if not self._is_silent:
            print(text, flush=True)

    def states_damaged(self, paths: Sequence[Path], step: int | None) -> None:
        """Does nothing: a message was printed already."""

    def set_attribute(self, key: str, value: Json) -> None:
        """Not kept."""

    def set_constraint(self, key: str, value: float) -> None:
        """Not kept."""
