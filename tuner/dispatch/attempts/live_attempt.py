"""State of an attempt that holds devices: ranks, deadlines, last report, last action."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import Enum

from tuner.dispatch.supply.grants import Grant
from tuner.domain.attempt import Attempt, AttemptState, Cause, Outcome
from tuner.domain.messages import ENDS_EARLY, Action, Decided, Finished
from tuner.host.clock import Instant
from tuner.launch.failure_diagnosis import (
    has_waited_in_vain,
    is_lost_peer,
)
from tuner.launch.inbox import SourceId
from tuner.search_spaces import ParamValue

#: Seconds for the peers of a failed rank to fail by themselves, and from SIGTERM to SIGKILL.
_FAILED_GROUP_GRACE_S = 2.0

#: An action is replaced only by a stronger one.
_STRENGTHS: Mapping[Action, int] = {
    Action.CONTINUE: 0,
    Action.PAUSE: 1,
    # An earlier action than the last step's stays.
    Action.COMPLETE: 1,
    Action.PRUNE: 2,
    Action.STOP: 3,
}

#: Reports needed to measure the time per step.
_N_PACED = 4


class Step(Enum):
    """Action taken when an attempt's deadline passes."""

    TIME_OUT = "time_out"
    TERMINATE = "terminate"
    KILL = "kill"


@dataclass(slots=True, kw_only=True)
class Rank:
    """One process of an attempt."""

    number: int = 0
    pid: int | None = None
    #: The worker's connection; None before its hello.
    source: SourceId | None = None
    finished: Finished | None = None
    #: When its first and its last message arrived, in UTC.
    began_at: datetime | None = None
    finished_at: datetime | None = None
    #: None while the process runs.
    exit_code: int | None = None
    #: Whether the process ended because its parent died.
    is_lost: bool = False

    @property
    def is_cancelled(self) -> bool:
        """Whether the process was ended from outside the tuner."""
        said = self.finished
        if said is None:
            return False
        return said.outcome is Outcome.CANCELLED and said.cause is Cause.SIGNAL

    @property
    def has_failed(self) -> bool:
        """Whether the rank failed, including after the loss of a peer."""
        if self.finished is not None:
            return self.finished.outcome.is_failure
        return bool(self.exit_code)


@dataclass(slots=True, kw_only=True)
class LiveAttempt:
    """One attempt, from its lease to the release of its devices."""

    attempt: Attempt
    grant: Grant
    params: Mapping[str, ParamValue]
    #: Its processes, rank 0 first.
    ranks: list[Rank] = field(default_factory=lambda: [Rank()])
    #: Failed ranks, in the order in which the failures became known.
    failures: list[int] = field(default_factory=list)
    #: Ranks that were ended from outside; other ranks may have been, too.
    cancelled: list[int] = field(default_factory=list)
    #: Ranks that exited without an error and without a signal from the tuner.
    departed: list[int] = field(default_factory=list)
    #: Describes the ranks that did not end with the others; empty if all did.
    hang: str = ""
    leased_at_s: float
    n_oom_kills: int = 0
    #: When it last reported or was seen to work (monotonic seconds); None before that.
    heard_at_s: float | None = None
    #: When `deadline_step` is carried out unless something happens first (monotonic seconds).
    deadline_s: float | None = None
    deadline_step: Step | None = None
    #: The action sent to the attempt. An action that ends it stays, whatever is reported meanwhile.
    told: Action = Action.CONTINUE
    #: The action that the program last received, by a verdict or with a SIGTERM.
    heeds: Action = Action.CONTINUE
    #: Whether it was to pause before it was to stop: the program may have received either.
    is_pausing: bool = False
    told_reason: str = ""
    #: Whether SIGTERM or SIGKILL was sent to its processes: their exit codes then mean nothing.
    is_signalled: bool = False
    #: Why the tuner ends it, if it does.
    stop_cause: Cause | None = None
    #: Rank 0's decision on its last verdict, for a rank that arrives late.
    decided: Decided | None = None
    #: Whether it was resumed but counts its steps from the beginning: its steps are then ignored.
    is_miscounting: bool = False
    #: Its first report: the step, and when it arrived (monotonic seconds).
    first_step: int | None = None
    first_heard_at_s: float = 0.0
    last_step: int | None = None
    last_values: Mapping[str, float] = field(default_factory=dict)
    #: Whether the wait for its devices' memory was shown.
    is_wait_noted: bool = False
    #: Number of devices for the trial's next attempt, if this attempt ends to be widened.
    widens_to: int | None = None
    #: When its processes are killed at the latest (monotonic seconds), whatever their grace period.
    killed_by_s: float | None = None

    def tell(self, action: Action, reason: str) -> None:
        """Sets the action to send; an action that ends the attempt is never taken back."""
        if _STRENGTHS[action] > _STRENGTHS[self.told]:
            self.told, self.told_reason = action, reason

    def wait_for(self, step: Step, at_s: float) -> None:
        self.deadline_step, self.deadline_s = step, at_s

    @property
    def may_be_told(self) -> bool:
        """Whether it runs and is neither ending nor being stopped."""
        is_over = self.attempt.state is AttemptState.CLEARING or self.finished is not None
        return self.stop_cause is None and not is_over

    @property
    def labels(self) -> tuple[str, ...]:
        return tuple(device.label for device in self.grant.devices)

    @property
    def finished(self) -> Finished | None:
        """Rank 0's final message."""
        return self.ranks[0].finished

    @property
    def pace_s(self) -> float | None:
        """Seconds per step; None before a few reports."""
        if self.first_step is None or self.last_step is None or self.heard_at_s is None:
            return None
        n_steps = self.last_step - self.first_step
        if self.grant.n_reports < _N_PACED or n_steps <= 0:
            return None
        return (self.heard_at_s - self.first_heard_at_s) / n_steps

    @property
    def outcome(self) -> Outcome | None:
        """Its outcome; None while it runs."""
        return self.attempt.ending.outcome if self.attempt.ending else None

    def held_s(self, now: Instant) -> float:
        """Device-seconds so far; a share of a device counts in proportion."""
        return (now.monotonic_s - self.leased_at_s) * self.grant.lease.n_devices_held

    @property
    def pids(self) -> frozenset[int]:
        return frozenset(rank.pid for rank in self.ranks if rank.pid is not None)

    @property
    def torch_peak_bytes(self) -> int | None:
        """Peak torch memory on any one GPU, in bytes, as reported by its ranks."""
        said = [rank.finished.peak_memory_bytes for rank in self.ranks if rank.finished]
        return max((each for each in said if each is not None), default=None)

    @property
    def began_at(self) -> datetime:
        """When its last rank was ready; never before the lease, whatever the ranks report."""
        said = [rank.began_at for rank in self.ranks if rank.began_at is not None]
        return max([self.attempt.leased_at, *said])

    def ended_at(self, now: Instant) -> datetime:
        """When its last rank reported its end; the current time if the tuner ended a rank."""
        said = [rank.finished_at for rank in self.ranks]
        if self.is_signalled or None in said:
            return now.utc
        begun_at = self.attempt.started_at or self.attempt.leased_at
        return max([begun_at, *(at for at in said if at is not None)])

    @property
    def running_ranks(self) -> list[Rank]:
        return [rank for rank in self.ranks if rank.exit_code is None]

    def note_end(self, rank: Rank) -> None:
        """Records a rank that sent its final message or exited without our signal."""
        if (rank.is_cancelled or rank.is_lost) and rank.number not in self.cancelled:
            self.cancelled.append(rank.number)
        if rank.has_failed and rank.number not in self.failures and not self.hang:
            self.failures.append(rank.number)
        has_ended_well = not rank.has_failed and rank.number not in self.cancelled
        if has_ended_well and rank.number not in self.departed:
            self.departed.append(rank.number)

    def grace_s(self, stop_grace_s: float) -> float:
        """Seconds that its processes have to end; few after a failure: nothing is saved."""
        return min(stop_grace_s, _FAILED_GROUP_GRACE_S) if self.failures else stop_grace_s

    def expect_exits(self, now_s: float, stop_grace_s: float) -> None:
        """Sets the deadline for the remaining ranks once a rank has finished or exited."""
        at_s = now_s + self.grace_s(stop_grace_s)
        if self.deadline_step is Step.TERMINATE and self.deadline_s is not None:
            at_s = min(at_s, self.deadline_s)
        self.wait_for(Step.TERMINATE, at_s)

    def note_hang(self, stop_grace_s: float) -> None:
        """Records that some ranks have ended and others still run."""
        ended = [rank.number for rank in self.ranks if rank.finished or rank.exit_code == 0]
        left = [rank.number for rank in self.running_ranks if rank.number not in ended]
        if ended and left and not self.failures and self.stop_cause is None:
            self.hang = (
                f"{named_ranks(left)} had not ended {stop_grace_s:g} s after "
                f"{named_ranks(ended)}, and waited for it, in a collective most likely. "
                "Every rank must make the same number of steps."
            )

    def telling_rank(self, output_of: Callable[[int], str]) -> int:
        """The rank that determines the attempt's ending: the first that failed by itself, else 0.

        A rank that lost a peer may report this before the peer's own ending is known.
        """
        is_ended_by_us = self.stop_cause is not None or self.heeds in ENDS_EARLY
        said = self.finished
        if is_ended_by_us or (said is not None and said.outcome is Outcome.PRUNED):
            return 0
        by_themselves = [n for n in self.failures if not self._is_of_others(n, output_of)]
        absent = self.absent_ranks(output_of)
        return next(iter(by_themselves or self.cancelled or absent or self.failures), 0)

    def absent_ranks(self, output_of: Callable[[int], str]) -> list[int]:
        """The ranks that caused all failures without failing themselves.

        They had left, or did not enter a collective in which others waited until its timeout.
        """
        if not self.failures or not all(self._is_of_others(n, output_of) for n in self.failures):
            return []
        waited = any(has_waited_in_vain(self.text_of(n, output_of)) for n in self.failures)
        ended = (*self.failures, *self.cancelled)
        hung = [rank.number for rank in self.ranks if rank.number not in ended]
        return self.departed or (hung if waited else [])

    def _is_of_others(self, number: int, output_of: Callable[[int], str]) -> bool:
        text = self.text_of(number, output_of)
        return is_lost_peer(text) or has_waited_in_vain(text)

    def text_of(self, number: int, output_of: Callable[[int], str]) -> str:
        """A rank's final message, or its log output."""
        said = self.ranks[number].finished
        return said.detail if said is not None else output_of(number)


def named_ranks(numbers: Sequence[int]) -> str:
    """`rank 1`, `ranks 1, 2`."""
    return f"rank{'s' if len(numbers) > 1 else ''} {', '.join(map(str, numbers))}"
