"""The dispatcher's settings and its result."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from enum import Enum, auto

from tuner.domain.budget import Budget


class Leave(Enum):
    """Why a dispatcher leaves its allocation before the study's end."""

    #: The engine reclaims the node: the dispatcher is to be started again.
    NOTICE = auto()
    #: It has nothing left to do.
    IDLE = auto()
    #: The study was stopped, or the allocation is no longer needed.
    COMMAND = auto()
    #: Its trials cannot save in the time that an allocation has.
    TOO_SHORT = auto()


@dataclass(frozen=True, slots=True, kw_only=True)
class AllocationTerms:
    """An allocation from an engine."""

    #: A label to show, such as `slurm 4711_3`.
    place: str
    #: Seconds without a trial after which the allocation is returned.
    idle_s: float
    #: Seconds before the deadline at which trials save.
    notice_s: float
    #: In UTC, with a time zone; None for no limit.
    deadline: datetime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Terms:
    """Limits for attempts."""

    budget: Budget
    retries: int = 0
    #: Seconds for one attempt, from its worker's hello; None for no limit.
    timeout_s: float | None = None
    #: Whether a trial that times out completes with its reported values.
    completes_on_timeout: bool = False
    #: A trial completes at its first report of this step or a later one; None for no limit.
    max_steps: int | None = None
    #: Whether the best report, instead of the last, is a trial's value.
    best_report_counts: bool = False
    #: Seconds that an attempt may neither report nor work; None for no limit.
    stall_timeout_s: float | None = None
    #: Seconds from the verdict to stop until SIGTERM, and from SIGTERM until SIGKILL.
    stop_grace_s: float = 10.0
    #: Seconds from launch to the worker's hello.
    launch_timeout_s: float = 120.0
    #: Whether trials continue on more devices when no trials are queued.
    widens: bool = False
    #: Whether trials on one device are reproducible, because the study file sets a seed.
    is_repeatable: bool = False
    #: Maximum seconds until a report is committed; a crash loses no more than that.
    commit_every_s: float = 0.5
    #: None outside an engine.
    allocation: AllocationTerms | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """The study's result when the dispatcher ends."""

    is_interrupted: bool
    #: Whether it ended because the program fails for any parameters.
    is_hopeless: bool = False
    #: Whether queued trials need more devices than any dispatcher of the study has.
    is_stranded: bool = False
    #: The budget that was reached, or what else ended the study, as text.
    reason: str
    n_completed: int
    n_pruned: int
    n_failed: int
    #: Paused trials, which continue at the next start.
    n_paused: int = 0
    #: Trials that wait for a device, such as enqueued ones.
    n_waiting: int = 0
    #: Why it left its allocation; None if it did not, or has none.
    leave: Leave | None = None

    @property
    def is_cut_short(self) -> bool:
        """Whether the study ended early."""
        is_stopped = self.is_interrupted or self.is_hopeless or self.is_stranded
        return is_stopped or self.leave is not None
