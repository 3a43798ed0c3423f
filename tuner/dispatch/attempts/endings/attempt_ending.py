"""Derives the ending of an attempt from exit codes, rank messages and log output."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from tuner.devices.device import DeviceKind
from tuner.dispatch.attempts.live_attempt import LiveAttempt, Rank, named_ranks
from tuner.domain.attempt import Cause, Ending, Outcome
from tuner.domain.messages import ENDS_EARLY, Action, Finished
from tuner.launch.failure_diagnosis import (
    diagnose_exit,
    is_device_fault,
    is_port_taken,
    nan_detail,
)

_OUTCOME_OF_STOP: Mapping[Cause, Outcome] = {
    Cause.TIMEOUT: Outcome.TIMED_OUT,
    Cause.STALLED: Outcome.TIMED_OUT,
    Cause.COMMANDED: Outcome.PRUNED,
    Cause.INTERRUPTED: Outcome.CANCELLED,
    Cause.SIGNAL: Outcome.CANCELLED,
    Cause.LAUNCH: Outcome.FAILED_TO_START,
}

_NO_SERVER = "The process that all trials are forked from died, and this one was ended with it."


def ending_of(
    live: LiveAttempt,
    *,
    objectives: Sequence[str],
    output_of: Callable[[int], str],
    n_oom_kills: int,
) -> tuple[int, Ending]:
    """Derives the ending of an attempt from its messages, its verdicts and its exit codes.

    Args:
        live: The attempt, with all processes gone.
        objectives: Objectives for which a completed attempt must report a value.
        output_of: Reads the last lines of a rank's log.
        n_oom_kills: Number of processes that the kernel's OOM killer has ended so far.

    Returns:
        The rank that explains the ending (the first that failed, else 0), and the ending.
    """
    number = live.telling_rank(output_of)
    rank = live.ranks[number]
    ending = _ending_of_rank(live, rank, objectives, output_of(number), n_oom_kills)
    if live.hang and number == 0:
        ending = _hung(live, ending)
    elif number not in live.failures and number in live.absent_ranks(output_of):
        return number, _absent(live, output_of)
    is_failure = ending.outcome.is_failure
    is_wide = len(live.grant.devices) > 1
    if is_wide and is_failure and live.last_step is None and is_port_taken(ending.detail):
        ending = replace(ending, outcome=Outcome.FAILED_TO_START, cause=Cause.PORT_TAKEN)
    is_on_gpu = any(device.kind is not DeviceKind.CPU for device in live.grant.devices)
    if is_on_gpu and is_failure and is_device_fault(f"{ending.detail}\n{output_of(number)}"):
        ending = replace(ending, outcome=Outcome.FAILED, cause=Cause.DEVICE_FAULT)
    if is_failure and len(live.ranks) > 1 and not live.hang:
        ending = replace(ending, detail=f"Rank {number}: {ending.detail}")
    return number, ending


def _ending_of_rank(
    live: LiveAttempt, rank: Rank, objectives: Sequence[str], output: str, n_oom_kills: int
) -> Ending:
    said = rank.finished
    exit_code = rank.exit_code or 0
    if said is not None and said.outcome is Outcome.COMPLETED and not _has_ended_early(live, said):
        return completed(said.values or live.last_values, objectives, said.detail or output)
    if said is not None and said.outcome is Outcome.PRUNED:
        return Ending(outcome=said.outcome, cause=said.cause, detail=said.detail)
    if live.stop_cause is not None:
        return _stopped(live.stop_cause, live.told_reason, output)
    if live.heeds in ENDS_EARLY and exit_code >= 0:
        # A script may take the verdict by ending in its own way, such as a non-zero exit.
        return Ending(outcome=Outcome.PRUNED, cause=Cause.PRUNER, detail=live.told_reason)
    if said is not None:
        return Ending(outcome=said.outcome, cause=said.cause, detail=said.detail)
    if rank.is_lost:
        return Ending(outcome=Outcome.LOST, cause=Cause.LAUNCH, detail=_NO_SERVER)
    if live.attempt.started_at is None:
        return Ending(
            outcome=Outcome.FAILED_TO_START,
            cause=Cause.LAUNCH,
            detail=diagnose_exit(exit_code, output).detail,
        )
    return diagnose_exit(exit_code, output, n_oom_kills=n_oom_kills - live.n_oom_kills)


def _has_ended_early(live: LiveAttempt, said: Finished) -> bool:
    """Whether a self-reporting script ended early because of a verdict."""
    if said.values:
        return False
    return live.heeds in ENDS_EARLY or (live.heeds is Action.STOP and live.stop_cause is not None)


def _hung(live: LiveAttempt, ending: Ending) -> Ending:
    """Keeps a result that rank 0 sent even if other ranks hung afterwards."""
    if ending.outcome in (Outcome.COMPLETED, Outcome.PRUNED) or live.stop_cause is not None:
        return replace(ending, detail=f"{ending.detail}\n{live.hang}".strip())
    return Ending(outcome=Outcome.FAILED, cause=Cause.RANKS, detail=live.hang)


def _absent(live: LiveAttempt, output_of: Callable[[int], str]) -> Ending:
    """The ending when ranks left or hung; the errors of the other ranks are a consequence."""
    absent, first = live.absent_ranks(output_of), live.failures[0]
    named, waiting = named_ranks(absent).capitalize(), named_ranks(sorted(live.failures))
    if live.departed:
        what = f"{named} left while {waiting} waited in a collective."
    else:
        what = f"{named} hung: {waiting} waited in a collective until its timeout."
    error = live.text_of(first, output_of).strip().rpartition("\n")[2]
    detail = (
        f"{what} Every rank must make the same number of steps.\n"
        f"Rank {first}, which waited: {error}"
    )
    return Ending(outcome=Outcome.FAILED, cause=Cause.RANKS, detail=detail)


def completed(values: Mapping[str, float], objectives: Sequence[str], output: str) -> Ending:
    """The ending of a program that reported values.

    Args:
        values: The values, by objective.
        objectives: Objectives that need a value.
        output: Log output to add to the message about a missing value.
    """
    missing = ", ".join(name for name in objectives if name not in values)
    if missing:
        what = (
            f"The program exited without an error but reported no value of the objective {missing}."
        )
        detail = f"{what}\n{output}".rstrip()
        return Ending(outcome=Outcome.FAILED, cause=Cause.NO_RESULT, detail=detail)
    bad = [name for name, value in values.items() if math.isnan(value)]
    if bad:
        detail = nan_detail(bad)
        return Ending(outcome=Outcome.FAILED, cause=Cause.NOT_A_NUMBER, detail=detail)
    return Ending(outcome=Outcome.COMPLETED, values=values)


def _stopped(cause: Cause, reason: str, output: str) -> Ending:
    return Ending(
        outcome=_OUTCOME_OF_STOP[cause], cause=cause, detail=f"{reason}\n{output}".strip()
    )
