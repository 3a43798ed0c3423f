"""A sampler with bounded history: the cost of a suggestion does not grow with the study.

It wraps one of Optuna's samplers and gives it another view of the study; see
`tuner.search.samplers.history_views` for its content. Pruners, importances and other readers of the
study see all trials.
"""

from __future__ import annotations

import copy
import functools
from collections.abc import Callable, Container, Iterator
from typing import Any, cast

import optuna
from optuna.distributions import BaseDistribution
from optuna.samplers import BaseSampler
from optuna.trial import FrozenTrial, TrialState

from tuner.search.samplers.history_views import SHOWN, Shown
from tuner.search.samplers.wrapper import SamplerAround
from tuner.store.optuna_compat import storage_of, study_id_of, trials_of
from tuner.store.optuna_tables.curves.lazy_curve import read_ahead


def bounded(sampler: BaseSampler, *, seed: int) -> BaseSampler:
    """The sampler with a bounded history, if a bound exists for its class.

    Args:
        sampler: One of Optuna's samplers.
        seed: Seed of the uniform sample of trials.
    """
    choose = SHOWN.get(type(sampler))
    if choose is None:
        return sampler
    return BoundedSampler(sampler, functools.partial(choose, sampler, seed))


class BoundedSampler(SamplerAround):
    """Shows a sampler of Optuna's a bounded number of finished trials.

    Args:
        inner: Makes the suggestions. For one study, like most of Optuna's samplers.
        choose: Selects the trials of that study to show.
    """

    def __init__(self, inner: BaseSampler, choose: Callable[[optuna.Study], Shown]) -> None:
        super().__init__(inner)
        self._choose = choose
        self._shown: Shown | None = None
        self._n_seen = 0
        self._unfinished: dict[int, FrozenTrial] = {}

    def infer_relative_search_space(
        self, study: optuna.Study, trial: FrozenTrial
    ) -> dict[str, BaseDistribution]:
        return super().infer_relative_search_space(self._bounded(study), trial)

    def sample_relative(
        self, study: optuna.Study, trial: FrozenTrial, search_space: dict[str, BaseDistribution]
    ) -> dict[str, Any]:
        return super().sample_relative(self._bounded(study), trial, search_space)

    def sample_independent(
        self,
        study: optuna.Study,
        trial: FrozenTrial,
        param_name: str,
        param_distribution: BaseDistribution,
    ) -> Any:
        study = self._bounded(study)
        return super().sample_independent(study, trial, param_name, param_distribution)

    def shown(self, study: optuna.Study) -> list[FrozenTrial]:
        """The trials that the sampler is shown, in the order of their numbers."""
        if self._shown is None:
            self._shown = self._choose(study)
        for trial in self._changed(study):
            if trial.state.is_finished():
                self._shown.add(trial)
            else:
                self._shown.see(trial)
        return sorted([*self._shown, *self._shown.unfinished], key=lambda each: each.number)

    def _bounded(self, study: optuna.Study) -> optuna.Study:
        # A sampler that draws what another one cannot is not bound by the other's rules.
        whole = study.whole if isinstance(study, _BoundedStudy) else study
        trials = self.shown(whole)
        assert self._shown is not None
        # The only ones whose curves a sampler looks at.
        read_ahead(each.intermediate_values for each in trials if each.state is TrialState.PRUNED)
        return cast(optuna.Study, _BoundedStudy(whole, trials, is_whole=self._shown.by_id))

    def _changed(self, study: optuna.Study) -> Iterator[FrozenTrial]:
        """Trials that are new or have changed since the last call; finished trials never change."""
        for trial_id in [*self._unfinished, *self._new_ids(study)]:
            trial = storage_of(study).get_trial(trial_id)
            if trial.state.is_finished():
                self._unfinished.pop(trial_id, None)
                yield trial
            elif self._unfinished.get(trial_id) is not trial:
                self._unfinished[trial_id] = trial
                yield trial

    def _new_ids(self, study: optuna.Study) -> Iterator[int]:
        # By number, because a list of all trials takes milliseconds to copy.
        storage, study_id = storage_of(study), study_id_of(study)
        while True:
            try:
                yield storage.get_trial_id_from_study_id_trial_number(study_id, self._n_seen)
            except KeyError:
                return
            self._n_seen += 1


class _BoundedStudy:
    """A study as a sampler is shown it; all but its trials is the study's own."""

    def __init__(self, whole: optuna.Study, trials: list[FrozenTrial], *, is_whole: bool) -> None:
        self.whole = whole
        self._trials = trials
        self._is_whole = is_whole

    def __getattr__(self, name: str) -> Any:
        return getattr(self.whole, name)

    def _get_trials(
        self,
        deepcopy: bool = True,
        states: Container[TrialState] | None = None,
        use_cache: bool = False,
    ) -> list[FrozenTrial]:
        if states is None and self._is_whole:
            return trials_of(self.whole, deepcopy=deepcopy, use_cache=use_cache)
        trials = [each for each in self._trials if states is None or each.state in states]
        return copy.deepcopy(trials) if deepcopy else trials
