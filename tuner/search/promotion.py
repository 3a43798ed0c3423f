"""Which trials of a study wait at a rung, and which of them goes on next.

A trial that is paused waits in Optuna's tables, with a note of ours: the step where it stands. Its
place at each rung is noted with it, under the key that Optuna's own pruner uses, so that neither a
later start nor another dispatcher has to read a curve.
"""

from __future__ import annotations

import math
from collections.abc import Set

from optuna.study import StudyDirection
from optuna.trial import FrozenTrial, TrialState

from tuner.messages import Action
from tuner.search.asha import AshaPruner
from tuner.search.decision import Decision
from tuner.search.rungs import RungTable, Standing
from tuner.store.buffered_storage import BufferedStorage
from tuner.store.optuna_rows import PAUSED_KEY

_RUNG_KEY = "completed_rung_"


def is_paused(trial: FrozenTrial) -> bool:
    """Whether a trial waits at a rung for its turn, and not for a device."""
    return trial.state is TrialState.WAITING and trial.system_attrs.get(PAUSED_KEY) is not None


class Promotion:
    """The rungs of one study, kept up to date with what is known of its trials.

    Args:
        pruner: Says where the rungs are.
        storage: Holds the study.
        study_id: Of the study.
        direction: Of its objective.
    """

    def __init__(
        self,
        pruner: AshaPruner,
        storage: BufferedStorage,
        study_id: int,
        direction: StudyDirection,
    ) -> None:
        self._storage = storage
        self._study_id = study_id
        self._sign = -1.0 if direction is StudyDirection.MAXIMIZE else 1.0
        self.table: RungTable = pruner.new_table()
        for trial in storage.get_all_trials(study_id, deepcopy=False):
            self.take_in(trial)

    @property
    def paused(self) -> Set[int]:
        """Numbers of the trials that wait at a rung."""
        return self.table.paused

    def take_in(self, trial: FrozenTrial) -> None:
        """A trial as it is stored, here or by others."""
        rung = 0
        while (value := trial.system_attrs.get(f"{_RUNG_KEY}{rung}")) is not None:
            self.table.come(trial.number, rung, self._loss(value))
            rung += 1
        if trial.state is TrialState.COMPLETE and self.table.length is None:
            self.note_length(trial)
        if is_paused(trial):
            self.table.pause(trial.number)
        else:
            self.table.unpause(trial.number)

    def note_length(self, trial: FrozenTrial) -> None:
        """A trial has completed, so that its last step is that of the program."""
        last = max(trial.intermediate_values, default=0)
        self.table.length = max(self.table.length or 0, last) or None

    def decide(self, trial: FrozenTrial, step: int, value: float, name: str) -> Decision:
        """What becomes of a trial that has reported.

        Args:
            trial: It.
            step: Of the report.
            value: Of the report; one that is not a number ends the trial at a rung.
            name: Of the objective, for people.
        """
        standing = self.judge(trial, step, value)
        if standing is None:
            return Decision(action=Action.CONTINUE)
        if standing.loss == math.inf:
            return Decision(action=Action.PRUNE, reason=self.explain(standing, name))
        if standing.goes_on:
            return Decision(action=Action.CONTINUE)
        return Decision(action=Action.PAUSE, reason=self.explain(standing, name))

    def judge(self, trial: FrozenTrial, step: int, value: float) -> Standing | None:
        """How a trial stands at the rung that a report has brought it to; None between rungs.

        A value that is not a number is worse than all others.
        """
        rung = self.table.rung_at(step)
        new = self.table.come(trial.number, rung, self._loss(value)) if rung >= 0 else []
        if not new or self.table.is_end(rung):
            return None
        for each in new:
            self._storage.set_trial_system_attr(trial._trial_id, f"{_RUNG_KEY}{each}", value)
        return self.table.standing(trial.number, rung)

    def pause(self, trial: FrozenTrial) -> None:
        """Lets a trial that has no device any more wait at its rung."""
        step = max(trial.intermediate_values, default=0)
        self._storage.set_trial_system_attr(trial._trial_id, PAUSED_KEY, step)
        self._storage.set_trial_state_values(trial._trial_id, TrialState.WAITING)
        self.table.pause(trial.number)

    def resume(self, *, is_last: bool) -> int | None:
        """Takes the trial that goes on next, for this dispatcher; gives its id.

        Args:
            is_last: Where nobody has earned it: the best of the highest rung goes on.
        """
        while True:
            number = next(self.table.promotable(), None)
            if number is None and is_last:
                number = self.table.leader()
            if number is None:
                return None
            if (trial_id := self.take(number)) is not None:
                return trial_id

    def take(self, number: int) -> int | None:
        """Takes a trial that waits at a rung; None where another dispatcher was quicker."""
        self.table.unpause(number)
        trial_id = self._storage.get_trial_id_from_study_id_trial_number(self._study_id, number)
        if not self._storage.set_trial_state_values(trial_id, TrialState.RUNNING):
            return None  # What it is now is read with the next look at the others.
        self._storage.set_trial_system_attr(trial_id, PAUSED_KEY, None)
        return trial_id

    def explain(self, standing: Standing, name: str) -> str:
        """
        Args:
            standing: Of a trial that does not go on.
            name: Of the objective.

        Returns:
            A sentence without the full stop.
        """
        value, step = self._sign * standing.loss, self.table.step_of(standing.rung)
        told = f"at rung {standing.rung} (step {step}), {name} {value:.6g}"
        best = f"the best 1 in {self.table.factor} of the {standing.n_came} trials that came there"
        if math.isnan(standing.bar):
            return f"{told}: nobody goes on before {self.table.factor} trials came there"
        worse = "below" if self._sign < 0 else "above"
        return f"{told} is {worse} {self._sign * standing.bar:.6g}, which {best} have"

    def _loss(self, value: float) -> float:
        return math.inf if math.isnan(value) else self._sign * value
