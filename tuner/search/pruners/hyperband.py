"""Hyperband: several ASHAs in parallel, with different first rungs."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, cast, get_args

import optuna
from optuna.pruners import BasePruner, SuccessiveHalvingPruner
from optuna.study import StudyDirection
from optuna.trial import FrozenTrial, TrialState

from tuner.search.pruners.asha import Mode
from tuner.search.rungs.brackets import NEVER
from tuner.search.rungs.table import RUNG_KEY, RungTable, known_length
from tuner.store.optuna_compat import storage_of, trial_id_of

FIRST_RUNG_KEY = "tuner:first_rung"
"""Attribute of a trial in brackets: the first step of its bracket; 0 for no rung."""


class AsyncHyperbandPruner(BasePruner):
    """Asynchronous Hyperband (Li et al., arXiv:1603.06560; its brackets as in arXiv:1810.05934).

    Each trial is in one of several brackets. Bracket s is an ASHA whose first rung is at
    `min_resource * reduction_factor ** s` steps; the last bracket trains its trials to their end.
    With K brackets, a trial is in bracket s with Hyperband's probability, proportional to
    `K / (K - s) * reduction_factor ** (K - s - 1)`: all brackets get about as many steps.

    Args:
        min_resource: Steps until the first rung of the first bracket, from 1.
        max_resource: Steps of a whole trial. With `"auto"` it is known once a trial has completed:
            the first trial runs to its end, and the others are in the first bracket until then.
        reduction_factor: One of this many trials continues from a rung.
        bootstrap_count: With `mode="stop"`: trials that must reach a rung before any passes it.
        mode: `promote` or `stop`, as in `AshaPruner`.
        seed: Seed of the draw of brackets; by default the study's.

    Raises:
        ValueError: If a value is out of its range.
    """

    has_brackets = True
    has_slices = False
    checks_order = False

    def __init__(
        self,
        min_resource: int = 1,
        max_resource: str | int = "auto",
        reduction_factor: int = 3,
        bootstrap_count: int = 0,
        mode: str = "promote",
        seed: int = 0,
    ) -> None:
        if mode not in get_args(Mode):
            raise ValueError(f"mode is {mode!r}, but must be promote or stop.")
        self.max_resource = known_length(max_resource, min_resource)
        self.min_resource = min_resource
        self.reduction_factor = reduction_factor
        self.promotes = mode == "promote"
        self.bootstrap_count = 0 if self.promotes else bootstrap_count
        self._seed = seed
        #: By first rung. Optuna's checks the other values.
        self._halvings = {min_resource: self._new_halving(min_resource)}

    def new_table(self, first: int) -> RungTable:
        """The rungs of the bracket with this first step."""
        return RungTable(first=first, factor=self.reduction_factor)

    @property
    def least_rung(self) -> int:
        """The first step at which trials of some bracket are compared."""
        return self.min_resource

    def is_first_rung(self, step: int) -> bool:
        """Whether a bracket of this pruner has this first step."""
        while step > self.min_resource and step % self.reduction_factor == 0:
            step //= self.reduction_factor
        return step in (NEVER, self.min_resource)

    def first_rung(self, number: int, length: int | None) -> int:
        """Draws a trial's bracket, deterministic in seed and number.

        Args:
            number: The trial's number.
            length: Steps of a completed trial; None if there is none.

        Returns:
            First step of the bracket; `NEVER` if the trial is trained to its end.
        """
        known = [each for each in (self.max_resource, length) if each is not None]
        if not known:
            return self.min_resource if number else NEVER
        first, steps = self.min_resource, []
        while first < min(known):
            steps.append(first)
            first *= self.reduction_factor
        n_brackets = len(steps) + 1
        shares = [
            n_brackets / (n_brackets - s) * self.reduction_factor ** (n_brackets - s - 1)
            for s in range(n_brackets)
        ]
        # Seeded by text, which Python hashes alike everywhere.
        (drawn,) = random.Random(f"{self._seed}/{number}").choices([*steps, NEVER], shares)
        return drawn

    def prune(self, study: optuna.Study, trial: FrozenTrial) -> bool:
        step = trial.last_step
        if step is None or not self._is_at_rung(trial, step):
            return False
        bracket = self.bracket_of(study, trial)
        if bracket is None or (bracket.length is not None and step >= bracket.length):
            return False
        return bracket.halving.prune(cast(optuna.Study, bracket), trial)

    def bracket_of(self, study: optuna.Study, trial: FrozenTrial) -> Bracket | None:
        """The bracket of a trial, drawn if it has none yet; None if it has no rung."""
        trials = study.get_trials(deepcopy=False)
        length = self._length(trials)
        first = trial.system_attrs.get(FIRST_RUNG_KEY)
        if first is None:
            first = self.first_rung(trial.number, length)
            storage_of(study).set_trial_system_attr(trial_id_of(trial), FIRST_RUNG_KEY, first)
        if first == NEVER:
            return None
        if first not in self._halvings:
            self._halvings[first] = self._new_halving(first)
        return Bracket(
            first=first,
            halving=self._halvings[first],
            trials=[each for each in trials if each.system_attrs.get(FIRST_RUNG_KEY) == first],
            direction=study.direction,
            length=length,
            _storage=storage_of(study),
        )

    def _is_at_rung(self, trial: FrozenTrial, step: int) -> bool:
        """Whether all trials must be read; a trial without a bracket needs one."""
        first = trial.system_attrs.get(FIRST_RUNG_KEY)
        if first in (None, NEVER):
            return first is None
        rung = 0
        while f"{RUNG_KEY}{rung}" in trial.system_attrs:
            rung += 1
        return bool(step >= first * self.reduction_factor**rung)

    def _new_halving(self, first: int) -> SuccessiveHalvingPruner:
        return SuccessiveHalvingPruner(first, self.reduction_factor, 0, self.bootstrap_count)

    def _length(self, trials: Sequence[FrozenTrial]) -> int | None:
        # The first that completed is as good as any, and need not be looked for again.
        for trial in trials:
            if trial.state is TrialState.COMPLETE and trial.last_step:
                return trial.last_step
        return self.max_resource


@dataclass(frozen=True, kw_only=True)
class Bracket:
    """The part of a study's interface that Optuna's pruner uses, with the trials of one bracket."""

    #: Its first step.
    first: int
    halving: SuccessiveHalvingPruner
    trials: Sequence[FrozenTrial]
    direction: StudyDirection
    #: Steps of a whole trial, if known.
    length: int | None
    _storage: Any

    def get_trials(self, deepcopy: bool = True) -> list[FrozenTrial]:
        return list(self.trials)
