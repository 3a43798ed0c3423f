"""Rungs that end trials and whose order is checked, as a dispatcher has them."""

from __future__ import annotations

from collections.abc import Callable

from tuner.search.pruners.asha import AshaPruner
from tuner.search.rungs.order.check import OrderCheck
from tuner.search.rungs.order.stored_trust import StoredTrust, TrustJson


class CheckedRungs:
    """Ends trials at rungs whose order is checked, as a dispatcher does.

    Args:
        pruner: Defines the rungs.
        note: Stores with a running trial how far the rungs can be trusted, where one opens or
            closes, and before it completes: the sampler reads it.
    """

    def __init__(self, pruner: AshaPruner, note: Callable[[int, TrustJson], None]) -> None:
        self._note = note
        self._n_changes = self._n_ended = self._n_weak = 0
        self._table = pruner.new_table(pruner.least_rung)
        self._table.is_final = True
        self._orders = OrderCheck()

    def is_weak(self, number: int, step: int, value: float, *, held_s: float, n_begun: int) -> bool:
        """Whether a trial ends here.

        Args:
            number: Its number.
            step: Step of its report.
            value: The larger the better.
            held_s: Seconds since its worker took it up.
            n_begun: Trials that have begun.
        """
        table = self._table
        if table.is_halfway(number, step):
            rung = table.rung_of(number)
            self._orders.pass_halfway(number, self._losses(number, rung), -value)
            self._judge(number)
        n_running = n_begun - self._n_ended - self._n_weak
        for rung in table.come(number, table.rung_at(step), -value):
            self._orders.come(number, self._losses(number, rung), step_s=held_s / step)
            self._judge(number)
            if not table.standing(number, rung).goes_on:
                return not self._is_spared(number, rung, n_running)
        return self._is_weak_again(number, step, n_running)

    def _is_spared(self, number: int, rung: int, n_running: int) -> bool:
        is_spared = self._orders.take_witness(number, rung, n_running=n_running)
        if not is_spared:
            self._leave(number)
        return is_spared

    def _is_weak_again(self, number: int, step: int, n_running: int) -> bool:
        if not self._table.is_halfway(number, step):
            return False
        standing = self._table.standing(number, self._table.rung_of(number))
        if standing.goes_on:
            return False
        ends = self._orders.may_end_again(number, standing.rung, n_running=n_running)
        if ends:
            self._leave(number)
        return ends

    def _leave(self, number: int) -> None:
        self._n_weak += 1
        self._orders.leave(number)

    def complete(self, number: int, value: float) -> None:
        """A trial that still runs is about to complete."""
        rung = self._table.rung_of(number)
        self._orders.end(number, self._losses(number, rung), -value)
        self._n_ended += 1
        self._judge(number, is_end=True)

    def _judge(self, number: int, *, is_end: bool = False) -> None:
        has_changed = self._orders.judge()
        self._table.open_rungs = self._orders.open_rungs
        self._n_changes += has_changed
        if has_changed or is_end:
            trust = StoredTrust.of(
                self._orders.trust(), self._table, n_changes=self._n_changes, n_ended=self._n_ended
            )
            self._note(number, trust.as_json())

    def _losses(self, number: int, rung: int) -> list[float]:
        return [self._table.loss_of(number, each) for each in range(rung + 1)]
