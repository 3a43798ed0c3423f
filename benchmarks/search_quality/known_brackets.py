"""Optuna's Hyperband, made quick enough to be compared with on many seeds."""

from __future__ import annotations

from typing import Any

import optuna
from optuna.pruners import HyperbandPruner
from optuna.trial import FrozenTrial


class KnownBrackets(HyperbandPruner):
    """Optuna's Hyperband, which at each report draws the bracket of every trial of the study anew.

    That is most of the time of its searches here. A trial's bracket is the same whenever it is
    drawn, and so are the verdicts.
    """

    def __init__(self, **arguments: Any) -> None:
        super().__init__(**arguments)
        self._brackets: dict[int, int] = {}

    def _get_bracket_id(self, study: optuna.Study, trial: FrozenTrial) -> int:
        if not self._pruners:  # As yet all trials are in one.
            return super()._get_bracket_id(study, trial)
        if (bracket := self._brackets.get(trial.number)) is None:
            bracket = self._brackets[trial.number] = super()._get_bracket_id(study, trial)
        return bracket
