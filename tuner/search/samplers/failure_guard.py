"""Replaces a suggestion by a random one if the sampler raises an error."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import optuna
from optuna.distributions import BaseDistribution
from optuna.samplers import BaseSampler, RandomSampler
from optuna.trial import FrozenTrial
from sqlalchemy.exc import SQLAlchemyError

from tuner.errors import TunerError
from tuner.search.samplers.resumable import GridSampler
from tuner.search.samplers.wrapper import SamplerAround
from tuner.store.optuna_compat import trial_id_of
from tuner.store.records.dispatchers.ownership import NoTrialLeft

_log = logging.getLogger(__name__)

#: Consecutive trials without a suggestion after which the study stops. A single failure may depend
#: on the results so far; beyond this the study would silently be a random search.
MOST_IN_A_ROW = 10
#: Not the sampler's: the database, the end of the study, a mistake in the study file.
_NOT_OF_THE_SAMPLER = (TunerError, SQLAlchemyError, NoTrialLeft)


class SamplerGuard:
    """Guards the methods of a sampler against errors.

    The sampler keeps its type: its methods are replaced on the object. A grid is not guarded,
    because a random point is not on the grid.

    Args:
        sampler: Makes the suggestions.
        give_up: Called once too many trials in a row got no suggestion from the sampler.
    """

    def __init__(self, sampler: BaseSampler, give_up: Callable[[], None]) -> None:
        self._name = _name_of(sampler)
        self._give_up = give_up
        self._random = RandomSampler(seed=0)
        self._told: set[str] = set()
        self._notes: list[str] = []
        self._trial_id: int | None = None
        self._has_failed = False
        self._n_in_a_row = 0
        #: Why no further trial is suggested; empty if the sampler may continue.
        self.why_given_up = ""
        if not isinstance(sampler, GridSampler):
            self._take_place(sampler)

    def take_notes(self) -> list[str]:
        """Messages to show since the last call."""
        notes, self._notes = self._notes, []
        return notes

    def _take_place(self, sampler: BaseSampler) -> None:
        replacements: dict[str, Callable[..., object]] = {
            "before_trial": self._before,
            "infer_relative_search_space": self._infer,
            "sample_relative": self._relative,
            "sample_independent": self._independent,
            "after_trial": self._after,
        }
        for name, guarded in replacements.items():
            setattr(sampler, name, partial(guarded, getattr(sampler, name)))

    # -- in place of the sampler's methods ---------------------------------------------------

    def _before(self, own: Callable[..., None], study: optuna.Study, trial: FrozenTrial) -> None:
        try:
            self._begin(trial)
            own(study, trial)
        except Exception as error:
            self._note(error, is_counted=True)

    def _infer(
        self, own: Callable[..., dict[str, BaseDistribution]], study: optuna.Study, *words: Any
    ) -> dict[str, BaseDistribution]:
        try:
            return own(study, *words)
        except Exception as error:
            self._note(error, is_counted=True)
            return {}

    def _relative(
        self,
        own: Callable[..., dict[str, Any]],
        study: optuna.Study,
        trial: FrozenTrial,
        space: Mapping[str, BaseDistribution],
    ) -> dict[str, Any]:
        try:
            return own(study, trial, space)
        except Exception as error:
            self._note(error, is_counted=True)
            return {
                name: self._random.sample_independent(study, trial, name, distribution)
                for name, distribution in space.items()
            }

    def _independent(
        self,
        own: Callable[..., Any],
        study: optuna.Study,
        trial: FrozenTrial,
        name: str,
        distribution: BaseDistribution,
    ) -> Any:
        self._begin(trial)
        if not self._has_failed:
            try:
                return own(study, trial, name, distribution)
            except Exception as error:
                self._note(error, is_counted=True)
        return self._random.sample_independent(study, trial, name, distribution)

    def _after(self, own: Callable[..., None], *words: Any) -> None:
        try:
            own(*words)
        except Exception as error:
            self._note(error, is_counted=False)

    # -- counting ----------------------------------------------------------------------------

    def _begin(self, trial: FrozenTrial) -> None:
        """Starts a suggestion for a trial, possibly another one than before."""
        if trial_id_of(trial) == self._trial_id:
            return
        if not self._has_failed:
            self._n_in_a_row = 0
        self._trial_id, self._has_failed = trial_id_of(trial), False
        # A study with a seed draws the same again; trials of one study differ.
        self._random = RandomSampler(seed=trial.number)

    def _note(self, error: Exception, *, is_counted: bool) -> None:
        """Records an error of the sampler.

        Raises:
            Exception: The error itself, if it is not the sampler's.
        """
        if isinstance(error, _NOT_OF_THE_SAMPLER):
            raise error
        told = f"{type(error).__name__}: {error}"
        if told not in self._told:
            self._told.add(told)
            _log.warning("Sampler %s raised an error", self._name, exc_info=error)
            self._notes.append(
                f"Warning: the sampler {self._name} raised {told}. Where it does, a random "
                "suggestion takes its place."
            )
        if not is_counted or self._has_failed:
            return
        self._has_failed = True
        self._n_in_a_row += 1
        if self._n_in_a_row >= MOST_IN_A_ROW and not self.why_given_up:
            self.why_given_up = (
                f"the sampler {self._name} failed for {MOST_IN_A_ROW} trials in a row, at last "
                f"with {told}"
            )
            self._give_up()


def _name_of(sampler: BaseSampler) -> str:
    """The sampler's class name, without wrappers."""
    while isinstance(sampler, SamplerAround):
        sampler = sampler.inner
    return type(sampler).__name__
