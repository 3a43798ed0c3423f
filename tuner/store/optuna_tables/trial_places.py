"""Index of trials by id, in 8 bytes per trial."""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Iterable

from optuna.trial import FrozenTrial

from tuner.store.optuna_compat import trial_id_of


class TrialPlaces:
    """Study and number of each trial that is held. Within a study ids rise with the numbers."""

    def __init__(self) -> None:
        #: By study: the ids of its trials, by number.
        self._ids: dict[int, array[int]] = {}

    def put_all(self, study_id: int, trials: Iterable[FrozenTrial]) -> None:
        """Adds all trials of a study, by number."""
        self._ids[study_id] = array("q", [trial_id_of(each) for each in trials])

    def put(self, study_id: int, trial: FrozenTrial) -> None:
        """Adds the trial with the next number; a known trial is unchanged."""
        ids = self._ids.setdefault(study_id, array("q"))
        if trial.number == len(ids):
            ids.append(trial_id_of(trial))

    def forget(self, study_id: int) -> None:
        """Forgets the trials of a study."""
        self._ids.pop(study_id, None)

    def find(self, trial_id: int) -> tuple[int, int] | None:
        """The study and number of a trial; None if unknown."""
        for study_id, ids in self._ids.items():
            number = bisect_left(ids, trial_id)
            if number < len(ids) and ids[number] == trial_id:
                return study_id, number
        return None

    def study_of(self, trial_id: int) -> int:
        """The study of a trial.

        Raises:
            KeyError: If the trial is not known.
        """
        found = self.find(trial_id)
        if found is None:
            raise KeyError(trial_id)
        return found[0]
