"""Applies commands from other terminals and the dashboard to the running study."""

from __future__ import annotations

from typing import assert_never

from tuner.dispatch.attempts.attempt_table import AttemptTable
from tuner.dispatch.attempts.stopping import AttemptStop
from tuner.dispatch.early_stop import EarlyStop
from tuner.dispatch.notice_queue import NoticeQueue
from tuner.dispatch.study_end import StopCause, StudyEnd
from tuner.dispatch.supply.budget_tracker import BudgetTracker
from tuner.dispatch.supply.device_changes import DeviceChanges, Refused
from tuner.dispatch.supply.leasing import Leasing
from tuner.dispatch.supply.loans import Loans
from tuner.dispatch.upkeep.commands import Orders, changed, refusal_text, told
from tuner.dispatch.upkeep.device_usage import Usage
from tuner.dispatch.upkeep.peers import Others
from tuner.domain.attempt import Cause
from tuner.host.clock import Instant
from tuner.store.records.commands import REFUSED, Command, Order
from tuner.store.records.recorder import Recorder


class CommandsApplied:
    """Carries out `tuner pause`, `resume`, `stop`, `set` and `retry`.

    Args:
        orders: Reads commands.
        recorder: Records what was done.
        spending: The budget, which `set` changes.
        device_changes: Applies `set devices=`.
        leasing: The devices.
        usage: Reads the devices.
        others: Whether other dispatchers' devices are counted.
        stopping: Stops single trials.
        early_stop: Stops the study.
        end: Whether the study is stopping already.
        telling: Shows notices to the user.
        attempts: The attempts that hold devices.
        loans: The study's priority among its user's studies; None if the machine is not divided.
    """

    def __init__(
        self,
        *,
        orders: Orders,
        recorder: Recorder,
        spending: BudgetTracker,
        device_changes: DeviceChanges,
        leasing: Leasing,
        usage: Usage,
        others: Others,
        stopping: AttemptStop,
        early_stop: EarlyStop,
        end: StudyEnd,
        telling: NoticeQueue,
        attempts: AttemptTable,
        loans: Loans | None,
    ) -> None:
        self._orders = orders
        self._recorder = recorder
        self._spending = spending
        self._device_changes = device_changes
        self._leasing = leasing
        self._usage = usage
        self._others = others
        self._stopping = stopping
        self._early_stop = early_stop
        self._end = end
        self._say = telling.say
        self._attempts = attempts
        self._loans = loans

    def poll(self, now: Instant) -> None:
        """Applies new commands, at intervals.

        Raises:
            StoreError: If the database cannot be used.
        """
        for command in self._orders.poll(now):
            self._apply(now, command)

    def _apply(self, now: Instant, command: Command) -> None:
        detail = told(command)
        if "devices" in command.arguments:
            try:
                detail = f"{detail} {self._change_devices(now, command)}"
            except Refused as error:
                detail = refusal_text(command, str(error))
                self._recorder.note(REFUSED, at=now.utc, detail=detail)
                self._say(detail)
                return
        self._recorder.note(command.order.value, at=now.utc, detail=detail)
        match command.order:
            case Order.STOP if command.trial_number is not None:
                self._stop_trial(now, command)
                return
            case Order.STOP if self._end.is_stopping:
                return
            case Order.STOP:
                reason = f"stopped by {command.asked_by}"
                self._early_stop.begin(now, StopCause.COMMANDED, reason, told(command))
                return
            case Order.SET:
                self._spending.budget = budget = changed(self._spending.budget, command)
                self._recorder.allow(budget)
                self._others.count_devices(budget.counts_devices)
                self._set_priority(command)
            case Order.PAUSE:
                self._end.put_back_waiting()
            case Order.RESUME | Order.RETRY:
                pass  # It is looked up where trials start.
            case _:
                assert_never(command.order)
        self._say(detail)

    def _change_devices(self, now: Instant, command: Command) -> str:
        """Changes the study's devices.

        Raises:
            Refused: With the reason.
        """
        done = self._device_changes.carry_out(command.arguments["devices"])
        held = [device for live in self._attempts.values() for device in live.grant.devices]
        self._usage.look_at(list(dict.fromkeys([*self._leasing.supply.devices, *held])))
        self._recorder.beat(now.utc, self._leasing.supply.devices)
        return done

    def _set_priority(self, command: Command) -> None:
        priority = command.arguments.get("priority")
        if isinstance(priority, int) and self._loans is not None:
            self._loans.set_priority(priority)

    def _stop_trial(self, now: Instant, command: Command) -> None:
        for live in self._attempts.active:
            if live.attempt.trial_number == command.trial_number:
                self._say(told(command))
                self._stopping.tell(live, now, Cause.COMMANDED, told(command))
