"""The Optuna storage of the dispatcher: the running study in memory, the database in batches.

Optuna's samplers and pruners read the whole history at every step. One process owns a running
study, so it keeps the history in memory and answers from there; what changes is collected and
written in few transactions by `flush`. The next trial's number and the claim of a waiting trial
are the only things that need the database at once.
"""

from __future__ import annotations

import copy
from collections import Counter
from collections.abc import Callable, Collection, Container, Mapping, Sequence
from datetime import datetime
from typing import Any

import sqlalchemy as sa
from optuna.distributions import BaseDistribution, check_distribution_compatibility
from optuna.storages import BaseStorage, RDBStorage
from optuna.study import StudyDirection
from optuna.study._frozen import FrozenStudy
from optuna.trial import FrozenTrial, TrialState

from tuner.config.storage_url import masked_url
from tuner.store import optuna_rows
from tuner.store.access import Access
from tuner.store.curves import compact
from tuner.store.engine import open_engine
from tuner.store.optuna_reads import TrialHead, read_heads, read_trials
from tuner.store.ownership import Ownership

#: Reports that wait for a database that does not answer; about 500 MB.
MOST_WAITING = 1_000_000


class BufferedStorage(BaseStorage):
    """An Optuna storage whose writes wait in memory until `flush`.

    Not safe for several threads: one thread owns it, as one thread owns the dispatcher's state.

    Args:
        backend: Optuna's storage of the same database; makes the tables, holds the studies.
        access: How this object reaches that database.
    """

    def __init__(self, backend: RDBStorage, access: Access) -> None:
        self._backend = backend
        self._access = access
        self._trials: dict[int, list[FrozenTrial]] = {}
        self._places: dict[int, tuple[int, int]] = {}
        self._distributions: dict[int, dict[str, BaseDistribution]] = {}
        self._counts: dict[int, Counter[TrialState]] = {}
        self._names: dict[int, str] = {}
        self._directions: dict[int, list[StudyDirection]] = {}
        self._pending = optuna_rows.PendingRows()
        self._n_dropped = 0
        #: What somebody is writing; it may be in the database already.
        self._taken = optuna_rows.PendingRows()
        #: Where several dispatchers share the study: what this one may write.
        self._ownership: Ownership | None = None
        self._write_all: Callable[[], None] = self._write_own
        #: Trials that this object has begun and not ended; nobody else changes them.
        self._own: set[int] = set()

    def __getstate__(self) -> dict[str, Any]:
        self.flush()
        return {"backend": self._backend, "url": self._access.engine.url}

    def __setstate__(self, state: dict[str, Any]) -> None:
        engine = open_engine(state["url"])
        shown = masked_url(engine.url.render_as_string(hide_password=False))
        BufferedStorage.__init__(self, state["backend"], Access(engine, shown))

    def close(self) -> None:
        """Lets every connection go. What was not flushed is lost. Safe to call twice."""
        self._backend.engine.dispose()
        self._access.close()

    def write_for(self, ownership: Ownership, write_all: Callable[[], None]) -> None:
        """From now on a dispatcher owns what is written, and claims its trials.

        Args:
            ownership: Its right to write.
            write_all: Writes what waits here with all else that the dispatcher has to write.
        """
        self._ownership = ownership
        self._write_all = write_all

    # -- what waits to be written ------------------------------------------------------------

    @property
    def has_pending(self) -> bool:
        return bool(self._pending)

    @property
    def n_pending_reports(self) -> int:
        return len(self._pending.curves)

    @property
    def n_dropped_reports(self) -> int:
        """Reports that will never be in the database, because too many waited."""
        return self._n_dropped

    def take_pending(self) -> optuna_rows.PendingRows:
        """Gives what waits, to be written. Call `forget_taken` once that is committed."""
        self._taken, self._pending = self._pending, optuna_rows.PendingRows()
        return self._taken

    def forget_taken(self) -> None:
        self._taken = optuna_rows.PendingRows()

    def unwritten_ends(self) -> list[FrozenTrial]:
        """Trials that have ended here, and perhaps not in the database."""
        changed = {**self._taken.states, **self._pending.states}
        trials = [self.get_trial(trial_id) for trial_id in sorted(changed)]
        return [trial for trial in trials if trial.state.is_finished()]

    def flush(self) -> None:
        """Writes what waits. Safe to call twice.

        Raises:
            Unavailable: If the database does not answer; nothing is forgotten then.
        """
        self._write_all()

    def _write_own(self) -> None:
        if self.has_pending:
            self._access.run(self._pending.write)
            self._pending = optuna_rows.PendingRows()

    def refresh(self, study_id: int) -> list[FrozenTrial]:
        """Reads what other programs did to a study since the last look; gives those trials.

        New trials are read, and of those that this object does not run itself the ones that had
        not ended. A trial that has ended is not changed by anybody.
        """
        known = self._of_study(study_id)
        newest_id = max((trial._trial_id for trial in known[-1:]), default=0)
        unfinished = {
            trial._trial_id: trial
            for trial in known
            if not trial.state.is_finished()
            and trial._trial_id not in self._own
            # What is not written yet cannot be found there.
            and trial._trial_id not in self._pending.states
            and trial._trial_id not in self._taken.states
        }

        def read(connection: sa.Connection) -> list[FrozenTrial]:
            heads = read_heads(connection, study_id, after_id=newest_id, of=unfinished)
            moved = [head for head in heads if _may_have_moved(head, unfinished)]
            return read_trials(connection, study_id, moved) if moved else []

        changed = self._access.run(read)
        return [trial for trial in changed if self._take_in(study_id, trial)]

    def give_up_all_but(self, study_id: int, trial_ids: Collection[int]) -> None:
        """After an accident: lets this object's running trials wait, but for those named.

        What the database holds is theirs too: where the answer to a claim was lost, the claim may
        stand.
        """
        for trial_id in self._own - set(trial_ids):
            if self.get_trial(trial_id).state == TrialState.RUNNING:
                self.set_trial_state_values(trial_id, TrialState.WAITING)
        self.flush()
        ownership = self._ownership
        if ownership is not None:
            self._access.run(lambda c: ownership.give_up_all_but(c, trial_ids))
        self.refresh(study_id)

    def remove_session(self) -> None:
        self.flush()
        self._backend.remove_session()

    # -- studies: rare, so Optuna's own code does it -----------------------------------------

    def create_new_study(
        self, directions: Sequence[StudyDirection], study_name: str | None = None
    ) -> int:
        return self._access.call(lambda: self._backend.create_new_study(directions, study_name))

    def delete_study(self, study_id: int) -> None:
        self.flush()
        self._backend.delete_study(study_id)
        for trial in self._trials.pop(study_id, []):
            self._places.pop(trial._trial_id, None)
        for cache in (self._counts, self._distributions, self._names, self._directions):
            cache.pop(study_id, None)

    def set_study_user_attr(self, study_id: int, key: str, value: Any) -> None:
        self._access.call(lambda: self._backend.set_study_user_attr(study_id, key, value))

    def set_study_system_attr(self, study_id: int, key: str, value: Any) -> None:
        self._access.call(lambda: self._backend.set_study_system_attr(study_id, key, value))

    def get_study_id_from_name(self, study_name: str) -> int:
        return self._access.call(lambda: self._backend.get_study_id_from_name(study_name))

    def get_study_name_from_id(self, study_id: int) -> str:
        if study_id not in self._names:
            self._names[study_id] = self._access.call(
                lambda: self._backend.get_study_name_from_id(study_id)
            )
        return self._names[study_id]

    def get_study_directions(self, study_id: int) -> list[StudyDirection]:
        if study_id not in self._directions:
            self._directions[study_id] = self._access.call(
                lambda: self._backend.get_study_directions(study_id)
            )
        return list(self._directions[study_id])

    def get_study_user_attrs(self, study_id: int) -> dict[str, Any]:
        return self._access.call(lambda: self._backend.get_study_user_attrs(study_id))

    def get_study_system_attrs(self, study_id: int) -> dict[str, Any]:
        return self._access.call(lambda: self._backend.get_study_system_attrs(study_id))

    def get_all_studies(self) -> list[FrozenStudy]:
        return self._access.call(lambda: self._backend.get_all_studies())

    # -- trials ------------------------------------------------------------------------------

    def create_new_trial(self, study_id: int, template_trial: FrozenTrial | None = None) -> int:
        """
        Raises:
            NoTrialLeft: If the study's dispatchers may begin no further one.
        """
        trials = self._of_study(study_id)
        trial = copy.deepcopy(template_trial) if template_trial else _new_trial()
        trial_id, number = self._access.run(lambda c: self._insert(c, study_id, trial))
        if not trial.state.is_finished():
            self._own.add(trial_id)
            # A template may have the curve of one that has ended; this one shall report.
            trial.intermediate_values = dict(trial.intermediate_values)
        if number > len(trials):
            # Others have added some meanwhile; this one is read with them.
            self.refresh(study_id)
        trial.number, trial._trial_id = number, trial_id
        self._places[trial_id] = (study_id, number)
        if number < len(trials):
            self._replace(trial)
        else:
            trials.append(trial)
            self._counts[study_id][trial.state] += 1
            self._replace(trial)
        self._buffer_whole_trial(trial)
        return trial_id

    def set_trial_param(
        self,
        trial_id: int,
        param_name: str,
        param_value_internal: float,
        distribution: BaseDistribution,
    ) -> None:
        trial = self._updatable(trial_id)
        seen = self._distributions.setdefault(self._places[trial_id][0], {})
        if param_name in seen:
            check_distribution_compatibility(seen[param_name], distribution)
        seen[param_name] = distribution
        replaces = param_name in trial.params
        external = distribution.to_external_repr(param_value_internal)
        trial.params = {**trial.params, param_name: external}
        trial.distributions = {**trial.distributions, param_name: distribution}
        self._replace(trial)
        self._pending.add_param(
            trial_id, param_name, param_value_internal, distribution, replaces=replaces
        )

    def set_trial_state_values(
        self, trial_id: int, state: TrialState, values: Sequence[float] | None = None
    ) -> bool:
        trial = self._updatable(trial_id)
        if state == TrialState.RUNNING:
            if trial.state != TrialState.WAITING or not self._claim(trial_id):
                return False
            trial.datetime_start = datetime.now()
        trial.state = state
        if values is not None:
            trial.values = list(values)
            self._pending.add_values(trial_id, values)
        if state.is_finished():
            trial.datetime_complete = datetime.now()
        if state == TrialState.RUNNING:
            self._own.add(trial_id)
        else:
            self._own.discard(trial_id)
        self._replace(trial)
        self._pending.add_state(
            trial_id,
            state,
            started_at=trial.datetime_start,
            completed_at=trial.datetime_complete,
        )
        return True

    def set_trial_intermediate_value(
        self, trial_id: int, step: int, intermediate_value: float
    ) -> None:
        trial = self._updatable(trial_id)
        replaces = step in trial.intermediate_values
        trial.intermediate_values = {**trial.intermediate_values, step: intermediate_value}
        self._replace(trial)
        if len(self._pending.curves) >= MOST_WAITING:
            self._n_dropped += 1
        else:
            self._pending.add_report(trial_id, step, intermediate_value, replaces=replaces)

    def drop_reports(self, trial_id: int, from_step: int) -> None:
        """Forgets the reports of a running trial at `from_step` and later, here and stored."""
        trial = self._updatable(trial_id)
        kept = {s: v for s, v in trial.intermediate_values.items() if s < from_step}
        if len(kept) == len(trial.intermediate_values):
            return
        trial.intermediate_values = kept
        self._replace(trial)
        self._pending.drop_reports(trial_id, from_step)

    def set_trial_user_attr(self, trial_id: int, key: str, value: Any) -> None:
        trial = self._updatable(trial_id)
        replaces = key in trial.user_attrs
        trial.user_attrs = {**trial.user_attrs, key: value}
        self._replace(trial)
        self._pending.add_attr(trial_id, key, value, system=False, replaces=replaces)

    def set_trial_system_attr(self, trial_id: int, key: str, value: Any) -> None:
        trial = self._updatable(trial_id)
        replaces = key in trial.system_attrs
        trial.system_attrs = {**trial.system_attrs, key: value}
        self._replace(trial)
        self._pending.add_attr(trial_id, key, value, system=True, replaces=replaces)

    def get_trial(self, trial_id: int) -> FrozenTrial:
        study_id, number = self._place(trial_id)
        return self._trials[study_id][number]

    def get_trial_id_from_study_id_trial_number(self, study_id: int, trial_number: int) -> int:
        trials = self._of_study(study_id)
        if not 0 <= trial_number < len(trials):
            raise KeyError(f"Study {study_id} has no trial with number {trial_number}.")
        return trials[trial_number]._trial_id

    def get_trial_number_from_id(self, trial_id: int) -> int:
        return self._place(trial_id)[1]

    def get_all_trials(
        self,
        study_id: int,
        deepcopy: bool = True,
        states: Container[TrialState] | None = None,
    ) -> list[FrozenTrial]:
        trials = self._of_study(study_id)
        chosen = [t for t in trials if t.state in states] if states is not None else list(trials)
        return copy.deepcopy(chosen) if deepcopy else chosen

    def completed(self, study_id: int) -> Sequence[FrozenTrial]:
        """Trials that have completed, in the order in which that became known. It only grows."""
        return [t for t in self._of_study(study_id) if t.state is TrialState.COMPLETE]

    def count_trials(self, study_id: int) -> Counter[TrialState]:
        """Trials of a study by state, without a look at each."""
        self._of_study(study_id)
        return Counter(self._counts[study_id])

    # -- inside ------------------------------------------------------------------------------

    def _of_study(self, study_id: int) -> list[FrozenTrial]:
        if study_id not in self._trials:
            self.get_study_name_from_id(study_id)  # KeyError where there is none.
            self._load(study_id)
        return self._trials[study_id]

    def _load(self, study_id: int) -> None:
        read = self._access.run
        trials = read(lambda c: read_trials(c, study_id, later=read))
        self._trials[study_id] = trials
        self._counts[study_id] = Counter(trial.state for trial in trials)
        seen = self._distributions.setdefault(study_id, {})
        for trial in trials:
            self._places[trial._trial_id] = (study_id, trial.number)
            seen.update(trial.distributions)

    def _place(self, trial_id: int) -> tuple[int, int]:
        if trial_id not in self._places:
            # A trial of a study that was not looked at yet.
            study_id = self._access.run(lambda c: optuna_rows.study_of_trial(c, trial_id))
            self._load(study_id)
        return self._places[trial_id]

    def _updatable(self, trial_id: int) -> FrozenTrial:
        """A copy to change: who holds the trial as it was must not see it move."""
        trial = self.get_trial(trial_id)
        self.check_trial_is_updatable(trial_id, trial.state)
        return copy.copy(trial)

    def _replace(self, trial: FrozenTrial) -> None:
        study_id, number = self._places[trial._trial_id]
        self._counts[study_id][self._trials[study_id][number].state] -= 1
        self._counts[study_id][trial.state] += 1
        if trial.state.is_finished():
            trial.intermediate_values = compact(trial.intermediate_values)
        self._trials[study_id][number] = trial

    def _insert(
        self, connection: sa.Connection, study_id: int, trial: FrozenTrial
    ) -> tuple[int, int]:
        if self._ownership is not None:
            self._ownership.begin(connection)
            self._ownership.check_room(connection)
        trial_id, number = optuna_rows.insert_trial(
            connection,
            study_id,
            trial.state,
            started_at=trial.datetime_start,
            completed_at=trial.datetime_complete,
        )
        if self._ownership is not None:
            self._ownership.claim(connection, trial_id)
        return trial_id, number

    def _claim(self, trial_id: int) -> bool:
        self.flush()
        return self._access.run(lambda c: self._claim_in(c, trial_id))

    def _claim_in(self, connection: sa.Connection, trial_id: int) -> bool:
        if self._ownership is None:
            return optuna_rows.claim_waiting_trial(connection, trial_id, datetime.now())
        self._ownership.begin(connection)
        if not self._ownership.may_begin_waiting(connection):
            return False
        is_taken = optuna_rows.claim_waiting_trial(connection, trial_id, datetime.now())
        if is_taken:
            self._ownership.claim(connection, trial_id)
        return is_taken

    def _take_in(self, study_id: int, trial: FrozenTrial) -> bool:
        """Puts a trial that was read into its place; False where it is as it was."""
        trials = self._trials[study_id]
        if trial.number > len(trials):
            return False  # One before it cannot be seen yet; the next look finds both.
        if trial.number == len(trials):
            trials.append(trial)
            self._counts[study_id][trial.state] += 1
        elif trials[trial.number] == trial:
            return False
        else:
            self._places[trial._trial_id] = (study_id, trial.number)
            self._replace(trial)
        self._places[trial._trial_id] = (study_id, trial.number)
        self._distributions.setdefault(study_id, {}).update(trial.distributions)
        return True

    def _buffer_whole_trial(self, trial: FrozenTrial) -> None:
        """What a template brings beyond its state: parameters, values, curves, attributes."""
        trial_id = trial._trial_id
        seen = self._distributions.setdefault(self._places[trial_id][0], {})
        for name, distribution in trial.distributions.items():
            internal = distribution.to_internal_repr(trial.params[name])
            self._pending.add_param(trial_id, name, internal, distribution)
            seen[name] = distribution
        for step, value in trial.intermediate_values.items():
            self._pending.add_report(trial_id, step, value)
        for key, value in trial.user_attrs.items():
            self._pending.add_attr(trial_id, key, value, system=False)
        for key, value in trial.system_attrs.items():
            self._pending.add_attr(trial_id, key, value, system=True)
        if trial.values is not None:
            self._pending.add_values(trial_id, trial.values)


def _may_have_moved(head: TrialHead, known: Mapping[int, FrozenTrial]) -> bool:
    """One that waits changes with its state only; one that runs has ever more reports."""
    before = known.get(head.trial_id)
    return before is None or before.state != head.state or head.state == TrialState.RUNNING


def _new_trial() -> FrozenTrial:
    return FrozenTrial(
        number=-1,
        trial_id=-1,
        state=TrialState.RUNNING,
        value=None,
        values=None,
        datetime_start=datetime.now(),
        datetime_complete=None,
        params={},
        distributions={},
        user_attrs={},
        system_attrs={},
        intermediate_values={},
    )
