"""The ranking check of a study: learns from rungs, stores its state, and formats it.

Its state is in three attributes of trials, so that later starts and other dispatchers continue from
it: which trials are witnesses, which have relapsed and, with each completed trial, how far the
rungs could be trusted.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from optuna.trial import FrozenTrial

from tuner.search.rungs.order.agreement import END
from tuner.search.rungs.order.check import OrderCheck
from tuner.search.rungs.order.stored_trust import TRUST_KEY, StoredTrust, trust_sentence
from tuner.search.rungs.table import RungTable, Standing
from tuner.store.optuna_compat import trial_id_of
from tuner.store.optuna_tables.pauses import is_paused
from tuner.store.optuna_tables.storage import BufferedStorage

WITNESS_KEY = "tuner:witness"
"""Attribute of a trial that is trained on for the ranking check: the step where it was weak."""

RELAPSE_KEY = "tuner:relapsed"
"""Attribute of a trial: the rungs at which it was worse than before; k + 0.5 is halfway from rung k
to the next, 0 the end."""


class OrderWatch:
    """Keeps the check of one study, and opens the rungs of its table.

    Args:
        storage: Stores the results.
        table: The rungs.
    """

    def __init__(self, storage: BufferedStorage, table: RungTable) -> None:
        self._storage = storage
        self._table = table
        self._check = OrderCheck()
        self._age = (0, 0)
        self._witnesses: set[int] = set()
        #: By trial that has relapsed: where.
        self._relapses: dict[int, set[float]] = {}
        #: Trials that completed: each is counted once.
        self._ended: set[int] = set()
        self._messages: list[str] = []

    def learn(
        self,
        number: int,
        rungs: Sequence[int],
        *,
        step_s: float | None = None,
        is_stored: bool = False,
    ) -> None:
        """Records the rungs that a trial has newly reached.

        Args:
            number: Its number.
            rungs: The rungs.
            step_s: Seconds per step so far, its start included; None if unknown.
            is_stored: Whether they were read from the storage.
        """
        for rung in rungs:
            losses = self._losses(number, rung)
            self._check.come(number, losses, step_s=step_s, is_stored=is_stored)

    def pass_by(self, trial: FrozenTrial, step: int, loss: float) -> None:
        """Compares a running trial that reports between two rungs.

        Args:
            trial: The trial.
            step: The step of its report.
            loss: The smaller the better.
        """
        if not self._table.is_halfway(trial.number, step):
            return
        losses = self._losses(trial.number, self._table.rung_of(trial.number))
        if self._check.pass_halfway(trial.number, losses, loss):
            self.judge(trial)

    def judge(self, trial: FrozenTrial) -> None:
        """Opens and closes rungs, after a running trial has reached one."""
        self._store_relapses(trial)
        if self._check.judge():
            self._note(trial, has_changed=True)

    def end(self, trial: FrozenTrial, loss: float) -> None:
        """Records the end of a running trial, before it completes.

        Args:
            trial: The trial.
            loss: Its last reported loss; the smaller the better.
        """
        self._learn_end(trial.number, loss)
        self._store_relapses(trial)
        self._note(trial, has_changed=self._check.judge())

    def learn_notes(self, trial: FrozenTrial) -> None:
        """Reads whether a trial is a witness, and whether it has relapsed, before its rungs."""
        weak_at = trial.system_attrs.get(WITNESS_KEY)
        if weak_at is not None and trial.number not in self._witnesses:
            self._witnesses.add(trial.number)
            self._check.add_witness(trial.number, self._table.rung_at(weak_at))
        if (stored := trial.system_attrs.get(RELAPSE_KEY)) is not None:
            places = {each or END for each in stored}
            known = self._relapses.setdefault(trial.number, set())
            self._check.learn_relapses(trial.number, sorted(places - known))
            known |= places

    def sync(self, trial: FrozenTrial, loss: float | None) -> None:
        """Reads a trial from the storage, after its rungs.

        Args:
            trial: The trial.
            loss: Its final loss; None if it did not complete.
        """
        if (stored := trial.system_attrs.get(TRUST_KEY)) is not None:
            self._take_over(StoredTrust.from_json(stored))
        if loss is not None and trial.number not in self._ended:
            self._learn_end(trial.number, loss, is_stored=True)
        elif trial.state.is_finished() or is_paused(trial):
            self._check.leave(trial.number)

    def spares(self, trial: FrozenTrial, rung: int, *, n_running: int) -> bool:
        """Whether a trial that a rung would end or pause is trained on to check the order.

        Args:
            trial: The trial.
            rung: The rung.
            n_running: Trials that train at the moment, on all machines.
        """
        if not self._check.take_witness(trial.number, rung, n_running=n_running):
            return False
        if trial.number not in self._witnesses:
            self._witnesses.add(trial.number)
            step = self._table.step_of(rung)
            self._storage.set_trial_system_attr(trial_id_of(trial), WITNESS_KEY, step)
        return True

    def judge_again(self, number: int, step: int, *, n_running: int) -> Standing | None:
        """Judges a trial that left a rung once more, from halfway to the next one on.

        The first to reach a rung passes it, however weak it is, and witnesses are weak. Where
        trials end that do not pass (one that pauses would have to be resumed), and once what is
        known says that the ranking holds, it is compared with those that came since.

        Args:
            number: Its number.
            step: Step of its report.
            n_running: Trials that train at the moment, on all machines.

        Returns:
            Its standing; None if it continues.
        """
        table = self._table
        is_last = table.length is not None and step >= table.length
        if not table.is_final or is_last or not table.is_halfway(number, step):
            return None
        standing = table.standing(number, table.rung_of(number))
        if standing.goes_on:
            return None
        if not self._check.may_end_again(number, standing.rung, n_running=n_running):
            return None
        return replace(standing, is_again=True)

    def leave(self, number: int) -> None:
        """A trial has paused, was pruned, or ended without a result."""
        self._check.leave(number)

    def take_messages(self) -> list[str]:
        """Returns and clears the messages for the user."""
        messages, self._messages = self._messages, []
        return messages

    def _losses(self, number: int, rung: int) -> list[float]:
        return [self._table.loss_of(number, each) for each in range(rung + 1)]

    def _learn_end(self, number: int, loss: float, *, is_stored: bool = False) -> None:
        self._ended.add(number)
        losses = self._losses(number, self._table.rung_of(number))
        self._check.end(number, losses, loss, is_stored=is_stored)

    def _store_relapses(self, trial: FrozenTrial) -> None:
        for number, place in self._check.take_relapses():
            assert number == trial.number, "stored after each comparison"
            known = self._relapses.setdefault(number, set())
            known.add(place)
            stored = sorted(0 if each == END else each for each in known)
            self._storage.set_trial_system_attr(trial_id_of(trial), RELAPSE_KEY, stored)

    def _take_over(self, stored: StoredTrust) -> None:
        if stored.n_changes > self._age[0]:
            self._check.restore([each.trust for each in stored.rungs])
            self._table.open_rungs = self._check.open_rungs
        self._age = max(self._age, stored.age)

    def _note(self, trial: FrozenTrial, *, has_changed: bool) -> None:
        self._age = (self._age[0] + has_changed, len(self._ended))
        trust = StoredTrust.of(
            self._check.trust(), self._table, n_changes=self._age[0], n_ended=self._age[1]
        )
        self._storage.set_trial_system_attr(trial_id_of(trial), TRUST_KEY, trust.as_json())
        if has_changed:
            self._table.open_rungs = self._check.open_rungs
            self._messages.append(trust_sentence(trust))
