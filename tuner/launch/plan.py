"""Builds launch requests and assignments from a trial and its devices."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from tuner.checkpoints.paths import StudyFiles
from tuner.devices.allocation.pool import Lease
from tuner.devices.allocation.width import WHOLE
from tuner.devices.device import Device, DeviceKind
from tuner.devices.packing.admission import CUDA_CONTEXT_BYTES, promised_bytes
from tuner.domain.attempt import Attempt
from tuner.domain.messages import Assign
from tuner.launch.request import (
    ENV_ATTEMPT,
    ENV_CHANNEL,
    ENV_STUDY,
    ENV_TOKEN,
    LaunchRequest,
    Program,
)
from tuner.search_spaces import AnySpace, ParamValue

ENV_DEVICES = "TUNER_DEVICES"
#: `10:20` for profiled steps, empty for sections marked by the program; unset: no profiling.
ENV_PROFILE = "TUNER_PROFILE"
#: All ranks of a trial are on this host, and no other process should reach them.
_THIS_HOST = "127.0.0.1"
#: Each names the threads of a library: OpenMP, MKL, OpenBLAS, Accelerate, numexpr.
OPENMP_THREADS = "OMP_NUM_THREADS"
THREAD_VARIABLES = (
    OPENMP_THREADS,
    "MKL_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "VECLIB_MAXIMUM_THREADS",
    "NUMEXPR_NUM_THREADS",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ProfiledSteps:
    """Steps of a trial that the profiler records."""

    first: int
    last: int

    def to_text(self) -> str:
        """For the environment."""
        return f"{self.first}:{self.last}"

    @classmethod
    def from_text(cls, text: str) -> ProfiledSteps | None:
        """The inverse of `to_text`; None for an empty text."""
        if not text:
            return None
        first, _, last = text.partition(":")
        return cls(first=int(first), last=int(last))


@dataclass(frozen=True, slots=True, kw_only=True)
class ProfilePlan:
    """Which trial is profiled."""

    #: None: every trial.
    trial: int | None
    #: None: sections marked by the program.
    steps: ProfiledSteps | None

    def environment(self, trial: int) -> dict[str, str]:
        """Environment variables for a trial's process; empty if it is not profiled."""
        if self.trial not in (None, trial):
            return {}
        return {ENV_PROFILE: "" if self.steps is None else self.steps.to_text()}


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialPlan:
    """Settings that all attempts of a study share."""

    program: Program
    files: StudyFiles
    study: str
    #: Seed of the study; each attempt's own is derived from it.
    seed: int
    objectives: tuple[str, ...]
    #: Whether a trial is one rank per device, as `torchrun` starts them.
    is_ddp: bool = False
    #: Whether a share of a GPU is enforced; `auto`'s predictions may be wrong.
    guards_memory: bool = True
    #: Checkpoints that one trial keeps, the newest.
    n_newest_kept: int = 2
    #: None: no trial is profiled.
    profile: ProfilePlan | None = None
    #: URL of the database, for programs that ask for their study; empty: it is in memory only.
    storage: str = field(default="", repr=False)
    #: The space of the study file.
    space: AnySpace | None = None

    def seed_of(self, trial_number: int, attempt_number: int) -> int:
        """Below 2**31, which every library takes."""
        text = f"{self.seed}/{trial_number}/{attempt_number}".encode()
        return int.from_bytes(hashlib.sha256(text).digest()[:4], "big") >> 1

    def requests(
        self,
        attempt: Attempt,
        lease: Lease,
        params: Mapping[str, ParamValue],
        *,
        address: str,
        token: str,
        port: int,
    ) -> tuple[LaunchRequest, ...]:
        """Launch requests for an attempt: one process, or one per device with DDP.

        Args:
            attempt: The attempt.
            lease: Its devices.
            params: Parameters declared in the study file.
            address: Address of the dispatcher's channel.
            token: Authenticates the attempt there.
            port: Rendezvous port of a DDP trial.
        """
        devices = lease.devices
        common = device_environment(devices) | {
            ENV_CHANNEL: address,
            ENV_TOKEN: token,
            ENV_ATTEMPT: attempt.id,
            ENV_STUDY: self.study,
        }
        if self.profile is not None:
            common |= self.profile.environment(attempt.trial_number)
        assign = self.assign(attempt, devices, params)
        groups = [(device,) for device in devices] if self.is_ddp else [devices]
        fraction = lease.parts / WHOLE
        return tuple(
            LaunchRequest(
                attempt_id=attempt.id,
                program=self.program,
                assign=assign,
                folder=str(self.files.folder),
                log_path=str(self.files.log(attempt.trial_number, attempt.number, rank)),
                environment=common
                | _thread_environment(_n_threads(own, fraction))
                | self._of_rank(rank, len(groups), port),
                n_threads=_n_threads(own, fraction),
                rank=rank,
                cores=tuple(sorted({core for device in own for core in device.cores})),
                memory_fraction=memory_limit(lease) if self.guards_memory else None,
            )
            for rank, own in enumerate(groups)
        )

    def _of_rank(self, rank: int, n_ranks: int, port: int) -> dict[str, str]:
        """The variables of `torchrun`, so that scripts for it run here too."""
        if not self.is_ddp:
            return {}
        return {
            "RANK": str(rank),
            "LOCAL_RANK": str(rank),
            "WORLD_SIZE": str(n_ranks),
            "LOCAL_WORLD_SIZE": str(n_ranks),
            "MASTER_ADDR": _THIS_HOST,
            "MASTER_PORT": str(port),
        }

    def assign(
        self, attempt: Attempt, devices: Sequence[Device], params: Mapping[str, ParamValue]
    ) -> Assign:
        return Assign(
            attempt_id=attempt.id,
            trial_number=attempt.trial_number,
            attempt_number=attempt.number,
            params=params,
            seed=attempt.seed,
            checkpoint_dir=str(self.files.checkpoints(attempt.trial_number)),
            objectives=self.objectives,
            devices=tuple(device.label for device in devices),
            n_newest_kept=self.n_newest_kept,
        )


def device_environment(devices: Sequence[Device]) -> dict[str, str]:
    """Lets a program see its own devices and no others."""
    gpus = [device.cuda_id for device in devices if device.kind is not DeviceKind.CPU]
    return {
        # Empty hides every GPU from a trial that was given a CPU slot.
        "CUDA_VISIBLE_DEVICES": ",".join(gpus),
        ENV_DEVICES: ",".join(device.label for device in devices),
    }


def _thread_environment(n_threads: int | None) -> dict[str, str]:
    return dict.fromkeys(THREAD_VARIABLES, str(n_threads)) if n_threads else {}


def memory_limit(lease: Lease) -> float | None:
    """Fraction of a shared GPU's memory that torch may use; its context needs more."""
    device = lease.devices[0]
    if device.memory_bytes is None or (lease.is_whole and device.share_of is None):
        return None
    total_bytes = device.memory_bytes * device.n_shares
    limit_bytes = promised_bytes(lease.parts // device.n_shares, total_bytes)
    return max(limit_bytes / 2, limit_bytes - CUDA_CONTEXT_BYTES) / total_bytes


def _n_threads(devices: Sequence[Device], fraction: float) -> int | None:
    """A share of a CPU slot gets that share of its threads, one at least."""
    n_threads = sum(device.n_threads or 0 for device in devices)
    return max(1, int(n_threads * fraction)) if n_threads else None
