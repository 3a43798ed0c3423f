"""Paused trials at rungs, and which of them is resumed next.

A paused trial waits in Optuna's tables, with an attribute for its step. Its value at each rung is
stored under the key of Optuna's own pruner, so that later starts and other dispatchers need not
read curves.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence, Set
from typing import Protocol

from optuna.study import StudyDirection
from optuna.trial import FrozenTrial, TrialState

from tuner.domain.messages import Action
from tuner.search.pruners.hyperband import FIRST_RUNG_KEY
from tuner.search.rungs.brackets import Brackets
from tuner.search.rungs.explanation import explain
from tuner.search.rungs.freeze_thaw_table import SliceTable
from tuner.search.rungs.order.watch import OrderWatch
from tuner.search.rungs.pareto_table import ParetoTable
from tuner.search.rungs.step_time import Measured, Pace
from tuner.search.rungs.table import RungTable, Standing, rung_key
from tuner.search.samplers.curve_gp.feasibility import is_infeasible
from tuner.search.scheduler import CONTINUE, Ending, Scheduler, SchedulerContext, Verdict
from tuner.search.trial_attributes.vector_curve import LAST_STEP_KEY
from tuner.store.optuna_compat import trial_id_of
from tuner.store.optuna_tables.pauses import is_paused, note_pause, note_resume

#: With a trial that trains in slices: its seconds a step, and until its first.
_PACE_KEY = "tuner:pace"


class RungPruner(Protocol):
    """Defines the rungs at which trials pause."""

    #: Whether trials pause, and the best of them continue.
    promotes: bool
    #: Whether each trial is in a bracket of its own draw.
    has_brackets: bool
    #: Whether a trial trains in slices whose duration is measured.
    has_slices: bool
    #: Whether the order at each rung is compared with the order later.
    checks_order: bool
    #: Steps of a whole trial, if the study file sets it.
    max_resource: int | None
    #: One of this many trials continues from a rung.
    reduction_factor: int
    #: Trials that must reach a rung before any passes it.
    bootstrap_count: int

    def new_table(self, first: int) -> RungTable:
        """The rungs of the bracket with this first step."""

    def is_first_rung(self, step: int) -> bool:
        """Whether a bracket has this first step."""

    def first_rung(self, number: int, length: int | None) -> int:
        """The first step of a trial's bracket.

        Args:
            number: The trial's number.
            length: Steps of a completed trial; None if there is none.

        Returns:
            First step of the trial's bracket.
        """


class Promotion(Scheduler):
    """The rungs of one study, kept in sync with its trials.

    Args:
        pruner: Defines the rungs.
        context: The study.
    """

    def __init__(self, pruner: RungPruner, context: SchedulerContext) -> None:
        self._storage = storage = context.storage
        self._study_id = study_id = context.study_id
        self._names = context.objectives
        self._signs = [
            -1.0 if each is StudyDirection.MAXIMIZE else 1.0 for each in context.directions
        ]
        self._pruner = pruner
        #: Whether trials end where others would pause.
        self._stops = not pruner.promotes
        #: Whether a trial was paused, so that programs are known to save checkpoints.
        self._has_paused = False
        #: By trial number: the last report, if the storage has none (several objectives).
        self._last_steps: dict[int, int] = {}
        #: Trials that continue to their end regardless of their rank.
        self._unbound: set[int] = set()
        #: Times of trials in slices.
        self._pace = Pace()
        self.brackets = Brackets(self._new_table)
        self.brackets.length = pruner.max_resource
        #: For the only bracket, once it has a trial.
        self._watch: OrderWatch | None = None
        #: Steps of the longest completed trial.
        self._length: int | None = None
        for trial in storage.get_all_trials(study_id, deepcopy=False):
            self.sync(trial)

    @property
    def paused(self) -> Set[int]:
        """Numbers of the trials that wait at a rung."""
        return self.brackets.paused

    @property
    def leader_share_left(self) -> float | None:
        """Fraction of a whole training that the best of the highest rung has left."""
        return None if self._has_stopped_pausing else self.brackets.share_left_of_leader

    @property
    def n_steps(self) -> int | None:
        """Steps of a whole training, if they are known."""
        return self.brackets.length

    def lacks_winner(self, counts: Counter[TrialState]) -> bool:
        """Whether trials are paused, none runs and none has completed."""
        if self._has_stopped_pausing or not self.paused:
            return False
        return not counts[TrialState.RUNNING] and not counts[TrialState.COMPLETE]

    def sync(self, trial: FrozenTrial) -> None:
        """Updates a trial from the storage."""
        if (table := self._known_table_of(trial)) is not None:
            if self._watch is not None:
                self._watch.learn_notes(trial)
            rung = 0
            while (value := trial.system_attrs.get(rung_key(rung))) is not None:
                values = value if self._has_several else [value]
                new = self._come(table, trial.number, rung, values)
                if self._watch is not None:
                    self._watch.learn(trial.number, new, is_stored=True)
                rung += 1
            self._take_in_slices(table, trial)
        if self._watch is not None:
            self._watch.sync(trial, self._final_loss(trial))
        if trial.state is TrialState.COMPLETE and self._length is None:
            self._note_length(trial)
        if is_paused(trial):
            self._wait(trial.number)
        else:
            self.brackets.unpause(trial.number)

    def record_length(self, trial_id: int) -> None:
        """Takes the last step of a completed trial for the last step of the program."""
        self._note_length(self._storage.get_trial(trial_id))

    def _note_length(self, trial: FrozenTrial) -> None:
        last = trial.system_attrs.get(LAST_STEP_KEY, max(trial.intermediate_values, default=0))
        self._length = max(self._length or 0, last) or None
        self.brackets.length = self._length or self._pruner.max_resource
        self._take_in_slices(self._known_table_of(trial), trial)

    def begin(self, trial_id: int) -> None:
        """Starts measuring the pace of an attempt."""
        self._pace.begins(self._storage.get_trial_number_from_id(trial_id))

    def end(self, trial_id: int, ending: Ending) -> None:
        """Stores the last step of a trial that completes, if no curve has it."""
        number = self._storage.get_trial_number_from_id(trial_id)
        step = self._last_steps.get(number)
        if ending is Ending.COMPLETED and step is not None:
            self._storage.set_trial_system_attr(trial_id, LAST_STEP_KEY, step)
        if self._watch is not None:
            self._end_watched(self._watch, self._storage.get_trial(trial_id), ending)

    def _end_watched(self, watch: OrderWatch, trial: FrozenTrial, ending: Ending) -> None:
        curve = trial.intermediate_values
        if ending is Ending.COMPLETED and curve and not is_infeasible(trial):
            watch.end(trial, self._loss(curve[max(curve)]))
        elif ending is not Ending.REQUEUED:
            watch.leave(trial.number)

    def take_notes(self) -> list[str]:
        return [] if self._watch is None else self._watch.take_messages()

    def stop_pausing(self) -> bool:
        """Prunes trials at rungs instead of pausing them."""
        self._stops = True
        self._set_rule()
        return super().stop_pausing()

    def report(
        self, trial_id: int, step: int, values: Sequence[float], *, held_s: float | None
    ) -> Verdict:
        """Pauses or prunes a trial that does not pass the rung that it has reached.

        A value that is not a number ends a trial at a rung.
        """
        trial = self._storage.get_trial(trial_id)
        if self._pruner.has_slices and held_s is not None:
            self._pace.reported(trial.number, step, held_s, known=trial.intermediate_values)
        step_s = None if held_s is None else held_s / max(step, 1)
        standing = self.judge(trial, step, values, step_s=step_s)
        if standing is None:
            return CONTINUE
        if standing.loss < math.inf and (standing.goes_on or self._is_spared(trial, standing)):
            return CONTINUE
        may_pause = standing.loss < math.inf and not self._stops
        return Verdict(
            action=Action.PAUSE if may_pause else Action.PRUNE,
            reason=self._explain(trial.number, standing, values),
        )

    def _explain(self, number: int, standing: Standing, values: Sequence[float]) -> str:
        table = self.brackets.table_of(number)
        assert table is not None
        if standing.is_again:
            values = [self._signs[0] * standing.loss]
        reported = dict(zip(self._names, values, strict=True))
        has_brackets, sign = self._pruner.has_brackets, self._signs[0]
        return explain(table, number, standing, reported, has_brackets=has_brackets, sign=sign)

    def _is_spared(self, trial: FrozenTrial, standing: Standing) -> bool:
        if self._watch is None or standing.is_again:
            return False
        return self._watch.spares(trial, standing.rung, n_running=self._n_running)

    @property
    def _n_running(self) -> int:
        return self._storage.count_trials(self._study_id)[TrialState.RUNNING]

    def judge(
        self,
        trial: FrozenTrial,
        step: int,
        values: Sequence[float],
        *,
        step_s: float | None = None,
    ) -> Standing | None:
        """A trial's standing at the rung that a report reaches; None between rungs.

        A NaN value is worse than all others.

        Args:
            trial: The trial.
            step: Step of the report.
            values: The reported values.
            step_s: Seconds per step so far, the trial's start included; None if unknown.
        """
        if self._has_several:
            self._last_steps[trial.number] = step
        table = self._table_of(trial)
        passes_last = self._pruner.promotes or self._has_several
        if table is None or (passes_last and self._is_last(table, step)):
            return None
        if self._watch is not None and math.isfinite(values[0]):
            self._watch.pass_by(trial, step, self._loss(values[0]))
        standing = None
        for rung in self._new_rungs(table, trial.number, step):
            standing = self._come_noted(table, trial, rung, values, step_s)
            if table.is_final and not standing.goes_on:
                break
        if standing is None and self._watch is not None:
            standing = self._watch.judge_again(trial.number, step, n_running=self._n_running)
        return None if trial.number in self._unbound else standing

    def _new_rungs(self, table: RungTable, number: int, step: int) -> Sequence[int]:
        """The rungs to enter one after the other.

        A program that reports every 250 steps passes many rungs at once. Comparisons at each of
        them, as Optuna's pruner makes, end two of three trials several times over; with
        `check_order`, and where trials may pause, only the highest counts.
        """
        new = range(table.rung_of(number) + 1, table.rung_at(step) + 1)
        judges_each = table.is_final and not self._pruner.checks_order and not self._has_several
        return new if judges_each else new[-1:]

    def _come_noted(
        self,
        table: RungTable,
        trial: FrozenTrial,
        rung: int,
        values: Sequence[float],
        step_s: float | None,
    ) -> Standing:
        noted = list(values) if self._has_several else values[0]
        new = self._come(table, trial.number, rung, values)
        for each in new:
            self._storage.set_trial_system_attr(trial_id_of(trial), rung_key(each), noted)
        if self._watch is not None:
            self._watch.learn(trial.number, new, step_s=step_s)
            if rung > 0:
                self._watch.judge(trial)
        if isinstance(table, SliceTable):
            self._note_pace(trial)
        return table.standing(trial.number, rung)

    def _is_last(self, table: RungTable, step: int) -> bool:
        """Whether a trial has trained to its end."""
        return table.length is not None and step >= table.length

    def pause(self, trial_id: int) -> None:
        """Lets a trial that has no device any more wait at its rung."""
        trial = self._storage.get_trial(trial_id)
        step = max(trial.intermediate_values, default=self._last_steps.get(trial.number, 0))
        note_pause(self._storage, trial_id, step)
        if self._watch is not None:
            self._watch.leave(trial.number)
        self._wait(trial.number)

    def _wait(self, number: int) -> None:
        """Pauses a trial at its rung; others may then pause, too."""
        self._has_paused = True
        self._set_rule()
        self.brackets.pause(number)

    def _set_rule(self) -> None:
        for table in self.brackets.tables:
            table.is_final = self._is_final

    @property
    def _is_final(self) -> bool:
        """Whether a trial that does not pass a rung may be lost there, and is judged accordingly.

        With several objectives also until a trial has paused: that a program saves no checkpoint
        shows only when its first trial has ended.
        """
        return self._stops or (self._has_several and not self._has_paused)

    def resume(self, *, is_last: bool) -> int | None:
        """Claims the next trial to resume for this dispatcher; returns its id.

        Args:
            is_last: If no trial is promotable, the best of the highest rung continues to its end.
        """
        if self._has_stopped_pausing:
            return None
        trial_id = self._take_promoted(is_last=is_last)
        if trial_id is not None:
            self.begin(trial_id)
        return trial_id

    def _take_promoted(self, *, is_last: bool) -> int | None:
        while True:
            number = self.brackets.promotable()
            if number is None and is_last and (number := self.brackets.leader()) is not None:
                self._unbound.add(number)
            if number is None:
                return None
            table = self.brackets.table_of(number)
            assert table is not None, "paused trials have a bracket"
            rung = table.rung_of(number)
            trial_id = self.take(number)
            if trial_id is None:
                continue
            if table.rung_of(number) == rung:
                return trial_id
            # Another dispatcher has let it continue meanwhile: it waits at a higher rung.
            self.pause(trial_id)

    def take(self, number: int) -> int | None:
        """Claims a trial paused at a rung; None if another dispatcher was faster."""
        self.brackets.unpause(number)
        trial_id = self._storage.get_trial_id_from_study_id_trial_number(self._study_id, number)
        if not self._storage.set_trial_state_values(trial_id, TrialState.RUNNING):
            return None  # What it is now is read with the next look at the others.
        self.sync(self._storage.get_trial(trial_id))
        note_resume(self._storage, trial_id)
        return trial_id

    @property
    def _has_several(self) -> bool:
        return len(self._signs) > 1

    def _new_table(self, first: int) -> RungTable:
        table = self._pruner.new_table(first)
        if self._has_several:
            table = ParetoTable(first=first, factor=self._pruner.reduction_factor)
        if isinstance(table, SliceTable):
            table.trial_of, table.pace = self._trial, self._pace
        table.is_final = self._is_final
        table.n_bootstrap = self._pruner.bootstrap_count
        if self._pruner.checks_order and not self._has_several:
            self._watch = OrderWatch(self._storage, table)
        return table

    def _final_loss(self, trial: FrozenTrial) -> float | None:
        """Final loss of a trial; None if it did not complete."""
        if trial.state is not TrialState.COMPLETE or trial.value is None or is_infeasible(trial):
            return None
        return self._loss(trial.value)

    def _loss(self, value: float) -> float:
        return self._signs[0] * value

    def _come(self, table: RungTable, number: int, rung: int, values: Sequence[float]) -> list[int]:
        losses = [
            math.inf if math.isnan(value) else sign * value
            for sign, value in zip(self._signs, values, strict=True)
        ]
        if isinstance(table, ParetoTable):
            return table.come_with(number, rung, losses)
        return table.come(number, rung, losses[0])

    def _table_of(self, trial: FrozenTrial) -> RungTable | None:
        """The rungs of a trial; assigns a bracket if it has none yet."""
        table = self._known_table_of(trial)
        if trial.number in self.brackets:
            return table
        first = self._pruner.first_rung(trial.number, self._length)
        self._storage.set_trial_system_attr(trial_id_of(trial), FIRST_RUNG_KEY, first)
        self.brackets.put(trial.number, first)
        return self.brackets.table_of(trial.number)

    def _known_table_of(self, trial: FrozenTrial) -> RungTable | None:
        """The rungs of a trial; None if it has no rungs, no bracket yet, or another pruner's."""
        if trial.number not in self.brackets:
            first = trial.system_attrs.get(FIRST_RUNG_KEY)
            if first is None and not self._pruner.has_brackets:
                first = self._pruner.first_rung(trial.number, None)
            if first is not None and self._pruner.is_first_rung(first):
                self.brackets.put(trial.number, first)
        return self.brackets.table_of(trial.number)

    def _take_in_slices(self, table: RungTable | None, trial: FrozenTrial) -> None:
        """Passes a trial's data to a table of slices."""
        if not isinstance(table, SliceTable):
            return
        if (pace := trial.system_attrs.get(_PACE_KEY)) is not None:
            self._pace.take_in(trial.number, Measured(of_step=pace[0], of_start=pace[1]))
        is_new_end = trial.state is TrialState.COMPLETE and trial.number not in table.ends
        if is_new_end and trial.value is not None and not is_infeasible(trial):
            last = max(trial.intermediate_values, default=0)
            table.completes(trial.number, last, self._signs[0] * trial.value)

    def _note_pace(self, trial: FrozenTrial) -> None:
        if (measured := self._pace.measured(trial.number)) is not None:
            self._pace.take_in(trial.number, measured)
            noted = [measured.of_step, measured.of_start]
            self._storage.set_trial_system_attr(trial_id_of(trial), _PACE_KEY, noted)

    def _trial(self, number: int) -> FrozenTrial:
        trial_id = self._storage.get_trial_id_from_study_id_trial_number(self._study_id, number)
        return self._storage.get_trial(trial_id)
