"""On what terms the dispatcher works, and what it has to say at the end."""

from __future__ import annotations

from dataclasses import dataclass

from tuner.budget import Budget


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

    @property
    def is_cut_short(self) -> bool:
        """Whether the study has not come to its own end."""
        return self.is_interrupted or self.is_hopeless or self.is_stranded
