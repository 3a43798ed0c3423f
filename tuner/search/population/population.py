"""A population: which member is given up, and what replaces it.

A member that is given up ends as a pruned trial; what replaces it is a trial of its own (see
`next_member`). A member that fails for good is replaced too, so that the population ends with as
many members as it began with. Where there are fewer devices than members they take turns
(`turn_taking`).
"""

from __future__ import annotations

from collections.abc import Sequence, Set
from dataclasses import replace

from optuna.study import StudyDirection
from optuna.trial import FrozenTrial, TrialState

from search_spaces import AnySpace
from tuner.checkpoints.hand_over import StateCopies
from tuner.messages import Action
from tuner.search.decision import Decision
from tuner.search.population.members import Members
from tuner.search.population.next_member import Succession
from tuner.search.population.pbt import PbtPruner
from tuner.search.population.ranking import Mark, good_first, is_weak, strongest
from tuner.search.population.replacement import Doom, Replacing
from tuner.search.population.turn_taking import Turns
from tuner.store.optuna_tables.storage import BufferedStorage
from tuner.store.records.population_rows import REPLACED_KEY, Origin, Replacement

#: So many that fail for good in one place, one after the other, and it stays empty.
N_FAILURES = 3
_CONTINUE = Decision(action=Action.CONTINUE)


class Population:
    """The population of one study, kept up to date with what is known of its trials.

    Args:
        pruner: Its size and its rules.
        storage: Holds the study.
        study_id: Of the study.
        direction: Of its objective.
        space: What the study file declares.
    """

    #: No leader takes what is left of a budget: all members go on.
    share_left_of_leader: float | None = None

    def __init__(
        self,
        pruner: PbtPruner,
        storage: BufferedStorage,
        study_id: int,
        direction: StudyDirection,
        space: AnySpace | None,
    ) -> None:
        self._pruner = pruner
        self._storage = storage
        self._study_id = study_id
        self._members = Members(pruner, storage, study_id, direction)
        self._replacing = Replacing(pruner, storage, study_id, space)
        self.succession = Succession(self._members, storage, study_id, pruner.population)
        self._turns = Turns(self._members, self.succession, storage, study_id)
        #: By number.
        self._doomed: dict[int, Doom] = {}
        #: Whether nobody is replaced any more, and nobody pauses.
        self._is_off = False
        self._members.catch_up()

    # -- what is known -----------------------------------------------------------------------

    @property
    def paused(self) -> Set[int]:
        """Numbers of the members that wait for those behind them."""
        return self._members.paused.keys()

    @property
    def lacks_members(self) -> bool:
        """Whether members are to be drawn yet."""
        return self._members.n_missing > 0

    @property
    def is_over(self) -> bool:
        """Whether nobody waits, and nobody can begin."""
        waiting = self._storage.count_trials(self._study_id)[TrialState.WAITING]
        return not waiting and not self.succession.has_next

    @property
    def has_stopped(self) -> bool:
        """Whether nobody is replaced any more."""
        return self._is_off

    def set_copies(self, copies: StateCopies) -> None:
        """Where checkpoints are, from now on."""
        self._replacing.copies = self.succession.copies = copies

    def take_in(self, trial: FrozenTrial) -> None:
        """A trial as it is stored, here or by others."""
        self._members.take_in(trial)

    def note_length(self, trial: FrozenTrial) -> None:
        """A trial has completed, so that its last step is that of the program."""
        self._members.note_length(trial)

    def adopt(self, trial: FrozenTrial) -> None:
        """A trial that somebody enqueued begins: it is one of the population."""
        self._members.adopt(trial)

    def take_notes(self) -> list[str]:
        """What people should know since the last call."""
        return self._replacing.take_notes()

    def stop_from_now(self) -> None:
        """Nobody is replaced any more, and nobody pauses."""
        self._is_off = True

    # -- judging -----------------------------------------------------------------------------

    def decide(
        self, trial: FrozenTrial, step: int, values: Sequence[float], names: Sequence[str]
    ) -> Decision:
        """What becomes of a member that has reported.

        Args:
            trial: It, with its curve.
            step: Of the report.
            values: Of the one objective.
            names: Of the objective, for people.
        """
        if trial.number in self._doomed:
            return self._doomed[trial.number].decision
        mark = self._members.mark_of(trial)
        if self._is_off or mark is None or self._members.is_end(step):
            return _CONTINUE
        if (doom := self._judge(trial, mark, names[0])) is not None:
            return doom.decision
        rests = self._turns.rest(trial, step) if step == mark.step else None
        return rests or _CONTINUE

    def gives_up(self, trial: FrozenTrial, name: str) -> bool:
        """Whether a member that was paused, and is to go on, ends where it stands as a weak one.

        Args:
            trial: It, taken for this dispatcher.
            name: Of the objective, for people.
        """
        mark = self._members.mark_of(trial)
        if self._is_off or mark is None or self._members.is_end(mark.step):
            return False
        doom = self._judge(trial, mark, name)
        if doom is None:
            return False
        why = f"it was paused, and did not go on: {doom.decision.reason}"
        noted = replace(doom.replacement, why=why)
        self._doomed[trial.number] = replace(doom, replacement=noted)
        self._replacing.tell(f"Trial {trial.number} does not go on: {doom.decision.reason}.")
        return True

    def _judge(self, trial: FrozenTrial, mark: Mark, name: str) -> Doom | None:
        """Dooms a weak member; None where it is not, or there is nothing to replace it with."""
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
        """Whether the budget has one beyond those that are to begin anyway."""
        n_to_begin = self._members.n_missing + len(self._members.open) + len(self._doomed)
        return self._storage.n_trials_left > n_to_begin

    # -- ends --------------------------------------------------------------------------------

    def ends(self, trial: FrozenTrial, *, is_pruned: bool) -> None:
        """A trial is about to end, or to wait: what replaces it is noted where it was told to."""
        doom = self._doomed.pop(trial.number, None)
        if doom is None:
            return
        if is_pruned:
            self._note(trial, doom.replacement)
        elif self.succession.copies is not None:
            self.succession.copies.drop(trial.number)

    def completes(self, trial: FrozenTrial) -> None:
        """A trial is about to complete."""
        self.ends(trial, is_pruned=False)

    def fails(self, trial: FrozenTrial) -> None:
        """A trial is about to fail for good: what replaces it is noted."""
        self.ends(trial, is_pruned=False)
        n_failed = self._failures_before(trial) + 1
        if self._is_off or not self._has_trial_left():
            return
        if n_failed >= N_FAILURES:
            self._replacing.tell(
                f"Trial {trial.number} has failed for good, as the {N_FAILURES - 1} before it in "
                "its place: nobody takes it any more, and the population is smaller by one."
            )
            return
        marks = self._members.marks_beside(trial.number)
        self._replacing.length = self._members.length
        wanted = self._replacing.find_for_failed(
            trial.number, good_first(marks, self._pruner.quantile)
        )
        self._note(trial, replace(wanted, n_failed=n_failed))

    def _failures_before(self, trial: FrozenTrial) -> int:
        """How many have failed for good in the place of a trial, directly before it."""
        origin = Origin.of(trial.system_attrs)
        if origin is None:
            return 0
        noted = Replacement.of(self._members.trial(origin.replaces).system_attrs)
        return 0 if noted is None else noted.n_failed

    def _note(self, trial: FrozenTrial, replacement: Replacement) -> None:
        note = replacement.as_json()
        self._storage.set_trial_system_attr(trial._trial_id, REPLACED_KEY, note)
        self._members.open[trial.number] = replacement

    # -- pausing -----------------------------------------------------------------------------

    def pause(self, trial: FrozenTrial) -> None:
        """Lets a member that has no device any more wait for those behind it."""
        self._turns.pause(trial)

    def resume(self, *, is_last: bool) -> int | None:
        """Takes the member whose turn it is, for this dispatcher; gives its id.

        Args:
            is_last: Nobody else can begin. Else those go first that are still further behind.
        """
        return self._turns.resume(is_last=is_last)

    def take(self, number: int) -> int | None:
        """Takes a member that waits; None where another dispatcher was quicker."""
        return self._turns.take(number)
