"""How a study stands, gathered for people from the parts that know."""

from __future__ import annotations

from collections.abc import Sequence

from optuna.trial import TrialState

from tuner.budget import Budget, Spent
from tuner.clock import Instant
from tuner.leasing import Leasing
from tuner.live import LiveAttempt
from tuner.notices import RunningTrial, Snapshot
from tuner.search.study import StudySearch


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
) -> Snapshot:
    """
    Args:
        search: The study.
        live: Attempts that hold devices.
        leasing: The devices.
        budget: What the study may spend.
        spent: What it has spent.
        now: The present.
        started_at_s: When this dispatcher started, on the monotonic clock.
        is_stopping: Whether the user has asked for an end.
    """
    counts = search.count()
    fraction = budget.fraction(spent)
    elapsed_s = now.monotonic_s - started_at_s
    return Snapshot(
        n_completed=counts[TrialState.COMPLETE],
        n_pruned=counts[TrialState.PRUNED] - search.n_infeasible,
        n_failed=counts[TrialState.FAIL] + search.n_infeasible,
        n_waiting=counts[TrialState.WAITING],
        n_begun=spent.trials,
        n_trials=budget.trials,
        running=tuple(_running(each, search, now) for each in live),
        idle_devices=tuple(device.label for device in leasing.pool.free),
        left_to_others=leasing.left_to_others,
        best=search.best,
        elapsed_s=elapsed_s,
        fraction=fraction,
        left_s=elapsed_s * (1 - fraction) / fraction if fraction else None,
        is_stopping=is_stopping,
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
