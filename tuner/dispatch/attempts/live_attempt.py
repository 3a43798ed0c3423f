"""The state of an attempt that holds devices: its ranks, deadlines, last report, last action."""

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

#: For the ranks whose peer has failed: to fail by themselves, and from SIGTERM to SIGKILL.
_FAILED_GROUP_GRACE_S = 2.0

#: What is told stays, until something stronger is.
_STRENGTHS: Mapping[Action, int] = {
    Action.CONTINUE: 0,
    Action.PAUSE: 1,
    # What it was told before the last step stays.
    Action.COMPLETE: 1,
    Action.PRUNE: 2,
    Action.STOP: 3,
}

#: Reports from which the time of a step is told.
_N_PACED = 4


class Step(Enum):
    """What happens to an attempt when its deadline passes."""

    TIME_OUT = "time_out"
    TERMINATE = "terminate"
    KILL = "kill"


@dataclass(slots=True, kw_only=True)
class Rank:
    """One process of an attempt."""

    number: int = 0
    pid: int | None = None
    #: The connection of its worker; None before its hello.
    source: SourceId | None = None
    finished: Finished | None = None
    #: When it said its first and its last word, in UTC.
    began_at: datetime | None = None
    finished_at: datetime | None = None
    #: None while it runs.
    exit_code: int | None = None
    #: Whether it was ended because what started it died.
    is_lost: bool = False

    @property
    def is_cancelled(self) -> bool:
        """Whether somebody else than we asked it to end."""
        said = self.finished
        if said is None:
            return False
        return said.outcome is Outcome.CANCELLED and said.cause is Cause.SIGNAL

    @property
    def has_failed(self) -> bool:
        """Whether it brought itself to a bad end; one that only lost its peers did too."""
        if self.finished is not None:
            return self.finished.outcome.is_failure
        return bool(self.exit_code)


@dataclass(slots=True, kw_only=True)
class LiveAttempt:
    """One attempt between its lease and the release of its devices."""

    attempt: Attempt
    grant: Grant
    params: Mapping[str, ParamValue]
    #: Its processes, rank 0 first.
    ranks: list[Rank] = field(default_factory=lambda: [Rank()])
    #: Numbers of the ranks that failed, in the order in which that became known.
    failures: list[int] = field(default_factory=list)
    #: Those whose end was somebody else's doing; it may have been that of the others, too.
    cancelled: list[int] = field(default_factory=list)
    #: Those that ended well, and not by our signal.
    departed: list[int] = field(default_factory=list)
    #: What ranks did that had not ended with the others; empty where all did.
    hang: str = ""
    leased_at_s: float
    n_oom_kills: int = 0
    #: When it reported last, or was seen to work (monotonic); None before that.
    heard_at_s: float | None = None
    #: The next thing to do should nothing happen until `deadline_s` (monotonic).
    deadline_s: float | None = None
    deadline_step: Step | None = None
    #: What it was told: an end stays, whatever it reports until it hears of it.
    told: Action = Action.CONTINUE
    #: What its program was told when it asked last, or when it was sent SIGTERM for a verdict.
    heeds: Action = Action.CONTINUE
    #: Whether it had been told to pause before it was told to stop: it may hear either.
    is_pausing: bool = False
    told_reason: str = ""
    #: Whether its processes were sent SIGTERM or SIGKILL: their exit codes tell nothing then.
    is_signalled: bool = False
    #: Why we end it, where we do.
    stop_cause: Cause | None = None
    #: What rank 0 made of its last verdict; for a rank that comes late.
    decided: Decided | None = None
    #: Whether it was resumed and counts its steps from the beginning: they say nothing then.
    is_miscounting: bool = False
    #: Its first report: which step, and when it was heard (monotonic).
    first_step: int | None = None
    first_heard_at_s: float = 0.0
    last_step: int | None = None
    last_values: Mapping[str, float] = field(default_factory=dict)
    #: Whether the wait for its devices' memory was mentioned.
    is_wait_noted: bool = False
    #: As many devices shall the trial have from the next attempt on, for which this one ends.
    widens_to: int | None = None
    #: Until then its processes are gone (monotonic), whatever grace they have otherwise.
    killed_by_s: float | None = None

    def tell(self, action: Action, reason: str) -> None:
        """Takes in what it is to be told; an end that was told before is not taken back."""
        if _STRENGTHS[action] > _STRENGTHS[self.told]:
            self.told, self.told_reason = action, reason

    def wait_for(self, step: Step, at_s: float) -> None:
        self.deadline_step, self.deadline_s = step, at_s

    @property
    def may_be_told(self) -> bool:
        """Whether it runs, and neither ends by itself nor was asked to."""
        is_over = self.attempt.state is AttemptState.CLEARING or self.finished is not None
        return self.stop_cause is None and not is_over

    @property
    def labels(self) -> tuple[str, ...]:
        return tuple(device.label for device in self.grant.devices)

    @property
    def finished(self) -> Finished | None:
        """What rank 0 said at its end."""
        return self.ranks[0].finished

    @property
    def pace_s(self) -> float | None:
        """Seconds that it takes for a step; None before it has reported a few."""
        if self.first_step is None or self.last_step is None or self.heard_at_s is None:
            return None
        n_steps = self.last_step - self.first_step
        if self.grant.n_reports < _N_PACED or n_steps <= 0:
            return None
        return (self.heard_at_s - self.first_heard_at_s) / n_steps

    @property
    def outcome(self) -> Outcome | None:
        """How it ended; None while it has not."""
        return self.attempt.ending.outcome if self.attempt.ending else None

    def held_s(self, now: Instant) -> float:
        """Device-seconds so far; a share of a device counts as much as it is."""
        return (now.monotonic_s - self.leased_at_s) * self.grant.lease.n_devices_held

    @property
    def pids(self) -> frozenset[int]:
        return frozenset(rank.pid for rank in self.ranks if rank.pid is not None)

    @property
    def torch_peak_bytes(self) -> int | None:
        """The most that torch took of any one GPU, as far as its ranks said."""
        said = [rank.finished.peak_memory_bytes for rank in self.ranks if rank.finished]
        return max((each for each in said if each is not None), default=None)

    @property
    def began_at(self) -> datetime:
        """When the last of its ranks was there; not before the lease, whatever they said."""
        said = [rank.began_at for rank in self.ranks if rank.began_at is not None]
        return max([self.attempt.leased_at, *said])

    def ended_at(self, now: Instant) -> datetime:
        """When its last rank said that it was done, or the present where we had to end one."""
        said = [rank.finished_at for rank in self.ranks]
        if self.is_signalled or None in said:
            return now.utc
        begun_at = self.attempt.started_at or self.attempt.leased_at
        return max([begun_at, *(at for at in said if at is not None)])

    @property
    def running_ranks(self) -> list[Rank]:
        return [rank for rank in self.ranks if rank.exit_code is None]

    def note_end(self, rank: Rank) -> None:
        """A rank said its last word, or its process is gone, and not by our signal."""
        if (rank.is_cancelled or rank.is_lost) and rank.number not in self.cancelled:
            self.cancelled.append(rank.number)
        if rank.has_failed and rank.number not in self.failures and not self.hang:
            self.failures.append(rank.number)
        has_ended_well = not rank.has_failed and rank.number not in self.cancelled
        if has_ended_well and rank.number not in self.departed:
            self.departed.append(rank.number)

    def grace_s(self, stop_grace_s: float) -> float:
        """How long its processes have to end; after a failure there is nothing left to save."""
        return min(stop_grace_s, _FAILED_GROUP_GRACE_S) if self.failures else stop_grace_s

    def expect_exits(self, now_s: float, stop_grace_s: float) -> None:
        """A rank said its last word or is gone: none may keep the devices for long."""
        at_s = now_s + self.grace_s(stop_grace_s)
        if self.deadline_step is Step.TERMINATE and self.deadline_s is not None:
            at_s = min(at_s, self.deadline_s)
        self.wait_for(Step.TERMINATE, at_s)

    def note_hang(self, stop_grace_s: float) -> None:
        """Some ranks have ended well, and others go on as if they had not."""
        ended = [rank.number for rank in self.ranks if rank.finished or rank.exit_code == 0]
        left = [rank.number for rank in self.running_ranks if rank.number not in ended]
        if ended and left and not self.failures and self.stop_cause is None:
            self.hang = (
                f"{named_ranks(left)} had not ended {stop_grace_s:g} s after "
                f"{named_ranks(ended)}, and waited for it, in a collective most likely. "
                "Every rank must make the same number of steps."
            )

    def telling_rank(self, output_of: Callable[[int], str]) -> int:
        """The rank whose end is that of the attempt: the first that failed by itself, else 0.

        A rank that lost a peer may say so before the peer's own end is known.
        """
        is_ended_by_us = self.stop_cause is not None or self.heeds in ENDS_EARLY
        said = self.finished
        if is_ended_by_us or (said is not None and said.outcome is Outcome.PRUNED):
            return 0
        by_themselves = [n for n in self.failures if not self._is_of_others(n, output_of)]
        absent = self.absent_ranks(output_of)
        return next(iter(by_themselves or self.cancelled or absent or self.failures), 0)

    def absent_ranks(self, output_of: Callable[[int], str]) -> list[int]:
        """The ranks that all failures are due to, though these ranks did not fail.

        They had left, or did not come to a collective in which others waited until its timeout.
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
        """What a rank said at its end, or printed."""
        said = self.ranks[number].finished
        return said.detail if said is not None else output_of(number)


def named_ranks(numbers: Sequence[int]) -> str:
    """`rank 1`, `ranks 1, 2`."""
    return f"rank{'s' if len(numbers) > 1 else ''} {', '.join(map(str, numbers))}"
