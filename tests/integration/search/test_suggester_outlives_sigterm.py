"""SIGTERM to every process of a job leaves the process that makes suggestions to the dispatcher."""

from __future__ import annotations

import os
import signal

from optuna import create_study
from optuna.distributions import FloatDistribution
from optuna.samplers import GPSampler

from tuner.search.samplers.out_of_process.client import Request, Suggester, Suggestion


def test_it_goes_on_making_suggestions() -> None:
    suggester = Suggester(GPSampler(seed=1))
    try:
        while not suggester.is_awake:
            suggester.receive(1.0)
        os.kill(suggester.pid, signal.SIGTERM)
        study = create_study()
        suggester.ask(
            Request(
                directions=study.directions, trials=[], space={"x": FloatDistribution(0.0, 1.0)}
            )
        )
        while (made := suggester.take()) is None:
            suggester.receive(1.0)
        assert isinstance(made, Suggestion)
    finally:
        suggester.close()
