"""The dispatcher's Optuna storage: the running study in memory, writes to the database in batches.

Optuna's samplers and pruners read the whole history at every step. One process owns a running
study, so it keeps the history in memory and answers from there; changes are buffered and written in
few transactions by `flush`. Only the next trial's number and the claim of a waiting trial need the
database at once.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import datetime
from typing import Any

import sqlalchemy as sa
from optuna.distributions import BaseDistribution, check_distribution_compatibility
from optuna.storages import RDBStorage
from optuna.trial import FrozenTrial, TrialState

from tuner.config.storage_url import masked_url
from tuner.store.connection.engine import open_engine
from tuner.store.connection.transactions import Access
from tuner.store.optuna_compat import renumber, trial_id_of
from tuner.store.optuna_tables import studies
from tuner.store.optuna_tables import writes as optuna_rows
from tuner.store.optuna_tables.added_trials import (
    Added,
    added_after,
    claim_waiting,
    insert_trial,
    new_trial,
)
from tuner.store.optuna_tables.cached_trials import HeldTrials
from tuner.store.optuna_tables.curves.growing_curve import grown
from tuner.store.records.dispatchers.ownership import Ownership

#: Reports that wait for a database that does not answer; about 500 MB.
MOST_WAITING = 1_000_000


MayBegin = Callable[[sa.Connection], bool]
"""Whether a trial may be added, as a look in the transaction that adds it shows."""
Choose = Callable[[sa.Connection], Mapping[str, Any] | None]
"""Chooses the attributes of a trial in the transaction that adds it; None to add none."""


class BufferedStorage(HeldTrials):
    """An Optuna storage whose writes are buffered until `flush`.

    Not thread-safe: one thread owns it, as one thread owns the dispatcher's state.

    Args:
        make_backend: Makes Optuna's storage of the same database on first use.
        access: Runs transactions on that database.
    """

    def __init__(self, make_backend: Callable[[], RDBStorage], access: Access) -> None:
        super().__init__(make_backend, access)
        self._pending = optuna_rows.PendingRows()
        self._n_dropped = 0
        #: Rows that are being written; they may be in the database already.
        self._taken = optuna_rows.PendingRows()
        #: Write permissions of this dispatcher if several share the study.
        self._ownership: Ownership | None = None
        self._write_all: Callable[[], None] = self._write_own
        #: Trials that this object has started and not ended; no other process changes them.
        self._own: set[int] = set()
        #: Whether the database is never read again.
        self._is_alone = False

    def __getstate__(self) -> dict[str, Any]:
        self.flush()
        return {"make_backend": self._make_backend, "url": self._access.engine.url}

    def __setstate__(self, state: dict[str, Any]) -> None:
        engine = open_engine(state["url"])
        shown = masked_url(engine.url.render_as_string(hide_password=False))
        BufferedStorage.__init__(self, state["make_backend"], Access(engine, shown))

    def write_for(self, ownership: Ownership, write_all: Callable[[], None]) -> None:
        """Makes a dispatcher the owner of writes and claims.

        Args:
            ownership: Its right to write.
            write_all: Writes these rows together with all other records of the dispatcher.
        """
        self._ownership = ownership
        self._write_all = write_all

    @property
    def n_trials_left(self) -> float:
        """Number of further trials that the study may have; infinite without a limit."""
        if self._ownership is None or self._ownership.n_trials is None:
            return math.inf
        return self._ownership.n_trials - len(self._study(self._ownership.study_id).trials)

    def stay_in_memory(self) -> None:
        """Stops reading the database: no other process has trials, or reads these.

        The caller must take and drop the pending rows (`take_pending`).
        """
        self._is_alone = True

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
        """Returns the pending rows for writing. Call `forget_taken` once they are committed."""
        self._taken, self._pending = self._pending, optuna_rows.PendingRows()
        return self._taken

    def forget_taken(self) -> None:
        self._taken = optuna_rows.PendingRows()
        self._forget_written_curves()

    def unwritten_ends(self) -> list[FrozenTrial]:
        """Trials that have ended here, and perhaps not in the database."""
        changed = {**self._taken.states, **self._pending.states}
        trials = [self.get_trial(trial_id) for trial_id in sorted(changed)]
        return [trial for trial in trials if trial.state.is_finished()]

    def flush(self) -> None:
        """Writes the pending rows. Safe to call twice.

        Raises:
            Unavailable: If the database does not answer; then nothing is lost.
        """
        self._write_all()

    def _write_own(self) -> None:
        if self.has_pending:
            self._access.run(self._pending.write)
            self._pending = optuna_rows.PendingRows()
            self._forget_written_curves()

    def _forget_written_curves(self) -> None:
        if not self._is_alone and not self._n_dropped:
            self._curves.written(lambda: {trial_id for trial_id, _ in self._pending.curves})

    def refresh(self, study_id: int) -> list[FrozenTrial]:
        """Reads changes by other programs since the last read; returns those trials."""
        if self._is_alone:
            return []
        # What is not written yet cannot be found there.
        unwritten = self._pending.states.keys() | self._taken.states.keys()
        return self._read_changes(study_id, own=self._own, unwritten=unwritten)

    def give_up_all_but(self, study_id: int, trial_ids: Collection[int]) -> None:
        """After an outage: makes this object's running trials wait, except the given ones.

        This includes trials only known to the database: if the reply to a claim was lost, the claim
        may be stored.
        """
        for trial_id in self._own - set(trial_ids):
            if self.get_trial(trial_id).state == TrialState.RUNNING:
                self.set_trial_state_values(trial_id, TrialState.WAITING)
        self.flush()
        ownership = self._ownership
        if ownership is not None:
            self._access.run(lambda c: ownership.give_up_all_but(c, trial_ids))
            self.look_again()
        self.refresh(study_id)

    def remove_session(self) -> None:
        self.flush()
        super().remove_session()

    def delete_study(self, study_id: int) -> None:
        self.flush()
        super().delete_study(study_id)

    # -- trials ------------------------------------------------------------------------------

    def create_new_trial(self, study_id: int, template_trial: FrozenTrial | None = None) -> int:
        """Adds a trial.

        Raises:
            NoTrialLeft: If the study's dispatchers may start no further trial.
        """
        study = self._study(study_id)
        trial = copy.deepcopy(template_trial) if template_trial else new_trial()
        if self._is_alone:
            added = added_after(study.newest)
        else:
            ownership, newest = self._ownership, study.newest
            added = self._access.run(
                lambda c: insert_trial(c, study_id, trial, newest=newest, ownership=ownership)
            )
        self._take_in_added(study_id, trial, added)
        self._pending.add_whole(trial)
        return added.trial_id

    def begin_trial(
        self, study_id: int, attributes: Mapping[str, Any], may_begin: MayBegin
    ) -> int | None:
        """Adds a running trial with its attributes in one transaction.

        Args:
            study_id: Id of the study.
            attributes: Optuna's system attributes.
            may_begin: Decides in this transaction whether the trial may be added; no other process
                adds one before its end. If false, none is added.

        Returns:
            The trial's id; None for none.

        Raises:
            NoTrialLeft: If the study's dispatchers may start no further trial.
        """
        return self.begin_chosen(study_id, lambda c: attributes if may_begin(c) else None)

    def begin_chosen(self, study_id: int, choose: Choose) -> int | None:
        """Like `begin_trial`, with attributes that are chosen in the same transaction.

        Args:
            study_id: Id of the study.
            choose: Returns the attributes. No other process adds a trial meanwhile.

        Returns:
            The trial's id; None if `choose` returned None.

        Raises:
            NoTrialLeft: If the study's dispatchers may start no further trial.
        """
        self.flush()  # What is looked at is in the database.
        trial = new_trial()
        newest = self._study(study_id).newest
        if self._is_alone:
            chosen = self._access.run(choose)
            if chosen is None:
                return None
            trial.system_attrs = dict(chosen)
            self._take_in_added(study_id, trial, added_after(newest))
            return trial_id_of(trial)

        def insert(connection: sa.Connection) -> Added | None:
            self._begin_adding(connection, study_id)
            attributes = choose(connection)
            if attributes is None:
                return None
            trial.system_attrs = dict(attributes)
            added = insert_trial(
                connection, study_id, trial, newest=newest, ownership=self._ownership
            )
            optuna_rows.insert_attributes(connection, added.trial_id, attributes)
            return added

        added = self._access.run(insert)
        if added is None:
            return None
        self._take_in_added(study_id, trial, added)
        return added.trial_id

    def _begin_adding(self, connection: sa.Connection, study_id: int) -> None:
        """No other process adds a trial before the transaction's end."""
        if self._ownership is not None:
            self._ownership.begin(connection)
        else:
            studies.begin_alone(connection, study_id)

    def count_up(self, study_id: int, key: str) -> int:
        """The next number of a study's sequence, from 0, unique over all processes.

        Args:
            study_id: Id of the study.
            key: The study's system attribute with the last number.
        """
        return self._access.run(lambda c: studies.count_up(c, study_id, key))

    def set_trial_param(
        self,
        trial_id: int,
        param_name: str,
        param_value_internal: float,
        distribution: BaseDistribution,
    ) -> None:
        trial = self._updatable(trial_id)
        study_id = self._places.study_of(trial_id)
        seen = self._studies[study_id].distributions
        if param_name in seen:
            check_distribution_compatibility(seen[param_name], distribution)
        replaces = param_name in trial.params
        external = distribution.to_external_repr(param_value_internal)
        trial.params = {**trial.params, param_name: external}
        trial.distributions = {**trial.distributions, param_name: distribution}
        self._put(self._places.study_of(trial_id), trial)
        self._pending.add_param(
            trial_id, param_name, param_value_internal, distribution, replaces=replaces
        )

    def set_trial_state_values(
        self, trial_id: int, state: TrialState, values: Sequence[float] | None = None
    ) -> bool:
        trial = self._updatable(trial_id)
        if state == TrialState.RUNNING:
            claimed = self._claim(trial) if trial.state == TrialState.WAITING else None
            if claimed is None:
                return False
            trial = claimed
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
        self._put(self._places.study_of(trial_id), trial)
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
        trial.intermediate_values = grown(trial.intermediate_values, step, intermediate_value)
        self._put(self._places.study_of(trial_id), trial)
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
        self._put(self._places.study_of(trial_id), trial)
        self._pending.drop_reports(trial_id, from_step)

    def set_trial_user_attr(self, trial_id: int, key: str, value: Any) -> None:
        trial = self._updatable(trial_id)
        replaces = key in trial.user_attrs
        trial.user_attrs = {**trial.user_attrs, key: value}
        self._put(self._places.study_of(trial_id), trial)
        self._pending.add_attr(trial_id, key, value, system=False, replaces=replaces)

    def set_trial_system_attr(self, trial_id: int, key: str, value: Any) -> None:
        trial = self._updatable(trial_id)
        replaces = key in trial.system_attrs
        trial.system_attrs = {**trial.system_attrs, key: value}
        self._put(self._places.study_of(trial_id), trial)
        self._pending.add_attr(trial_id, key, value, system=True, replaces=replaces)

    # -- inside ------------------------------------------------------------------------------

    def _take_in_added(self, study_id: int, trial: FrozenTrial, added: Added) -> None:
        if not trial.state.is_finished():
            self._own.add(added.trial_id)
            # A template may have the curve of an ended trial; this trial will report.
            trial.intermediate_values = dict(trial.intermediate_values)
        for other in added.before:
            self._take_in(study_id, other)
        if added.number > len(self._study(study_id).trials):
            self.refresh(study_id)
        renumber(trial, added.number, added.trial_id)
        self._put(study_id, trial)

    def _claim(self, trial: FrozenTrial) -> FrozenTrial | None:
        """Gives a trial as it is stored, which may have run elsewhere since the last look."""
        if self._is_alone:
            trial.datetime_start = datetime.now()
            return trial
        self.flush()
        ownership = self._ownership
        study_id = self._places.study_of(trial_id_of(trial))
        return self._access.run(lambda c: claim_waiting(c, study_id, trial, ownership=ownership))
