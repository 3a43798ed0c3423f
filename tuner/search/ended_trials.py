"""The trials of a study that have ended, as retention judges them."""

from __future__ import annotations

import statistics

import optuna
from optuna.storages import BaseStorage
from optuna.study import StudyDirection
from optuna.trial import FrozenTrial, TrialState

from tuner.checkpoints.retention import End, EndedTrial
from tuner.domain.budget import N_TYPICAL
from tuner.search.trial_attributes.infeasible import is_marked
from tuner.store.optuna_compat import trial_id_of


class EndedTrials:
    """Reads each ended trial once: ended trials never change.

    Args:
        study: The study.
    """

    def __init__(self, study: optuna.Study) -> None:
        self._study = study
        self._signs = [
            -1.0 if each is StudyDirection.MAXIMIZE else 1.0 for each in study.directions
        ]
        self._known: dict[int, EndedTrial] = {}

    def read(self) -> tuple[EndedTrial, ...]:
        """All that have ended by now."""
        for trial in self._study.get_trials(deepcopy=False):
            if trial.number not in self._known and trial.state.is_finished():
                self._known[trial.number] = self._judge(trial)
        return tuple(self._known.values())

    def _judge(self, trial: FrozenTrial) -> EndedTrial:
        end, losses = _ENDS[trial.state], ()
        if end is End.COMPLETED:
            values = zip(self._signs, trial.values, strict=True)
            losses = tuple(sign * value for sign, value in values)
            if any(value > 0 for value in trial.constraints.values()):
                end = End.INFEASIBLE
        ended_at = trial.datetime_complete
        return EndedTrial(
            number=trial.number,
            end=end,
            ended_at_s=ended_at.timestamp() if ended_at else 0.0,
            losses=losses,
            trial_id=trial_id_of(trial),
            source=trial,
        )


_ENDS = {
    TrialState.COMPLETE: End.COMPLETED,
    TrialState.PRUNED: End.PRUNED,
    TrialState.FAIL: End.FAILED,
}


def typical_length(storage: BaseStorage, study_id: int) -> float | None:
    """The median of the last steps of the newest completed trials; None if they have no curve.

    Args:
        storage: Holds the study.
        study_id: Its id in the storage.
    """
    states = (TrialState.COMPLETE,)
    completed = storage.get_all_trials(study_id, deepcopy=False, states=states)
    curves = [each.intermediate_values for each in completed[-N_TYPICAL:]]
    lasts = [max(curve) for curve in curves if curve]
    return statistics.median(lasts) if lasts else None


def format_end(trial: FrozenTrial) -> str:
    """Formats an ended trial: `trial 3 (0.97)`, `trial 4 (pruned)` or `trial 5 (failed)`."""
    if trial.state is TrialState.COMPLETE:
        return f"trial {trial.number} ({', '.join(f'{value:.6g}' for value in trial.values)})"
    is_pruned = trial.state is TrialState.PRUNED and not is_marked(trial)
    return f"trial {trial.number} ({'pruned' if is_pruned else 'failed'})"
