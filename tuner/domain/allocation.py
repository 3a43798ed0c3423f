"""Allocations: nodes that an engine (Slurm, Kubernetes, Ray, ssh) provides for a time."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from enum import Enum


class AllocationState(Enum):
    """State of an allocation, independent of the engine."""

    PENDING = "pending"
    RUNNING = "running"
    #: SIGTERM was sent, or the engine takes the node back: trials save.
    ENDING = "ending"
    ENDED = "ended"
    #: Its dispatcher failed, or the engine cannot start it (an image that is not there).
    FAILED = "failed"

    @property
    def is_over(self) -> bool:
        """Whether it holds no resources any more."""
        return self in (AllocationState.ENDED, AllocationState.FAILED)


@dataclass(frozen=True, slots=True, kw_only=True)
class Allocation:
    """One allocation as the engine sees it now."""

    #: Counts from 0 within a study; with the study it is the allocation's identity.
    number: int
    #: The engine's own name, such as `4711_3` or `digits-mlp-3`.
    name: str
    state: AllocationState
    #: The engine's own words for a state, such as `Resources` or `ImagePullBackOff`.
    reason: str = ""
    node: str | None = None
    #: In UTC, with a time zone.
    started_at: datetime | None = None
    deadline: datetime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnAllocation:
    """The allocation in which a dispatcher runs, from its environment."""

    engine: str
    name: str
    number: int | None = None
    #: In UTC, with a time zone. None: no limit.
    deadline: datetime | None = None
    #: The engine starts the dispatcher again after exit code 75.
    is_requeued: bool = True
