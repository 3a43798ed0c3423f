"""Builds a progress snapshot of a study."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from optuna.trial import TrialState

from tuner.devices.device import DeviceId
from tuner.devices.idle_causes import IdleCause
from tuner.dispatch.attempts.live_attempt import LiveAttempt
from tuner.dispatch.notices import RunningTrial, Snapshot, UserShare
from tuner.dispatch.supply.leasing import Leasing
from tuner.domain.budget import Budget, Spent
from tuner.host.clock import Instant
from tuner.search.study import StudySearch


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreState:
    """How far the database lags behind."""

    #: Seconds since the last commit.
    lag_s: float
    n_unsaved_reports: int


def take_snapshot(
    search: StudySearch,
    live: Sequence[LiveAttempt],
    leasing: Leasing,
    *,
    budget: Budget,
    spent: Spent,
    now: Instant,
    started_at_s: float,
    is_stopping: bool,
    store: StoreState,
    idle: Mapping[DeviceId, IdleCause],
    share: UserShare | None = None,
) -> Snapshot:
    """Builds a snapshot.

    Args:
        search: The study.
        live: Attempts that hold devices.
        leasing: The devices.
        budget: The study's budget.
        spent: What is spent of it.
        now: The current time.
        started_at_s: When this dispatcher started (monotonic seconds).
        is_stopping: Whether the user has stopped the study.
        store: What is not in the database yet.
        idle: Why devices are idle.
        share: The user's share of the machine; None if it is not divided.
    """
    counts = search.counts.by_state()
    n_finished = sum(n for state, n in counts.items() if state.is_finished())
    fraction = budget.fraction(replace(spent, trials=n_finished))
    elapsed_s = now.monotonic_s - started_at_s
    return Snapshot(
        n_completed=counts[TrialState.COMPLETE],
        n_pruned=search.counts.n_pruned,
        n_failed=search.counts.n_failed,
        n_waiting=counts[TrialState.WAITING],
        n_paused=search.counts.n_paused,
        n_begun=spent.trials,
        n_trials=budget.trials,
        running=tuple(_running(each, search, now) for each in live),
        idle_devices=tuple(device.label for device in leasing.pool.free),
        left_to_others=leasing.supply.left_to_others,
        best=search.best,
        elapsed_s=elapsed_s,
        fraction=fraction,
        left_s=elapsed_s * (1 - fraction) / fraction if fraction else None,
        is_stopping=is_stopping,
        idle_causes={
            device.label: idle[device.id].value
            for device in leasing.pool.devices
            if device.id in idle
        },
        n_queued=counts[TrialState.WAITING] + leasing.n_waiting,
        store_lag_s=store.lag_s,
        n_unsaved_reports=store.n_unsaved_reports,
        share=share,
    )


def _running(live: LiveAttempt, search: StudySearch, now: Instant) -> RunningTrial:
    return RunningTrial(
        number=live.attempt.trial_number,
        attempt_number=live.attempt.number,
        devices=live.labels,
        state=live.attempt.state.value,
        elapsed_s=now.monotonic_s - live.leased_at_s,
        step=live.last_step,
        values=live.last_values,
        params=live.params or search.params_of(live.attempt.trial_id),
    )
