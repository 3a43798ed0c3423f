"""Detects a program that does not ask whether it should end, so that early stopping saves nothing.

A function that never calls `trial.should_prune()` trains each trial to its end, and nothing fails.
"""

from __future__ import annotations

from tuner.dispatch.attempts.live_attempt import LiveAttempt
from tuner.domain.attempt import Cause, Ending, Outcome
from tuner.domain.messages import Action

#: Trials that completed against a verdict, before any followed one. One or two may have been at
#: their last step when it arrived.
_N_UNHEARD = 3


class UnheardVerdicts:
    """Counts trials that completed although the pruner had ended them, until one follows it."""

    def __init__(self) -> None:
        self._is_over = False
        self._n_unheard = 0

    def note(self, live: LiveAttempt, ending: Ending) -> str:
        """Counts an ending.

        Args:
            live: The attempt.
            ending: Its ending.

        Returns:
            A message for the user, once; else empty.
        """
        self._is_over |= ending.cause is Cause.PRUNER
        is_unheard = live.told in (Action.PRUNE, Action.PAUSE)
        if self._is_over or not is_unheard or ending.outcome is not Outcome.COMPLETED:
            return ""
        self._n_unheard += 1
        if self._n_unheard < _N_UNHEARD:
            return ""
        self._is_over = True
        return (
            f"{_N_UNHEARD} trials were to end early and went on to their end, and none has ended "
            "early since this start. Either their program does not ask: call trial.should_prune() "
            "after each trial.report(...), and raise optuna.TrialPruned where it is true. Or they "
            "train so briefly that the answer arrives after their end."
        )
