"""Optuna storage queries about trials, from a cache that holds each study once."""

from __future__ import annotations

import copy
from collections import defaultdict
from collections.abc import Callable, Collection, Container, Mapping, Sequence, Set

import sqlalchemy as sa
from optuna.storages import RDBStorage
from optuna.trial import FrozenTrial, TrialState

from tuner.store.connection.transactions import Access
from tuner.store.optuna_compat import trial_id_of
from tuner.store.optuna_tables import writes
from tuner.store.optuna_tables.cached_study import HeldStudy, may_have_moved
from tuner.store.optuna_tables.change_stamp import FileStamp, file_stamp
from tuner.store.optuna_tables.curves.memory import CurveMemory
from tuner.store.optuna_tables.curves.reads import ended_curves, without_collector
from tuner.store.optuna_tables.reads import (
    TrialHead,
    bare_trial,
    copied,
    read_heads,
    read_study,
    read_trials,
)
from tuner.store.optuna_tables.running_reads import (
    MOST_WHOLE,
    Marks,
    RunningReads,
    read_added,
    read_marks,
)
from tuner.store.optuna_tables.study_calls import StudyCalls
from tuner.store.optuna_tables.trial_places import TrialPlaces


class HeldTrials(StudyCalls):
    """The storage methods that read trials. A study is loaded on first use.

    Args:
        make_backend: Makes Optuna's storage of the same database on first use.
        access: Runs transactions on that database.
    """

    def __init__(self, make_backend: Callable[[], RDBStorage], access: Access) -> None:
        super().__init__(make_backend, access)
        self._studies: dict[int, HeldStudy] = {}
        self._places = TrialPlaces()
        self._curves = CurveMemory(ended_curves(access.run))
        #: From the last read of each study.
        self._stamps: dict[int, FileStamp | None] = {}
        self._running_reads: defaultdict[int, RunningReads] = defaultdict(RunningReads)

    def delete_study(self, study_id: int) -> None:
        super().delete_study(study_id)
        self._studies.pop(study_id, None)
        self._places.forget(study_id)

    def get_trial(self, trial_id: int) -> FrozenTrial:
        study_id, number = self._place(trial_id)
        return self._studies[study_id].trials[number]

    def get_trial_id_from_study_id_trial_number(self, study_id: int, trial_number: int) -> int:
        trials = self._study(study_id).trials
        if not 0 <= trial_number < len(trials):
            raise KeyError(f"Study {study_id} has no trial with number {trial_number}.")
        return trial_id_of(trials[trial_number])

    def get_trial_number_from_id(self, trial_id: int) -> int:
        return self._place(trial_id)[1]

    def get_all_trials(
        self,
        study_id: int,
        deepcopy: bool = True,
        states: Container[TrialState] | None = None,
    ) -> list[FrozenTrial]:
        study = self._study(study_id)
        chosen = list(study.trials) if states is None else study.of_states(states)
        return copy.deepcopy(chosen) if deepcopy else chosen

    def count_trials(self, study_id: int) -> Mapping[TrialState, int]:
        """Trials of a study by state, without a look at each. Not a copy: it changes with them."""
        return self._study(study_id).counts

    def n_known(self, study_id: int) -> int:
        """Number of trials of a study that were read or created, in any state."""
        return len(self._study(study_id).trials)

    def completed(self, study_id: int) -> Sequence[FrozenTrial]:
        """The completed trials in order of completion, as far as known.

        Not a copy: it only grows, so a reader can continue where it stopped.
        """
        return self._study(study_id).completed

    def move_to(self, make_backend: Callable[[], RDBStorage]) -> None:
        super().move_to(make_backend)
        self.look_again()

    def look_again(self) -> None:
        """Invalidates the cache after trials were changed directly in the database."""
        self._stamps.clear()

    def read_again(self, study_id: int, trial_ids: Collection[int]) -> None:
        """Reads ended trials again that wait again."""
        if not trial_ids or study_id not in self._studies:
            return

        def read(connection: sa.Connection) -> list[FrozenTrial]:
            heads = read_heads(connection, study_id)
            return read_trials(connection, study_id, [h for h in heads if h.trial_id in trial_ids])

        for trial in self._access.run(read):
            self._take_in(study_id, trial)

    # -- inside ------------------------------------------------------------------------------

    def _study(self, study_id: int) -> HeldStudy:
        if study_id not in self._studies:
            self.get_study_name_from_id(study_id)  # KeyError where there is none.
            self._load(study_id)
        return self._studies[study_id]

    def _load(self, study_id: int) -> None:
        def read(connection: sa.Connection) -> HeldStudy:
            with without_collector():
                return HeldStudy(read_study(connection, study_id, self._curves))

        self._studies[study_id] = study = self._access.run(read)
        self._places.put_all(study_id, study.trials)

    def _place(self, trial_id: int) -> tuple[int, int]:
        found = self._places.find(trial_id)
        if found is None:
            # A trial of a study that was not looked at yet.
            study_id = self._access.run(lambda c: writes.study_of_trial(c, trial_id))
            self._load(study_id)
            found = self._places.find(trial_id)
        if found is None:
            raise KeyError(trial_id)
        return found

    def _updatable(self, trial_id: int) -> FrozenTrial:
        """A copy to change: references to the old trial must not see changes."""
        trial = self.get_trial(trial_id)
        self.check_trial_is_updatable(trial_id, trial.state)
        return copied(trial)

    def _put(self, study_id: int, trial: FrozenTrial) -> None:
        kept = self._studies[study_id].put(trial)
        self._places.put(study_id, trial)
        if kept.state.is_finished():
            self._curves.add_ended(trial_id_of(kept), kept.intermediate_values)

    def _read_changes(
        self, study_id: int, *, own: Collection[int], unwritten: Set[int]
    ) -> list[FrozenTrial]:
        """Reads changes by other processes since the last read; returns those trials.

        Reads new trials, and unfinished trials that this object does not run itself. Ended trials
        never change.

        Args:
            study_id: Id of the study.
            own: Trials that this object runs.
            unwritten: Trials with changed states that are not written.
        """
        study = self._study(study_id)
        newest_id = 0 if study.newest is None else trial_id_of(study.newest)
        not_ours = {
            trial_id: trial for trial_id, trial in study.unfinished.items() if trial_id not in own
        }
        known = {trial_id: not_ours[trial_id] for trial_id in not_ours.keys() - unwritten}
        running = {
            trial_id: trial
            for trial_id, trial in known.items()
            if trial.state is TrialState.RUNNING
        }
        reads = self._running_reads[study_id]
        plan = reads.plan(running)
        stamp: FileStamp | None = None
        marks: Marks | None = None
        is_same = False

        def read(connection: sa.Connection) -> list[FrozenTrial]:
            nonlocal stamp, marks, is_same
            stamp = file_stamp(connection)
            is_same = stamp is not None and stamp == self._stamps.get(study_id)
            if is_same:
                return []
            marks = read_marks(connection) if len(running) > MOST_WHOLE else None
            heads = read_heads(connection, study_id, after_id=newest_id, of=known)
            # Of a new trial that runs all rows are as new.
            bare = {
                head.trial_id: bare_trial(head)
                for head in heads
                if plan.after is not None and _has_just_begun(head, known)
            }
            moved = [
                head
                for head in heads
                if head.trial_id not in bare
                and may_have_moved(
                    known.get(head.trial_id),
                    head.state,
                    head.started_at,
                    is_due=plan.after is None or head.trial_id in plan.whole,
                )
            ]
            whole = read_trials(connection, study_id, moved) if moved else []
            if plan.after is None:
                return whole
            rest = running | bare
            for head in moved:
                rest.pop(head.trial_id, None)
            added = bare | read_added(connection, rest, plan.after)
            return sorted([*whole, *added.values()], key=lambda trial: trial.number)

        changed = self._access.run(read)
        if not is_same:
            reads.looked(plan, running, marks)
        # What was left out has to be looked at next time.
        self._stamps[study_id] = stamp if len(known) == len(not_ours) else None
        return [trial for trial in changed if self._take_in(study_id, trial)]

    def _take_in(self, study_id: int, trial: FrozenTrial) -> bool:
        """Stores a trial that was read; False if it is unchanged."""
        trials = self._studies[study_id].trials
        if trial.number > len(trials):
            return False  # One before it cannot be seen yet; the next look finds both.
        if trial.number < len(trials) and trials[trial.number] == trial:
            return False
        self._put(study_id, trial)
        return True


def _has_just_begun(head: TrialHead, known: Mapping[int, FrozenTrial]) -> bool:
    return head.trial_id not in known and head.state is TrialState.RUNNING
