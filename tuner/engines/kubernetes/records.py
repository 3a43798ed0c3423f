"""The parts of Jobs and pods that the tuner reads, and the state of an allocation."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from tuner.domain.allocation import Allocation, AllocationState

_REQUEUE = 75
_NO_IMAGE = ("ImagePullBackOff", "ErrImagePull", "InvalidImageName")
_OTHER_IMAGE = (
    "Correct engine.kubernetes.image, or add imagePullSecrets in engine.kubernetes.template; then "
    "tuner cancel and tuner submit"
)
_QUOTA = "exceeded quota"
_LESS = (
    "Ask for fewer nodes or devices, or wait until others have ended: "
    "kubectl describe resourcequota"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class JobRecord:
    """A Job, as far as it matters here."""

    name: str
    #: A Job that is created again has another one, while pods of the old one may still be there.
    uid: str
    number: int
    is_complete: bool = False
    #: Reason and message of the condition `Failed`.
    failure: str | None = None
    is_deleted: bool = False
    #: Kueue holds it back.
    is_suspended: bool = False
    queue: str | None = None
    #: The newest warning of the cluster about the Job itself.
    warning: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class PodRecord:
    """A pod of a Job."""

    name: str
    job_uid: str
    phase: str
    created_at: datetime
    started_at: datetime | None = None
    node: str | None = None
    is_deleted: bool = False
    #: Why it waits: its container's reason, else the scheduler's.
    waits_for: str = ""
    exit_code: int | None = None
    #: Seconds after its start at which the cluster sends SIGTERM, and those until SIGKILL.
    active_deadline_s: int | None = None
    grace_s: int = 30

    @property
    def deadline(self) -> datetime | None:
        if self.started_at is None or self.active_deadline_s is None:
            return None
        return self.started_at + timedelta(seconds=self.active_deadline_s + self.grace_s)


def allocation_of(job: JobRecord, pods: Sequence[PodRecord]) -> Allocation:
    """The state of an allocation.

    Args:
        job: Its Job.
        pods: Pods of that Job, in any order; the newest one counts.
    """
    pod = max(pods, key=lambda each: each.created_at, default=None)
    state, reason = _state(job, pod)
    return Allocation(
        number=job.number,
        name=job.name,
        state=state,
        reason=reason,
        node=pod.node if pod else None,
        started_at=pod.started_at if pod else None,
        deadline=pod.deadline if pod else None,
    )


def with_advice(words: str) -> str:
    """The cluster's own words, and what to do where that is known."""
    if words.startswith(_NO_IMAGE):
        return f"{words.rstrip('.')}. {_OTHER_IMAGE}"
    if _QUOTA in words:
        return f"{words.rstrip('.')}. {_LESS}"
    return words


def _state(job: JobRecord, pod: PodRecord | None) -> tuple[AllocationState, str]:
    if job.is_complete:
        return AllocationState.ENDED, ""
    if job.failure is not None:
        return AllocationState.FAILED, job.failure
    if job.is_deleted:
        return AllocationState.ENDING, "deleted"
    if pod is None:
        return AllocationState.PENDING, _why_no_pod(job)
    return _state_of_pod(pod)


def _why_no_pod(job: JobRecord) -> str:
    if job.is_suspended:
        return f"suspended: waits in queue {job.queue}" if job.queue else "suspended"
    return with_advice(job.warning)


def _state_of_pod(pod: PodRecord) -> tuple[AllocationState, str]:
    if pod.phase == "Running":
        if pod.is_deleted:
            return AllocationState.ENDING, "its pod is asked to end"
        return AllocationState.RUNNING, ""
    if pod.phase == "Succeeded":
        return AllocationState.ENDED, ""
    if pod.phase == "Failed":
        how = f"exit code {pod.exit_code}" if pod.exit_code is not None else "no exit code"
        again = "saved" if pod.exit_code == _REQUEUE else "failed"
        return AllocationState.PENDING, f"pod {again} ({how}); waits for another pod"
    return AllocationState.PENDING, with_advice(pod.waits_for)
