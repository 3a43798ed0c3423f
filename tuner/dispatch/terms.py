"""On what terms the dispatcher works, and what it has to say at the end."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from enum import Enum, auto

from tuner.domain.budget import Budget


class Leave(Enum):
    """Why a dispatcher leaves its allocation before the end of the study."""

    #: The engine takes the node back: the dispatcher is to be started again.
    NOTICE = auto()
    #: Nothing is left for it to do.
    IDLE = auto()
    #: The study was stopped, or the allocation is not wanted any more.
    COMMAND = auto()


@dataclass(frozen=True, slots=True, kw_only=True)
class AllocationTerms:
    """What an engine lends."""

    #: For people, such as `slurm 4711_3`.
    place: str
    #: Time without a trial after which the allocation is given back, in seconds.
    idle_s: float
    #: Trials save so many seconds before the deadline.
    notice_s: float
    #: In UTC, with a time zone. None: no limit.
    deadline: datetime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Terms:
    """On what terms attempts run."""

    budget: Budget
    retries: int = 0
    #: Of one attempt, from its worker's hello; None for no limit.
    timeout_s: float | None = None
    #: Whether a trial that takes longer completes with what it has reported.
    completes_on_timeout: bool = False
    #: A trial completes at its first report of this step or a later one; None for no such step.
    max_steps: int | None = None
    #: Whether the best report is a trial's value, and not the last one.
    best_report_counts: bool = False
    #: In which an attempt neither reports nor works; None for no limit.
    stall_timeout_s: float | None = None
    #: From being told to end to SIGTERM, and from there to SIGKILL.
    stop_grace_s: float = 10.0
    #: From launch to the worker's hello.
    launch_timeout_s: float = 120.0
    #: Whether trials continue on more devices when nothing else is left for these to do.
    widens: bool = False
    #: Whether one device gives the same trials again, because the study file names a seed.
    is_repeatable: bool = False
    #: Reports wait at most this long for the database; a crash loses no more of them.
    commit_every_s: float = 0.5
    #: None on a machine of the user's own.
    allocation: AllocationTerms | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """How the study stood when the dispatcher ended."""

    is_interrupted: bool
    #: Whether it ended because the program fails whatever its parameters are.
    is_hopeless: bool = False
    #: Whether trials wait that no dispatcher of the study has enough devices for.
    is_stranded: bool = False
    #: The budget that was reached, or what else ended the study; for people.
    reason: str
    n_completed: int
    n_pruned: int
    n_failed: int
    #: They go on at the next start.
    n_paused: int = 0
    #: Why it left its allocation; None where it did not, or runs in none.
    leave: Leave | None = None

    @property
    def is_cut_short(self) -> bool:
        """Whether the study has not come to its own end."""
        is_stopped = self.is_interrupted or self.is_hopeless or self.is_stranded
        return is_stopped or self.leave is not None
