"""The ranking check of a study: learns from rungs, stores its state, and formats it.

Its state is in two attributes of trials, so that later starts and other dispatchers continue from
it: which trials are witnesses and, with each completed trial, how far the rungs could be trusted.
"""

from __future__ import annotations

from collections.abc import Sequence

from optuna.trial import FrozenTrial

from tuner.search.rungs.order_check import OrderCheck
from tuner.search.rungs.stored_trust import TRUST_KEY, StoredTrust, trust_sentence
from tuner.search.rungs.table import RungTable
from tuner.store.optuna_compat import trial_id_of
from tuner.store.optuna_tables.pauses import is_paused
from tuner.store.optuna_tables.storage import BufferedStorage

WITNESS_KEY = "tuner:witness"
"""Attribute of a trial that is trained on for the ranking check: the step where it was weak."""


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
        #: Trials that completed: each is counted once.
        self._ended: set[int] = set()
        self._messages: list[str] = []

    def learn(self, number: int, rungs: Sequence[int], *, step_s: float | None = None) -> None:
        """Records the rungs that a trial has newly reached.

        Args:
            number: Its number.
            rungs: The rungs.
            step_s: Seconds per step so far, its start included; None if unknown.
        """
        for rung in rungs:
            self._check.come(number, self._losses(number, rung), step_s=step_s)

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
        if self._check.judge():
            self._note(trial, has_changed=True)

    def end(self, trial: FrozenTrial, loss: float) -> None:
        """Records the end of a running trial, before it completes.

        Args:
            trial: The trial.
            loss: Its last reported loss; the smaller the better.
        """
        self._learn_end(trial.number, loss)
        self._note(trial, has_changed=self._check.judge())

    def sync(self, trial: FrozenTrial, loss: float | None) -> None:
        """Reads a trial from the storage, after its rungs.

        Args:
            trial: The trial.
            loss: Its final loss; None if it did not complete.
        """
        if WITNESS_KEY in trial.system_attrs and trial.number not in self._witnesses:
            self._witnesses.add(trial.number)
            self._check.add_witness(trial.number)
        if (stored := trial.system_attrs.get(TRUST_KEY)) is not None:
            self._take_over(StoredTrust.from_json(stored))
        if loss is not None and trial.number not in self._ended:
            self._learn_end(trial.number, loss)
        elif trial.state.is_finished() or is_paused(trial):
            self._check.leave(trial.number)

    def spares(self, trial: FrozenTrial, rung: int) -> bool:
        """Whether a trial that a rung would end or pause is trained on to check the order."""
        if not self._check.take_witness(trial.number):
            return False
        if trial.number not in self._witnesses:
            self._witnesses.add(trial.number)
            step = self._table.step_of(rung)
            self._storage.set_trial_system_attr(trial_id_of(trial), WITNESS_KEY, step)
        return True

    def leave(self, number: int) -> None:
        """A trial has paused, or ended without a result."""
        self._check.leave(number)

    def take_messages(self) -> list[str]:
        """Returns and clears the messages for the user."""
        messages, self._messages = self._messages, []
        return messages

    def _losses(self, number: int, rung: int) -> list[float]:
        return [self._table.loss_of(number, each) for each in range(rung + 1)]

    def _learn_end(self, number: int, loss: float) -> None:
        self._ended.add(number)
        self._check.end(number, self._losses(number, self._table.rung_of(number)), loss)

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
