"""Output of `tuner studies` and `tuner status`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import datetime

from optuna.trial import TrialState

from tuner.domain.budget import SECONDS_PER_HOUR
from tuner.queries.alerts import Alert, find_alerts
from tuner.queries.dispatchers import StoredDispatcher
from tuner.queries.results.confirmations import Confirmation
from tuner.queries.running import RunningTrial
from tuner.queries.status import StudyStatus
from tuner.queries.studies import StudySummary
from tuner.queries.study_state import Standing
from tuner.queries.trials.listing import PAUSED, WORDS
from tuner.search.rungs.order.stored_trust import trust_text
from tuner.terminal import wording
from tuner.terminal.allocations import allocation_lines
from tuner.terminal.idle import idle_texts
from tuner.terminal.tables import table
from tuner.terminal.times import ago, seconds, when, zone

_STARTED = "started"
_STUDIES = ("study", "objectives", "trials", "best", "run by", _STARTED, "last activity")
_RUNNING = ("trial", "attempt", "on", "for", "step", "last values")
_DISPATCHERS = ("host", "pid", _STARTED, "last sign", "devices", "runs", "state")


def studies_text(studies: Sequence[StudySummary], now: datetime, shown: str) -> str:
    if not studies:
        return f"{shown} holds no study yet."
    return table(_with_zone(_STUDIES), [_study_row(each, now) for each in studies])


def _study_row(study: StudySummary, now: datetime) -> tuple[str, ...]:
    alive = [f"{each.host} ({each.pid}, {ago(each.beat_at, now)})" for each in study.dispatchers]
    return (
        study.name,
        ", ".join(map(str, study.objectives)),
        counts_text(study),
        wording.values_text(study.best) or "-",
        ", ".join(alive) or "-",
        when(study.started_at),
        ago(study.active_at, now),
    )


def counts_text(study: StudySummary) -> str:
    """`12: 8 completed, 4 running`"""
    counts = {word: study.trials[state] for state, word in WORDS.items()}
    counts[WORDS[TrialState.WAITING]] = study.n_waiting
    counts[PAUSED] = study.n_paused
    parts = [f"{n} {word}" for word, n in counts.items() if n]
    return f"{study.n_trials}: {', '.join(parts)}" if parts else "0"


def _alerts(status: StudyStatus, now: datetime) -> tuple[Alert, ...]:
    return find_alerts(status.study, status.standing, status.reason, status.idle, now)


def status_text(status: StudyStatus, now: datetime, waits: Sequence[str] = ()) -> str:
    """Formats a study's status.

    Args:
        status: The status.
        now: The current time.
        waits: Users whose devices this machine's dispatchers wait for.
    """
    study = status.study
    lines = [
        f"study {study.name}: {_standing(status, waits)} ({status.reason})",
        *([f"paused by {status.paused_by}: tuner resume"] if status.paused_by else []),
        *(f"kept for the next start: {each}" for each in status.kept),
        *(f"alert: {each.text}" for each in _alerts(status, now)),
        *([f"program: {status.program}"] if status.program else []),
        *_codes(status),
        f"objectives: {', '.join(map(str, study.objectives))}",
        f"trials: {counts_text(study)}",
        f"spent: {', '.join(_spent(status))}",
        f"progress: {_progress(status)}",
        f"last activity: {ago(study.active_at, now)}",
        *(f"allocation: {each}" for each in allocation_lines(status.allocations, now)),
        *(f"idle: {each}" for each in idle_texts(status.idle, now)),
        *waits,
        *_best(status),
        *_forecast(status),
        *_early_order(status),
        *confirmation_lines(status.confirmation),
    ]
    if status.running:
        lines += ["", table(_RUNNING, [_running_row(each) for each in status.running])]
    if status.dispatchers:
        rows = [_dispatcher_row(each, status.running, now) for each in status.dispatchers]
        lines += ["", table(_with_zone(_DISPATCHERS), rows)]
    return "\n".join(lines)


def _codes(status: StudyStatus) -> list[str]:
    """`code differs: gpu01 (pid 12) runs snapshot 1f3a; gpu02 (pid 7) runs snapshot 77aa`"""
    known = [each for each in status.dispatchers if each.is_alive and each.code]
    if len({each.code for each in known}) < 2:
        return []
    texts = [f"{each.host} (pid {each.pid}) runs {each.code}" for each in known]
    return [f"code differs: {'; '.join(texts)}"]


def _standing(status: StudyStatus, waits: Sequence[str]) -> str:
    is_waiting = any(each.startswith("waits: ") for each in waits)
    if is_waiting and not status.running and status.standing is Standing.RUNNING:
        return "waits for a device"
    return status.standing.value


def _progress(status: StudyStatus) -> str:
    """`13 % (6 of 48 trials finished, 14 begun, 8 paused)`"""
    count = study_trials_text(status.study, status.budget.trials)
    fraction = status.budget.fraction(replace(status.spent, trials=status.study.n_finished))
    return count if fraction is None else f"{100 * fraction:.0f} % ({count})"


def study_trials_text(study: StudySummary, limit: int | None) -> str:
    """`6 of 48 trials finished, 14 begun, 8 paused`

    Args:
        study: Whose trials.
        limit: Trials that its budget allows; None: any number.
    """
    return wording.trials_text(
        n_finished=study.n_finished,
        n_begun=study.n_begun,
        n_paused=study.n_paused,
        limit=limit,
    )


def _spent(status: StudyStatus) -> Iterator[str]:
    budget, spent = status.budget, status.spent
    trials = f" of {budget.trials}" if budget.trials is not None else ""
    yield f"{spent.trials}{trials} trials begun"
    if not status.study.is_ours:
        return  # Only the program that ran it knows.
    time = f" of {wording.duration(budget.time_s)}" if budget.time_s is not None else ""
    yield f"{wording.duration(spent.time_s)}{time}"
    hours = f" of {budget.device_hours:g}" if budget.device_hours is not None else ""
    yield f"{spent.device_s / SECONDS_PER_HOUR:.3g}{hours} device-hours"
    if status.energy_kwh is not None:
        energy = f" of {budget.energy_kwh:g}" if budget.energy_kwh is not None else ""
        yield f"{status.energy_kwh:.3g}{energy} kWh"


def _with_zone(header: Sequence[str]) -> list[str]:
    return [f"{each} ({zone()})" if each == _STARTED else each for each in header]


def _best(status: StudyStatus) -> list[str]:
    best = status.best
    if best is not None:
        params = [f"  {name}: {wording.short(value)}" for name, value in best.params.items()]
        return [f"best: {wording.values_text(best.values)} (trial {best.number})", *params]
    if status.study.best:
        return [f"best of each objective: {wording.values_text(status.study.best)}"]
    if status.study.trials[TrialState.COMPLETE]:
        return ["best: none, each completed trial has an infinite value or violates a constraint"]
    return ["best: no trial has completed"]


def _forecast(status: StudyStatus) -> list[str]:
    """`forecast: about 0.962 (likely 0.958 to 0.971) by 2026-03-01 14:30:00, ...`"""
    told = status.forecast
    if told is None:
        return []
    low, high = sorted((told.cautious, told.hopeful))
    by = f" by {when(status.ends_at)} {zone()}" if status.ends_at is not None else ""
    return [
        f"forecast: about {told.median:.6g} (likely {low:.6g} to {high:.6g}){by}, after "
        f"{told.n_more} more trials"
    ]


def _early_order(status: StudyStatus) -> list[str]:
    text = trust_text(status.rung_trust) if status.rung_trust is not None else ""
    return [f"early stopping: {text}"] if text else []


def confirmation_lines(confirmation: Confirmation | None) -> list[str]:
    """`run again: trial 7: 0.951 ± 0.004 (5 runs), the best with probability 0.83`"""
    if confirmation is None:
        return []
    lines = [
        f"  trial {each.trial_number}: {each.mean:.6g}"
        + ("" if each.deviation is None else f" ± {each.deviation:.2g}")
        + f" ({len(each.values)} run{'s' if len(each.values) > 1 else ''})"
        + ("" if each.p_best is None else f", the best with probability {each.p_best:.2g}")
        for each in confirmation.leaders
    ]
    return [f"run again: {confirmation.n_ended} of {confirmation.n_runs} runs done", *lines]


def _running_row(running: RunningTrial) -> tuple[str, ...]:
    return (
        str(running.trial),
        "-" if running.attempt is None else str(running.attempt),
        _place(running),
        seconds(running.for_s),
        "-" if running.step is None else str(running.step),
        wording.values_text(running.values) or "-",
    )


def _place(running: RunningTrial) -> str:
    if running.is_waiting:
        return "waits for a device"
    if running.host is None:
        return "another program"
    place = f"{running.host} {', '.join(running.devices)}"
    return place if running.is_alive else f"{place} (its dispatcher died)"


def _dispatcher_row(
    each: StoredDispatcher, running: Sequence[RunningTrial], now: datetime
) -> tuple[str, ...]:
    state = "alive" if each.is_alive else "died"
    if each.is_silent:
        state = "alive, but silent"
    if each.ended_at is not None:
        state = f"ended: {each.end_reason}" if each.end_reason else "ended"
    beat = ago(each.beat_at, now)
    trials = [str(one.trial) for one in running if one.dispatcher_id == each.id]
    runs = f"trial{'s' if len(trials) > 1 else ''} {', '.join(trials)}" if trials else "-"
    devices = ", ".join(each.devices) or "-"
    return (each.host, str(each.pid), when(each.started_at), beat, devices, runs, state)
