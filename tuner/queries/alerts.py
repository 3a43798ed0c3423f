"""Alerts: a study without progress, idle devices, many failures. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import Enum

from optuna.trial import TrialState

from tuner.devices.idle_causes import CAUSE_WORDS, IdleCause
from tuner.queries.idle import IdleNow
from tuner.queries.studies import StudySummary
from tuner.queries.study_state import Standing

#: Shorter idle times are a part of each study's work.
MIN_IDLE_S = 60.0
#: Finished trials below which a failure rate is not meaningful.
MIN_FINISHED = 5
MIN_FAILURE_SHARE = 0.2
#: Causes that a user can remove, and how.
REMEDIES: Mapping[IdleCause, str] = {
    IdleCause.NO_SUGGESTION: "choose a faster sampler",
    IdleCause.GATHERING: "request fewer devices for each trial",
    IdleCause.DISK_FULL: "free disk space",
}


class AlertKind(Enum):
    """Kinds of alerts."""

    STANDSTILL = "standstill"
    IDLE_DEVICES = "idle_devices"
    FAILURES = "failures"


@dataclass(frozen=True, slots=True, kw_only=True)
class Alert:
    """One thing to look at."""

    kind: AlertKind
    text: str


def find_alerts(
    study: StudySummary, standing: Standing, reason: str, idle: Sequence[IdleNow], now: datetime
) -> tuple[Alert, ...]:
    """Finds alerts.

    Args:
        study: The study.
        standing: Its state.
        reason: Why it is in that state.
        idle: The devices of its dispatchers without a trial.
        now: The current time.
    """
    found = []
    if standing is Standing.SILENT:
        found.append(
            Alert(kind=AlertKind.STANDSTILL, text=f"the study makes no progress: {reason}")
        )
    for cause in REMEDIES:
        waits = [each for each in idle if each.cause is cause and _idle_s(each, now) >= MIN_IDLE_S]
        if waits:
            found.append(idle_alert(cause, [f"{each.device} of {each.host}" for each in waits]))
    failures = failure_alert(study.trials[TrialState.FAIL], study.n_finished)
    return (*found, *filter(None, [failures]))


def idle_alert(cause: IdleCause, devices: Sequence[str]) -> Alert:
    """An alert about idle devices.

    Args:
        cause: A cause with a remedy.
        devices: Labels of devices, all idle for over a minute.
    """
    text = (
        f"idle for over a minute, {CAUSE_WORDS[cause]}: {', '.join(devices)}. "
        f"To fix it, {REMEDIES[cause]}"
    )
    return Alert(kind=AlertKind.IDLE_DEVICES, text=text)


def failure_alert(n_failed: int, n_finished: int) -> Alert | None:
    """None while few trials have failed, or too few have finished."""
    if n_finished < MIN_FINISHED or n_failed < MIN_FAILURE_SHARE * n_finished:
        return None
    text = f"{n_failed} of {n_finished} finished trials failed"
    return Alert(kind=AlertKind.FAILURES, text=text)


def _idle_s(idle: IdleNow, now: datetime) -> float:
    return (now - idle.since).total_seconds()
