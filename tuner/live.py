"""What the dispatcher keeps in mind about an attempt that holds devices."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum

from search_spaces import ParamValue
from tuner.attempt import Attempt, Cause, Ending, Outcome
from tuner.devices.pool import Lease
from tuner.devices.watch import Baselines
from tuner.launch.diagnosis import diagnose_exit
from tuner.messages import Action, Finished

_OUTCOME_OF_STOP: Mapping[Cause, Outcome] = {
    Cause.TIMEOUT: Outcome.TIMED_OUT,
    Cause.INTERRUPTED: Outcome.CANCELLED,
    Cause.LAUNCH: Outcome.FAILED_TO_START,
}


class Step(Enum):
    """What happens to an attempt when its deadline passes."""

    TIME_OUT = "time_out"
    TERMINATE = "terminate"
    KILL = "kill"


@dataclass(slots=True, kw_only=True)
class LiveAttempt:
    """One attempt between its lease and the release of its devices."""

    attempt: Attempt
    lease: Lease
    params: Mapping[str, ParamValue]
    #: Memory in use on each GPU before the launch.
    baselines: Baselines = field(default_factory=dict)
    leased_at_s: float
    n_oom_kills: int = 0
    #: The next thing to do should nothing happen until `deadline_s` (monotonic).
    deadline_s: float | None = None
    deadline_step: Step | None = None
    #: What it was told last.
    told: Action = Action.CONTINUE
    told_reason: str = ""
    #: Why we end it, where we do.
    stop_cause: Cause | None = None
    finished: Finished | None = None
    last_step: int | None = None
    last_values: Mapping[str, float] = field(default_factory=dict)
    #: Whether the wait for its devices' memory was mentioned.
    is_wait_noted: bool = False

    def wait_for(self, step: Step, at_s: float) -> None:
        self.deadline_step, self.deadline_s = step, at_s

    @property
    def labels(self) -> tuple[str, ...]:
        return tuple(device.label for device in self.lease.devices)


def ending_of(
    live: LiveAttempt,
    exit_code: int,
    *,
    objectives: Sequence[str],
    output: str,
    n_oom_kills: int,
) -> Ending:
    """How an attempt ended, from what it said, what it was told and how its process exited.

    Args:
        live: The attempt.
        exit_code: Of its process; negative for a signal.
        objectives: What a completed attempt must have a value for.
        output: The last lines of its log.
        n_oom_kills: How often the kernel has killed for want of memory, ever.
    """
    said = live.finished
    if said is not None and said.outcome is Outcome.COMPLETED:
        return _completed(said.values or live.last_values, objectives, output)
    if said is not None and said.outcome is Outcome.PRUNED:
        return Ending(outcome=said.outcome, cause=said.cause, detail=said.detail)
    if live.stop_cause is not None:
        return _stopped(live.stop_cause, live.told_reason, output)
    if live.told is Action.PRUNE and exit_code >= 0:
        # A script may take the verdict by ending in its own way, such as a non-zero exit.
        return Ending(outcome=Outcome.PRUNED, cause=Cause.PRUNER, detail=live.told_reason)
    if said is not None:
        return Ending(outcome=said.outcome, cause=said.cause, detail=said.detail)
    if live.attempt.started_at is None:
        return Ending(
            outcome=Outcome.FAILED_TO_START,
            cause=Cause.LAUNCH,
            detail=diagnose_exit(exit_code, output).detail,
        )
    return diagnose_exit(exit_code, output, n_oom_kills=n_oom_kills - live.n_oom_kills)


def _completed(values: Mapping[str, float], objectives: Sequence[str], output: str) -> Ending:
    missing = ", ".join(name for name in objectives if name not in values)
    if missing:
        detail = f"It ended well, but gave no value of {missing}.\n{output}".rstrip()
        return Ending(outcome=Outcome.FAILED, cause=Cause.NO_RESULT, detail=detail)
    bad = [name for name, value in values.items() if math.isnan(value)]
    if bad:
        detail = f"The value of {', '.join(bad)} is not a number (NaN)."
        return Ending(outcome=Outcome.FAILED, cause=Cause.NOT_A_NUMBER, detail=detail)
    return Ending(outcome=Outcome.COMPLETED, values=values)


def _stopped(cause: Cause, reason: str, output: str) -> Ending:
    return Ending(
        outcome=_OUTCOME_OF_STOP[cause], cause=cause, detail=f"{reason}\n{output}".strip()
    )
