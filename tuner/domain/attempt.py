"""The life cycle of an attempt: states, transitions and endings.

An attempt is one launch of a trial. It is LEASED (devices held, nothing started), then RUNNING (its
worker has sent hello). When it is being stopped it is STOPPING, with a deadline. When its processes
are gone it is CLEARING until the memory of its devices is free, and then FINISHED. It holds devices
in every state but FINISHED. The reason of its end is data (`Ending`), not a state.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from enum import Enum
from typing import NewType

from tuner.errors import InvalidTransition

AttemptId = NewType("AttemptId", str)
"""`<trial number>.<attempt number>`, such as `17.1`: unique in a study."""


def attempt_id(trial_number: int, attempt_number: int) -> AttemptId:
    return AttemptId(f"{trial_number}.{attempt_number}")


class AttemptState(Enum):
    """States of an attempt between its lease and the release of its devices."""

    LEASED = "leased"
    RUNNING = "running"
    STOPPING = "stopping"
    CLEARING = "clearing"
    FINISHED = "finished"


TRANSITIONS: Mapping[AttemptState, frozenset[AttemptState]] = {
    AttemptState.LEASED: frozenset(
        {AttemptState.RUNNING, AttemptState.STOPPING, AttemptState.CLEARING}
    ),
    AttemptState.RUNNING: frozenset({AttemptState.STOPPING, AttemptState.CLEARING}),
    AttemptState.STOPPING: frozenset({AttemptState.CLEARING}),
    AttemptState.CLEARING: frozenset({AttemptState.FINISHED}),
    AttemptState.FINISHED: frozenset(),
}


class Outcome(Enum):
    """How an attempt ended."""

    COMPLETED = "completed"
    PRUNED = "pruned"
    PAUSED = "paused"
    FAILED = "failed"
    OUT_OF_MEMORY = "out_of_memory"
    TIMED_OUT = "timed_out"
    FAILED_TO_START = "failed_to_start"
    LOST = "lost"
    CANCELLED = "cancelled"

    @property
    def is_failure(self) -> bool:
        """Whether the program (and not the user or the pruner) brought it to its end."""
        return self in _FAILURES


#: A trial that has ended so is over, and the program is not to blame.
ENDED_WELL = frozenset({Outcome.COMPLETED, Outcome.PRUNED})
_FAILURES = frozenset(
    {Outcome.FAILED, Outcome.OUT_OF_MEMORY, Outcome.TIMED_OUT, Outcome.FAILED_TO_START}
)


class Cause(Enum):
    """Why an attempt ended before its program returned a result."""

    EXCEPTION = "exception"
    NOT_A_NUMBER = "not_a_number"
    NO_RESULT = "no_result"
    DEVICE_MEMORY = "device_memory"
    HOST_MEMORY = "host_memory"
    TIMEOUT = "timeout"
    #: Nothing was reported, and neither its processes nor its devices did anything.
    STALLED = "stalled"
    EXIT_CODE = "exit_code"
    SIGNAL = "signal"
    LAUNCH = "launch"
    PRUNER = "pruner"
    PROGRAM = "program"
    #: Its ranks did not act alike: they disagreed, or one waited for others that were gone.
    RANKS = "ranks"
    #: Other processes used the rendezvous port of its ranks.
    PORT_TAKEN = "port_taken"
    #: Its device is broken, not its program.
    DEVICE_FAULT = "device_fault"
    #: A user stopped it (`tuner stop STUDY --trial N`).
    COMMANDED = "commanded"
    INTERRUPTED = "interrupted"
    DISPATCHER_GONE = "dispatcher_gone"


@dataclass(frozen=True, slots=True, kw_only=True)
class Ending:
    """How an attempt ended: outcome, cause and result."""

    outcome: Outcome
    cause: Cause | None = None
    #: The reason, the traceback, or the last lines of output, as text.
    detail: str = ""
    #: By objective name; present exactly if the outcome is COMPLETED.
    values: Mapping[str, float] = field(default_factory=dict)

    @property
    def is_of_the_configuration(self) -> bool:
        """Whether its configuration caused the failure and should be avoided: memory, NaN."""
        is_nan = self.cause is Cause.NOT_A_NUMBER and self.outcome.is_failure
        return is_nan or self.outcome is Outcome.OUT_OF_MEMORY


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """One launch of a trial, as a value; `advance` returns its next state."""

    trial_id: int
    trial_number: int
    number: int
    seed: int
    leased_at: datetime
    state: AttemptState = AttemptState.LEASED
    started_at: datetime | None = None
    #: When its process was gone.
    ended_at: datetime | None = None
    finished_at: datetime | None = None
    #: Process id of its first rank.
    pid: int | None = None
    #: The most that it was seen to take of any one GPU.
    peak_memory_bytes: int | None = None
    ending: Ending | None = None

    @property
    def id(self) -> AttemptId:
        return attempt_id(self.trial_number, self.number)

    def __str__(self) -> str:
        suffix = f" (attempt {self.number})" if self.number > 1 else ""
        return f"trial {self.trial_number}{suffix}"


def advance(attempt: Attempt, to: AttemptState, *, at: datetime) -> Attempt:
    """Moves an attempt to its next state.

    Args:
        attempt: The attempt.
        to: Its next state.
        at: The current time, in UTC.

    Raises:
        InvalidTransition: If `TRANSITIONS` does not allow it.
    """
    if to not in TRANSITIONS[attempt.state]:
        raise InvalidTransition(
            f"{attempt} cannot go from {attempt.state.value} to {to.value}; allowed from there: "
            + (", ".join(sorted(s.value for s in TRANSITIONS[attempt.state])) or "nothing")
        )
    moved = replace(attempt, state=to)
    match to:
        case AttemptState.RUNNING:
            return replace(moved, started_at=at)
        case AttemptState.CLEARING:
            return replace(moved, ended_at=at)
        case AttemptState.FINISHED:
            return replace(moved, finished_at=at)
        case _:
            return moved
