"""A population: decides which member ends early and what replaces it.

A member that is ended early counts as pruned; its replacement is a trial of its own (see
`next_member`). A failed member is replaced too, so that the population keeps its size. If there are
fewer devices than members, members take turns (`turn_taking`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence, Set
from dataclasses import replace

from optuna.trial import FrozenTrial, TrialState

from tuner.checkpoints.hand_over import StateCopies
from tuner.search.population.members import Members
from tuner.search.population.next_member import Succession
from tuner.search.population.pbt import PbtPruner
from tuner.search.population.ranking import Mark, good_first, is_weak, strongest
from tuner.search.population.replacement import Doom, Replacer
from tuner.search.population.turn_taking import Turns
from tuner.search.scheduler import CONTINUE, Ending, Scheduler, SchedulerContext, Verdict
from tuner.store.optuna_compat import trial_id_of
from tuner.store.records.population_rows import (
    POPULATION_IS_OVER,
    REPLACED_KEY,
    Origin,
    Replacement,
)

#: Consecutive failures in one place after which it stays empty.
N_FAILURES = 3


class Population(Scheduler):
    """The population of one study, kept in sync with its trials.

    Args:
        pruner: Its size and rules.
        context: The study.
    """

    has_population = True
    exhausted_reason = POPULATION_IS_OVER

    def __init__(self, pruner: PbtPruner, context: SchedulerContext) -> None:
        storage, study_id = context.storage, context.study_id
        self._pruner = pruner
        self._storage = storage
        self._study_id = study_id
        self._objective = context.objectives[0]
        self._members = Members(pruner, storage, study_id, context.directions[0])
        self._replacing = Replacer(pruner, storage, study_id, context.space)
        self.succession = Succession(self._members, storage, study_id, pruner.population)
        self.begin_next = self.succession.begin
        self._turns = Turns(self._members, self.succession, storage, study_id)
        #: By number.
        self._doomed: dict[int, Doom] = {}
        self._members.catch_up()

    # -- what is known -----------------------------------------------------------------------

    @property
    def paused(self) -> Set[int]:
        """Numbers of the members that wait for those behind them."""
        return self._members.paused.keys()

    @property
    def needs_suggestion(self) -> bool:
        """Whether members are to be drawn yet."""
        return self._members.n_missing > 0

    @property
    def is_exhausted(self) -> bool:
        """Whether no trial is waiting and no member can start."""
        waiting = self._storage.count_trials(self._study_id)[TrialState.WAITING]
        return not waiting and not self.succession.has_next

    def lacks_winner(self, counts: Counter[TrialState]) -> bool:
        """Whether members are paused: all of them train to their end."""
        return bool(self.paused)

    def set_copies(self, copies: StateCopies) -> None:
        """Sets the object that copies checkpoints."""
        self._replacing.copies = self.succession.copies = copies

    def sync(self, trial: FrozenTrial) -> None:
        """Updates a trial from the storage."""
        self._members.take_in(trial)

    def record_length(self, trial_id: int) -> None:
        """Takes the last step of a completed trial for the last step of the program."""
        self._members.note_length(self._storage.get_trial(trial_id))

    def begin(self, trial_id: int) -> None:
        """Makes an enqueued trial a member of the population."""
        self._members.adopt(self._storage.get_trial(trial_id))

    def hand_over(self, trial_id: int) -> str:
        """Puts the parent's checkpoint in place before an attempt of a copy."""
        return self.succession.hand_over(self._storage.get_trial(trial_id))

    def resumes_from(self, trial_id: int, step: int) -> None:
        """Records that a copy continues from a step before its parent's."""
        self.succession.resumes_from(self._storage.get_trial(trial_id), step)

    def restarts_steps(self, trial_id: int, step: int) -> bool:
        """Whether the first step that a copy reports lies before the step of its checkpoint."""
        return self.succession.counts_anew(self._storage.get_trial(trial_id), step)

    def take_notes(self) -> list[str]:
        """Messages to show since the last call."""
        return self._replacing.take_notes()

    # -- judging -----------------------------------------------------------------------------

    def report(
        self, trial_id: int, step: int, values: Sequence[float], *, held_s: float | None
    ) -> Verdict:
        """Prunes a weak member that a copy replaces; pauses a member ahead of the others."""
        trial = self._storage.get_trial(trial_id)
        if trial.number in self._doomed:
            return self._doomed[trial.number].verdict
        mark = self._members.mark_of(trial)
        if self._has_stopped_pausing or mark is None or self._members.is_end(step):
            return CONTINUE
        if (doom := self._judge(trial, mark, self._objective)) is not None:
            return doom.verdict
        rests = self._turns.rest(trial, step) if step == mark.step else None
        return rests or CONTINUE

    def gives_up(self, trial_id: int) -> bool:
        """Whether a member that was paused is among the weak meanwhile."""
        trial = self._storage.get_trial(trial_id)
        mark = self._members.mark_of(trial)
        if self._has_stopped_pausing or mark is None or self._members.is_end(mark.step):
            return False
        doom = self._judge(trial, mark, self._objective)
        if doom is None:
            return False
        why = f"it was paused, and did not continue: {doom.verdict.reason}"
        noted = replace(doom.replacement, why=why)
        self._doomed[trial.number] = replace(doom, replacement=noted)
        self._replacing.tell(f"Trial {trial.number} does not continue: {doom.verdict.reason}.")
        return True

    def _judge(self, trial: FrozenTrial, mark: Mark, name: str) -> Doom | None:
        """Marks a weak member for replacement; None if it is not weak or has no replacement."""
        marks = self._members.marks(mark.at)
        if not is_weak(mark, marks, self._pruner.quantile) or not self._has_trial_left():
            return None
        told = (
            f"at step {mark.step}, {name} {trial.intermediate_values[mark.step]:.6g} is "
            f"among the weakest {self._pruner.quantile:.3g} of {len(marks)} members"
        )
        self._replacing.length = self._members.length
        doom = self._replacing.find(mark, strongest(marks, self._pruner.quantile), told)
        if doom is not None:
            self._doomed[trial.number] = doom
        return doom

    def _has_trial_left(self) -> bool:
        """Whether the budget has a trial beyond those that start anyway."""
        n_to_begin = self._members.n_missing + len(self._members.open) + len(self._doomed)
        return self._storage.n_trials_left > n_to_begin

    # -- ends --------------------------------------------------------------------------------

    def end(self, trial_id: int, ending: Ending) -> None:
        """Stores the replacement of a member that was ended early or has failed."""
        trial = self._storage.get_trial(trial_id)
        self._close_doom(trial, is_pruned=ending is Ending.PRUNED)
        if ending is Ending.FAILED:
            self._replace_failed(trial)

    def _close_doom(self, trial: FrozenTrial, *, is_pruned: bool) -> None:
        doom = self._doomed.pop(trial.number, None)
        if doom is None:
            return
        if is_pruned:
            self._note(trial, doom.replacement)
        elif self.succession.copies is not None:
            self.succession.copies.drop(trial.number)

    def _replace_failed(self, trial: FrozenTrial) -> None:
        n_failed = self._failures_before(trial) + 1
        if self._has_stopped_pausing or not self._has_trial_left():
            return
        if n_failed >= N_FAILURES:
            self._replacing.tell(
                f"Trial {trial.number} has failed for good, as the {N_FAILURES - 1} before it in "
                "its place: no other trial takes it, and the population is smaller by one."
            )
            return
        marks = self._members.marks_beside(trial.number)
        self._replacing.length = self._members.length
        wanted = self._replacing.find_for_failed(
            trial.number, good_first(marks, self._pruner.quantile)
        )
        self._note(trial, replace(wanted, n_failed=n_failed))

    def _failures_before(self, trial: FrozenTrial) -> int:
        """Number of consecutive failures in a trial's place, directly before it."""
        origin = Origin.of(trial.system_attrs)
        if origin is None:
            return 0
        noted = Replacement.of(self._members.trial(origin.replaces).system_attrs)
        return 0 if noted is None else noted.n_failed

    def _note(self, trial: FrozenTrial, replacement: Replacement) -> None:
        note = replacement.as_json()
        self._storage.set_trial_system_attr(trial_id_of(trial), REPLACED_KEY, note)
        self._members.open[trial.number] = replacement

    # -- pausing -----------------------------------------------------------------------------

    def pause(self, trial_id: int) -> None:
        """Lets a member that has no device any more wait for those behind it."""
        self._turns.pause(self._storage.get_trial(trial_id))

    def resume(self, *, is_last: bool) -> int | None:
        """Claims the next paused member for this dispatcher; returns its id.

        Args:
            is_last: Whether no other trial can start. Otherwise members further behind come first.
        """
        return self._turns.resume(is_last=is_last)

    def take(self, number: int) -> int | None:
        """Claims a paused member; None if another dispatcher was faster."""
        return self._turns.take(number)
