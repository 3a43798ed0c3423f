"""The state of a population: members, waiting trials and pending replacements."""

from __future__ import annotations

from optuna.study import StudyDirection
from optuna.trial import FrozenTrial, TrialState

from tuner.search.population.pbt import PbtPruner
from tuner.search.population.ranking import Course, Mark
from tuner.store.optuna_compat import trial_id_of
from tuner.store.optuna_tables.pauses import PAUSED_KEY, is_paused
from tuner.store.optuna_tables.storage import BufferedStorage
from tuner.store.records.population_rows import COPY_KEY, MEMBER_KEY, Origin, Replacement

#: Members that were ended early no longer belong to the population.
_JUDGED = (TrialState.RUNNING, TrialState.WAITING, TrialState.COMPLETE)


class Members:
    """The trials of one population, kept in sync with the storage.

    Args:
        pruner: The rules.
        storage: Holds the study.
        study_id: Its id.
        direction: The direction of its objective.
    """

    def __init__(
        self,
        pruner: PbtPruner,
        storage: BufferedStorage,
        study_id: int,
        direction: StudyDirection,
    ) -> None:
        self._pruner = pruner
        self._storage = storage
        self._study_id = study_id
        self._sign = -1.0 if direction is StudyDirection.MAXIMIZE else 1.0
        self._n_seen = 0
        self._drawn: set[int] = set()
        #: Numbers of members whose replacements have started.
        self._replaced: set[int] = set()
        #: Replacements that have not started, by number of the ended member.
        self.open: dict[int, Replacement] = {}
        #: By number: the step at which a member is paused.
        self.paused: dict[int, int] = {}
        #: Steps of a whole trial; None if unknown.
        self.length = pruner.max_resource

    @property
    def n_missing(self) -> int:
        """Number of members still to be drawn."""
        self.catch_up()
        return max(0, self._pruner.population - len(self._drawn))

    def catch_up(self) -> None:
        """Adds trials that reached the storage in other ways than through a sync."""
        if self._storage.n_known(self._study_id) > self._n_seen:
            trials = self._storage.get_all_trials(self._study_id, deepcopy=False)
            for trial in trials[self._n_seen :]:
                self.take_in(trial)
            self._n_seen = len(trials)

    def take_in(self, trial: FrozenTrial) -> None:
        """Updates a trial from the storage."""
        attributes = trial.system_attrs
        if MEMBER_KEY in attributes:
            self._drawn.add(trial.number)
        if (origin := Origin.of(attributes)) is not None:
            self.note_replaced(origin.replaces)
        wanted = Replacement.of(attributes)
        if wanted is not None and trial.state.is_finished() and trial.number not in self._replaced:
            self.open[trial.number] = wanted
        if trial.state is TrialState.COMPLETE:
            self.note_length(trial)
        if is_paused(trial):
            self.paused[trial.number] = attributes[PAUSED_KEY]
        else:
            self.paused.pop(trial.number, None)

    def note_replaced(self, number: int) -> None:
        """Records that a member's replacement has started."""
        self._replaced.add(number)
        self.open.pop(number, None)

    def note_length(self, trial: FrozenTrial) -> None:
        """Learns the length of a whole training from a completed trial."""
        if self._pruner.max_resource is None and trial.intermediate_values:
            self.length = max(self.length or 0, *trial.intermediate_values)

    def adopt(self, trial: FrozenTrial) -> None:
        """Makes an enqueued trial a member when it starts."""
        if not is_member(trial):
            self._storage.set_trial_system_attr(trial_id_of(trial), MEMBER_KEY, True)
            self._drawn.add(trial.number)

    def trial(self, number: int) -> FrozenTrial:
        """A trial from the storage."""
        storage = self._storage
        trial_id = storage.get_trial_id_from_study_id_trial_number(self._study_id, number)
        return storage.get_trial(trial_id)

    # -- how they stand ----------------------------------------------------------------------

    def mark_of(self, trial: FrozenTrial) -> Mark | None:
        """A member's mark at its latest interval; None before its first."""
        at = course_of(trial).latest(self._pruner.interval)
        return None if at is None else self._mark(trial, at)

    def marks(self, at: int) -> list[Mark]:
        """Marks of all members that reached an interval, except those ended early."""
        trials = self._storage.get_all_trials(self._study_id, deepcopy=False, states=_JUDGED)
        found = (self._mark(each, at) for each in trials if is_member(each))
        return [mark for mark in found if mark is not None]

    def marks_beside(self, number: int) -> list[list[Mark]]:
        """Marks of all other members at each interval that any has reached, the furthest first."""
        every = self._pruner.interval
        trials = self._storage.get_all_trials(self._study_id, deepcopy=False, states=_JUDGED)
        latest = [course_of(each).latest(every) for each in trials if is_member(each)]
        furthest = max((each for each in latest if each is not None), default=0)
        found = (self.marks(at) for at in range(furthest, 0, -every))
        return [[mark for mark in marks if mark.number != number] for marks in found]

    def is_end(self, step: int) -> bool:
        """Whether a trial ends at a step."""
        return self.length is not None and step >= self.length

    def _mark(self, trial: FrozenTrial, at: int) -> Mark | None:
        return course_of(trial).mark(at, self._pruner.interval, self._sign)


def is_member(trial: FrozenTrial) -> bool:
    """Whether a trial was drawn for a population, or replaced a member."""
    return MEMBER_KEY in trial.system_attrs or COPY_KEY in trial.system_attrs


def course_of(trial: FrozenTrial) -> Course:
    """The reports of a member, and its first step."""
    origin = Origin.of(trial.system_attrs)
    begun_at = origin.step if origin is not None else 0
    return Course(number=trial.number, curve=trial.intermediate_values, begun_at=begun_at)
