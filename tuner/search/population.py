"""A population: which member is given up, what replaces it, who waits while others catch up.

A member that is given up ends as a pruned trial; what replaces it is a trial of its own, because
the parameters of a trial of Optuna never change. Its parameters are those of an enqueued trial, and
it goes on from a copy of its parent's checkpoint. Where there are fewer devices than members a
member pauses after an interval, as others do at rungs, until those behind it have come as far.
"""

from __future__ import annotations

import socket
from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import replace
from functools import partial

import sqlalchemy as sa
from optuna.study import StudyDirection
from optuna.trial import FrozenTrial, TrialState

from search_spaces import AnySpace
from tuner.messages import Action
from tuner.search.decision import Decision
from tuner.search.pbt import PbtPruner
from tuner.search.promotion import is_paused
from tuner.search.replacing import Doom, Replacing
from tuner.search.standings import Course, Mark, is_weak, strongest
from tuner.state_copies import StateCopies
from tuner.store.buffered_storage import BufferedStorage, MayBegin
from tuner.store.optuna_rows import PAUSED_KEY
from tuner.store.population_rows import (
    COPY_KEY,
    FIXED_KEY,
    MEMBER_KEY,
    REPLACED_KEY,
    Origin,
    Replacement,
    count_members,
    is_replaced,
)

#: With a member: the step at which it paused last, and does not pause again.
_RESTED_KEY = "tuner:rested"
#: Those that were given up are of the population no more.
_JUDGED = (TrialState.RUNNING, TrialState.WAITING, TrialState.COMPLETE)
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
        self._sign = -1.0 if direction is StudyDirection.MAXIMIZE else 1.0
        self._replacing = Replacing(pruner, storage, study_id, space)
        self._n_seen = 0
        self._members: set[int] = set()
        #: Numbers of members whose copies have begun.
        self._replaced: set[int] = set()
        #: By number of a member that was given up: what takes its place, and has not begun.
        self._open: dict[int, Replacement] = {}
        #: By number.
        self._doomed: dict[int, Doom] = {}
        #: By number: the step where a member waits.
        self._paused: dict[int, int] = {}
        self._length = pruner.max_resource
        #: Whether nobody is replaced any more, and nobody pauses.
        self._is_off = False
        self._catch_up()

    # -- what is known -----------------------------------------------------------------------

    @property
    def paused(self) -> Set[int]:
        """Numbers of the members that wait for those behind them."""
        return self._paused.keys()

    @property
    def has_next(self) -> bool:
        """Whether a member can begin here: one to be drawn, or a copy."""
        return self.lacks_members or next(self._to_begin(), None) is not None

    @property
    def is_over(self) -> bool:
        """Whether nobody waits, and nobody can begin."""
        waiting = self._storage.count_trials(self._study_id)[TrialState.WAITING]
        return not waiting and not self.has_next

    @property
    def has_stopped(self) -> bool:
        """Whether nobody is replaced any more."""
        return self._is_off

    @property
    def copies(self) -> StateCopies | None:
        """Where checkpoints are; None where nobody copies any."""
        return self._replacing.copies

    @copies.setter
    def copies(self, copies: StateCopies) -> None:
        self._replacing.copies = copies

    def take_in(self, trial: FrozenTrial) -> None:
        """A trial as it is stored, here or by others."""
        attributes = trial.system_attrs
        if MEMBER_KEY in attributes:
            self._members.add(trial.number)
        if (origin := Origin.of(attributes)) is not None:
            self._replaced.add(origin.replaces)
            self._open.pop(origin.replaces, None)
        wanted = Replacement.of(attributes)
        if wanted is not None and trial.state.is_finished() and trial.number not in self._replaced:
            self._open[trial.number] = wanted
        if trial.state is TrialState.COMPLETE:
            self.note_length(trial)
        if is_paused(trial):
            self._paused[trial.number] = attributes[PAUSED_KEY]
        else:
            self._paused.pop(trial.number, None)

    def note_length(self, trial: FrozenTrial) -> None:
        """A trial has completed, so that its last step is that of the program."""
        if self._pruner.max_resource is None and trial.intermediate_values:
            self._length = max(self._length or 0, *trial.intermediate_values)

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
        course, every = _course_of(trial), self._pruner.interval
        at = course.latest(every)
        mark = course.mark(at, every, self._sign) if at is not None else None
        if self._is_off or at is None or mark is None or self._is_end(step):
            return _CONTINUE
        marks = self._marks(at)
        if is_weak(mark, marks, self._pruner.quantile):
            told = (
                f"at step {mark.step}, {names[0]} {trial.intermediate_values[mark.step]:.6g} is "
                f"among the weakest {self._pruner.quantile:.3g} of {len(marks)} members"
            )
            if (doom := self._replacement(mark, marks, told)) is not None:
                self._doomed[trial.number] = doom
                return doom.decision
        return self._rest(trial, step) if step == mark.step else _CONTINUE

    def _replacement(self, its: Mark, marks: Sequence[Mark], told: str) -> Doom | None:
        """None where there is nothing to begin a copy from, or no trial is left for it."""
        n_missing = max(0, self._pruner.population - len(self._members))
        if self._storage.n_trials_left <= n_missing + len(self._open) + len(self._doomed):
            return None
        self._replacing.length = self._length
        return self._replacing.find(its, strongest(marks, self._pruner.quantile), told)

    def _rest(self, trial: FrozenTrial, step: int) -> Decision:
        """Lets those go first that wait for a device and are behind."""
        if self._length is None or self.copies is None:
            return _CONTINUE
        if trial.system_attrs.get(_RESTED_KEY) == step or not self._has_behind(step):
            return _CONTINUE
        if not self.copies.has_state(trial.number):
            return _CONTINUE
        reason = f"at step {step}: members of the population that are behind it go first"
        return Decision(action=Action.PAUSE, reason=reason)

    def _is_end(self, step: int) -> bool:
        return self._length is not None and step >= self._length

    def _marks(self, at: int) -> list[Mark]:
        """Of all members that have come to an interval, the one that is judged among them."""
        states, storage = _JUDGED, self._storage
        trials = storage.get_all_trials(self._study_id, deepcopy=False, states=states)
        members = (each for each in trials if _is_member(each))
        every, sign = self._pruner.interval, self._sign
        found = (_course_of(each).mark(at, every, sign) for each in members)
        return [mark for mark in found if mark is not None]

    # -- ends --------------------------------------------------------------------------------

    def ends(self, trial: FrozenTrial, *, is_pruned: bool) -> None:
        """A trial is about to end, or to wait: what replaces it is noted where it was told to."""
        doom = self._doomed.pop(trial.number, None)
        if doom is None:
            return
        if is_pruned:
            note = doom.replacement.as_json()
            self._storage.set_trial_system_attr(trial._trial_id, REPLACED_KEY, note)
            self._open[trial.number] = doom.replacement
        elif self.copies is not None:
            self.copies.drop(trial.number)

    def completes(self, trial: FrozenTrial) -> None:
        """A trial is about to complete."""
        self.ends(trial, is_pruned=False)

    # -- beginnings --------------------------------------------------------------------------

    def begin(self) -> int | None:
        """Begins the next member, for this dispatcher; gives its id, or None where there is none.

        Raises:
            NoTrialLeft: If the study may have no further trial.
        """
        if self.lacks_members:
            may_begin = partial(_may_draw, study_id=self._study_id, n_most=self._pruner.population)
            return self._begun({MEMBER_KEY: True}, may_begin)
        for number in list(self._to_begin()):
            wanted = self._open[number]
            origin = Origin(parent=wanted.parent, step=wanted.step, replaces=number)
            attributes = {COPY_KEY: origin.as_json(), FIXED_KEY: dict(wanted.params)}
            may_begin = partial(_may_replace, study_id=self._study_id, number=number)
            trial_id = self._begun(attributes, may_begin)
            # Else another dispatcher was quicker, and the next look shows its copy.
            self._open.pop(number, None)
            self._replaced.add(number)
            if trial_id is not None:
                return trial_id
        return None

    def adopt(self, trial: FrozenTrial) -> None:
        """A trial that somebody enqueued begins: it is one of the population."""
        if not _is_member(trial):
            self._storage.set_trial_system_attr(trial._trial_id, MEMBER_KEY, True)
            self._members.add(trial.number)

    def hand_over(self, trial: FrozenTrial) -> str:
        """Before an attempt of a copy: its checkpoint gets into its place.

        Returns:
            What people should know; empty where it is there, or the trial is no copy.
        """
        origin = Origin.of(trial.system_attrs)
        if origin is None or not origin.step or self.copies is None:
            return ""
        if self.copies.give(origin.replaces, trial.number) is not None:
            return ""
        self._note(trial, replace(origin, step=0))
        return (
            f"Trial {trial.number} starts from the beginning: the checkpoint of trial "
            f"{origin.parent} at step {origin.step}, which it was to go on from, is not here."
        )

    def counts_anew(self, trial: FrozenTrial, step: int) -> bool:
        """Whether the first step that an attempt of a copy reports is before that of its start."""
        origin = Origin.of(trial.system_attrs)
        if origin is None or step >= origin.step:
            return False
        self._note(trial, replace(origin, is_sure=False))
        return True

    def _note(self, trial: FrozenTrial, origin: Origin) -> None:
        self._storage.set_trial_system_attr(trial._trial_id, COPY_KEY, origin.as_json())

    def _begun(self, attributes: Mapping[str, object], may_begin: MayBegin) -> int | None:
        trial_id = self._storage.begin_trial(self._study_id, attributes, may_begin)
        if trial_id is not None:
            self.take_in(self._storage.get_trial(trial_id))
        return trial_id

    @property
    def lacks_members(self) -> bool:
        """Whether members are to be drawn yet."""
        self._catch_up()
        return len(self._members) < self._pruner.population

    def _to_begin(self) -> Iterator[int]:
        """Numbers of the members whose copies can begin here, the furthest behind first."""
        self._catch_up()
        for number in sorted(self._open, key=lambda each: (self._open[each].step, each)):
            # Else its checkpoint may be on another machine's disk: that machine begins it.
            is_ours = self._open[number].host == socket.gethostname()
            if is_ours or (self.copies is not None and self.copies.is_here(number)):
                yield number

    def _catch_up(self) -> None:
        """Trials that the storage has come to know of on other ways than a look at the others."""
        if self._storage.n_known(self._study_id) > self._n_seen:
            trials = self._storage.get_all_trials(self._study_id, deepcopy=False)
            for trial in trials[self._n_seen :]:
                self.take_in(trial)
            self._n_seen = len(trials)

    # -- pausing -----------------------------------------------------------------------------

    def pause(self, trial: FrozenTrial) -> None:
        """Lets a member that has no device any more wait for those behind it."""
        step = max(trial.intermediate_values, default=0)
        self._storage.set_trial_system_attr(trial._trial_id, PAUSED_KEY, step)
        self._storage.set_trial_system_attr(trial._trial_id, _RESTED_KEY, step)
        self._storage.set_trial_state_values(trial._trial_id, TrialState.WAITING)
        self._paused[trial.number] = step

    def resume(self, *, is_last: bool) -> int | None:
        """Takes the member that is furthest behind, for this dispatcher; gives its id.

        Args:
            is_last: Nobody else can begin. Else those go first that are still further behind.
        """
        while self._paused:
            number = min(self._paused, key=lambda each: (self._paused[each], each))
            if not is_last and self._has_behind(self._paused[number]):
                return None
            if (trial_id := self.take(number)) is not None:
                return trial_id
        return None

    def take(self, number: int) -> int | None:
        """Takes a member that waits; None where another dispatcher was quicker."""
        del self._paused[number]
        trial_id = self._storage.get_trial_id_from_study_id_trial_number(self._study_id, number)
        if not self._storage.set_trial_state_values(trial_id, TrialState.RUNNING):
            return None
        self._storage.set_trial_system_attr(trial_id, PAUSED_KEY, None)
        return trial_id

    def _has_behind(self, step: int) -> bool:
        """Whether somebody waits for a device who has not come as far."""
        waiting = self._storage.count_trials(self._study_id)[TrialState.WAITING]
        if waiting > len(self._paused) or any(each < step for each in self._paused.values()):
            return True
        if self._storage.n_trials_left <= 0:
            return False
        return self.lacks_members or any(
            self._open[number].step < step for number in self._to_begin()
        )


def _is_member(trial: FrozenTrial) -> bool:
    return MEMBER_KEY in trial.system_attrs or COPY_KEY in trial.system_attrs


def _course_of(trial: FrozenTrial) -> Course:
    origin = Origin.of(trial.system_attrs)
    begun_at = origin.step if origin is not None else 0
    return Course(number=trial.number, curve=trial.intermediate_values, begun_at=begun_at)


def _may_draw(connection: sa.Connection, *, study_id: int, n_most: int) -> bool:
    return count_members(connection, study_id) < n_most


def _may_replace(connection: sa.Connection, *, study_id: int, number: int) -> bool:
    return not is_replaced(connection, study_id, number)
