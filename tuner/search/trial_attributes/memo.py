"""What is derived from trials, derived once from ended ones: they no longer change."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Generic, TypeVar

from optuna.trial import FrozenTrial

T = TypeVar("T")


class TrialMemo(Generic[T]):
    """Remembers a function's values for the ended trials of the last call.

    Threads may share it: each call replaces what is remembered as a whole.

    Args:
        of: The function, of one trial. Its values are shared between calls: never change them.
    """

    def __init__(self, of: Callable[[FrozenTrial], T]) -> None:
        self._of = of
        self._known: dict[int, tuple[FrozenTrial, T]] = {}

    def of(self, trials: Sequence[FrozenTrial]) -> list[T]:
        """The values for trials, in their order.

        Args:
            trials: An ended trial is known again if it is the same object.
        """
        known, kept, values = self._known, {}, []
        for trial in trials:
            number = trial.number
            found = known.get(number)
            if found is None or found[0] is not trial:
                found = (trial, self._of(trial))
            if trial.state.is_finished():
                kept[number] = found
            values.append(found[1])
        self._known = kept
        return values
