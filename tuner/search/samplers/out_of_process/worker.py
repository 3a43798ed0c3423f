"""Makes slow suggestions in a process of its own.

    python -m tuner.search.samplers.out_of_process.worker FD

It exits when the other end of its socket is closed, for any reason.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import pickle
import signal
import sys
import time
import traceback
import warnings
from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from types import FrameType
from typing import Any, cast

import optuna
from optuna.exceptions import ExperimentalWarning
from optuna.samplers import GPSampler
from optuna.study import StudyDirection
from optuna.trial import FrozenTrial, TrialState

from tuner.search.samplers.curve_gp.sampler import CurveGPSampler
from tuner.search.samplers.out_of_process.client import (
    Answer,
    Failure,
    Request,
    SlowSampler,
    Suggestion,
)
from tuner.store.optuna_compat import GP_MODULES

#: Modules that the sampler imports at its first suggestion, which takes seconds.
_IMPORTS: Mapping[type[SlowSampler], Sequence[str]] = {
    GPSampler: GP_MODULES,
    CurveGPSampler: ("tuner.search.samplers.curve_gp.gaussian_process",),
}


@dataclass(kw_only=True)
class _GivenStudy:
    """The part of a study's interface that a sampler uses, built from a request."""

    directions: Sequence[StudyDirection]
    trials: Sequence[FrozenTrial]
    system_attrs: dict[str, Any] = field(default_factory=dict)

    @property
    def _storage(self) -> _GivenStudy:
        return self

    def _is_multi_objective(self) -> bool:
        return len(self.directions) > 1

    def set_trial_system_attr(self, trial_id: int, key: str, value: Any) -> None:
        self.system_attrs[key] = value

    def _get_trials(
        self,
        deepcopy: bool = True,
        states: Container[TrialState] | None = None,
        use_cache: bool = False,
    ) -> list[FrozenTrial]:
        return [each for each in self.trials if states is None or each.state in states]


def answer(sampler: SlowSampler, request: Request) -> Answer:
    """Makes one suggestion; an error is returned as an answer."""
    began_s = time.monotonic()
    given = _GivenStudy(directions=request.directions, trials=request.trials)
    study = cast(optuna.Study, given)
    trial = optuna.trial.create_trial(state=TrialState.RUNNING)
    try:
        params = sampler.sample_relative(study, trial, dict(request.space))
    # The edge of this process: the dispatcher raises it.
    except Exception as error:
        return Failure(error=_picklable(error), trace=traceback.format_exc())
    took_s = time.monotonic() - began_s
    return Suggestion(params=params, system_attrs=given.system_attrs, took_s=took_s)


def _picklable(error: Exception) -> Exception:
    try:
        pickle.loads(pickle.dumps(error))
    # Independent of what an error's own class does when it is recreated.
    except Exception:
        return RuntimeError(f"{type(error).__name__}: {error}")
    return error


def serve(connection: Connection) -> None:
    """Serves requests until the other end is closed; first sends None once it is ready."""
    sampler: SlowSampler = connection.recv()
    for module in _IMPORTS[type(sampler)]:
        importlib.import_module(module)
    import torch

    # Two threads that share a busy core wait for each other: 7 s a suggestion in place of 0.5 s.
    torch.set_num_threads(1)
    connection.send(None)
    while True:
        connection.send(answer(sampler, connection.recv()))


def _outlive_sigterm() -> None:
    """Ignores a batch system's SIGTERM: the dispatcher decides what ends."""
    dispatcher = os.getppid()

    def leave_if_alone(_number: int, _frame: FrameType | None) -> None:
        if os.getppid() != dispatcher:
            # It may be about to end by itself, where an exception would be printed.
            os._exit(1)

    signal.signal(signal.SIGTERM, leave_if_alone)


def main() -> None:
    _outlive_sigterm()
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    # An experimental sampler in a study file was chosen deliberately.
    warnings.simplefilter("ignore", ExperimentalWarning)
    with contextlib.suppress(EOFError, ConnectionError), Connection(int(sys.argv[1])) as connection:
        serve(connection)


if __name__ == "__main__":
    main()
