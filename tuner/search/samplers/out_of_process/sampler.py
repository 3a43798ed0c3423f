"""A sampler for slow suggestions: another process makes them, and they are fetched when ready.

A caller that checks `is_ready` first is never blocked; others wait.
"""

from __future__ import annotations

import copy
import logging
import math
from collections.abc import Mapping, Sequence
from typing import Any

import optuna
from optuna.distributions import BaseDistribution
from optuna.samplers import BaseSampler, GPSampler
from optuna.trial import FrozenTrial, TrialState, create_trial

from tuner.search.samplers.bounded import BoundedSampler
from tuner.search.samplers.curve_gp.points import is_informative, thinned
from tuner.search.samplers.curve_gp.sampler import CurveGPSampler
from tuner.search.samplers.out_of_process.client import (
    Answer,
    Failure,
    Request,
    SlowSampler,
    Suggester,
    SuggesterLost,
)
from tuner.search.samplers.wrapper import SamplerAround
from tuner.search.trial_attributes.vector_curve import has_diverged
from tuner.store.optuna_compat import (
    independent_sampler_of,
    n_startup_trials_of,
    storage_of,
    trial_id_of,
    trials_of,
)

_log = logging.getLogger(__name__)

_RUNNING = TrialState.RUNNING


class OutOfProcessSampler(SamplerAround):
    """Makes the suggestions of a Gaussian process in another process.

    Only joint suggestions of all parameters are made there. Single parameters, for the first trials
    or in a changing space, are cheap and drawn here; so are those of at most as many further trials
    while the process still imports torch and other trials run.

    Args:
        bounded: Selects the trials that the sampler is shown.
        inner: The sampler. Its copy in the other process makes the suggestions; this one does if
            that process was killed.
    """

    def __init__(self, bounded: BoundedSampler, inner: SlowSampler) -> None:
        super().__init__(bounded)
        self._bounded = bounded
        self._inner = inner
        self._suggester = Suggester(inner)
        #: Whether the process is gone: suggestions are made here then, and hold the loop up.
        self.is_lost = False
        #: For which space the suggestion is that is in the making, or ready.
        self._space: Mapping[str, BaseDistribution] | None = None
        self._ready: Answer | None = None
        #: Trials that were left to chance because the process was not awake yet.
        self._n_stand_ins = 0
        self._stands_in = False
        #: Seconds that the newest suggestion took there.
        self.took_s = 0.0

    @property
    def pid(self) -> int:
        """Id of the process, which leads a process group of its own."""
        return self._suggester.pid

    def fileno(self) -> int:
        """File descriptor, readable when a message has arrived or the process is gone."""
        return self._suggester.fileno()

    def is_ready(self, study: optuna.Study) -> bool:
        """Whether the next trial's parameters are available; starts a suggestion if not."""
        self.receive()
        if self._ready is not None or self.is_lost:
            return True
        is_new = self._space is None
        if is_new:
            trials = self._bounded.shown(study)
            space = self._bounded.infer_relative_search_space(study, create_trial(state=_RUNNING))
            if self._is_left_to_chance(trials, space):
                return True
        self._stands_in = self._may_stand_in(study)
        if is_new and not self._stands_in:
            self._begin(study, trials, space)
        return self._stands_in

    def receive(self) -> None:
        """Takes a suggestion in that was made meanwhile."""
        self._receive(timeout_s=0.0)

    def close(self) -> None:
        """Ends the process. Safe to call twice."""
        self._suggester.close()

    # -- as Optuna calls it ------------------------------------------------------------------

    def sample_relative(
        self, study: optuna.Study, trial: FrozenTrial, search_space: dict[str, BaseDistribution]
    ) -> dict[str, Any]:
        if self._stands_in:
            self._stands_in = False
            self._n_stand_ins += 1
            return self._drawn(study, trial, search_space)
        made = self._take(study, search_space)
        if made is None:
            return super().sample_relative(study, trial, search_space)
        if isinstance(made, Failure):
            made.error.add_note(made.trace)
            raise made.error
        self.took_s = made.took_s
        for key, value in made.system_attrs.items():
            storage_of(study).set_trial_system_attr(trial_id_of(trial), key, value)
        return dict(made.params)

    # -- inside ------------------------------------------------------------------------------

    def _take(self, study: optuna.Study, space: dict[str, BaseDistribution]) -> Answer | None:
        """The suggestion for this space, after a wait if needed; None if it is made here."""
        self._wait()
        if self._space != space:
            self._space = self._ready = None
            trials = self._bounded.shown(study)
            if self._is_left_to_chance(trials, space):
                return None
            self._begin(study, trials, space)
            self._wait()
        made, self._ready, self._space = self._ready, None, None
        return made

    def _is_left_to_chance(
        self, trials: Sequence[FrozenTrial], space: Mapping[str, BaseDistribution]
    ) -> bool:
        if isinstance(self._inner, CurveGPSampler):
            n_known = sum(map(is_informative, trials))
        else:
            n_known = sum(trial.state is TrialState.COMPLETE for trial in trials)
        return not space or n_known < self._n_startup_trials

    @property
    def _n_startup_trials(self) -> int:
        if isinstance(self._inner, CurveGPSampler):
            return self._inner.n_startup_trials
        return n_startup_trials_of(self._inner)

    def _drawn(
        self, study: optuna.Study, trial: FrozenTrial, space: Mapping[str, BaseDistribution]
    ) -> dict[str, Any]:
        """At random. Left to `sample_independent`, Optuna would warn of a space that changes."""
        if isinstance(self._inner, CurveGPSampler):
            random: BaseSampler = self._inner.independent
        else:
            random = independent_sampler_of(self._inner)
        return {
            name: random.sample_independent(study, trial, name, distribution)
            for name, distribution in space.items()
        }

    def _may_stand_in(self, study: optuna.Study) -> bool:
        """Whether chance may take the place of a process that is not awake yet.

        One trial after the other is the same with the same seed, however long the imports take.
        """
        if self._suggester.is_awake or self._n_stand_ins >= self._n_startup_trials:
            return False
        return bool(trials_of(study, states=(_RUNNING,)))

    def _begin(
        self,
        study: optuna.Study,
        trials: Sequence[FrozenTrial],
        space: Mapping[str, BaseDistribution],
    ) -> None:
        with_curve = isinstance(self._inner, CurveGPSampler)
        shown = [bare(each, with_curve=with_curve) for each in trials]
        request = Request(directions=study.directions, trials=shown, space=space)
        self._space = space
        try:
            self._suggester.ask(request)
        except SuggesterLost:
            self._lose()

    def _wait(self) -> None:
        while self._space is not None and self._ready is None and not self.is_lost:
            self._receive(timeout_s=None)

    def _receive(self, timeout_s: float | None) -> None:
        if self.is_lost:
            return
        try:
            self._suggester.receive(timeout_s)
        except SuggesterLost:
            self._lose()
        self._ready = self._suggester.take() or self._ready

    def _lose(self) -> None:
        _log.warning("The process that makes suggestions was ended; they are made here now.")
        self.is_lost = True
        if self._ready is None:
            self._space = None


def out_of_process(sampler: BaseSampler) -> OutOfProcessSampler | None:
    """The sampler with a process for its suggestions; None if these are fast."""
    if isinstance(sampler, BoundedSampler) and isinstance(
        sampler.inner, GPSampler | CurveGPSampler
    ):
        return OutOfProcessSampler(sampler, sampler.inner)
    return None


def bare(trial: FrozenTrial, *, with_curve: bool) -> FrozenTrial:
    """A copy without large data that a Gaussian process never uses.

    Args:
        trial: The trial, which is not changed.
        with_curve: Whether its reports are used.
    """
    copied = copy.copy(trial)
    copied.intermediate_values = thinned(trial) if with_curve else {}
    if with_curve and trial.intermediate_values and has_diverged(trial):
        copied.intermediate_values[max(trial.intermediate_values)] = math.nan
    copied.user_attrs = {}
    return copied
