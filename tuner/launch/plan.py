"""From a trial and its devices to what is launched and what is assigned."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from search_spaces import ParamValue
from tuner.attempt import Attempt
from tuner.devices.device import Device, DeviceKind
from tuner.files import StudyFiles
from tuner.launch.request import (
    ENV_ATTEMPT,
    ENV_CHANNEL,
    ENV_STUDY,
    ENV_TOKEN,
    LaunchRequest,
    Program,
)
from tuner.messages import Assign

ENV_DEVICES = "TUNER_DEVICES"
#: Each names the threads of a library: OpenMP, MKL, OpenBLAS, Accelerate, numexpr.
THREAD_VARIABLES = (
    "OMP_NUM_THREADS",
    "MKL_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "VECLIB_MAXIMUM_THREADS",
    "NUMEXPR_NUM_THREADS",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialPlan:
    """What all attempts of a study share."""

    program: Program
    files: StudyFiles
    study: str
    #: Of the study; each attempt's own is derived from it.
    seed: int
    objectives: tuple[str, ...]

    def seed_of(self, trial_number: int, attempt_number: int) -> int:
        """Below 2**31, which every library takes."""
        text = f"{self.seed}/{trial_number}/{attempt_number}".encode()
        return int.from_bytes(hashlib.sha256(text).digest()[:4], "big") >> 1

    def request(
        self,
        attempt: Attempt,
        devices: Sequence[Device],
        params: Mapping[str, ParamValue],
        *,
        address: str,
        token: str,
    ) -> LaunchRequest:
        environment = device_environment(devices) | {
            ENV_CHANNEL: address,
            ENV_TOKEN: token,
            ENV_ATTEMPT: attempt.id,
            ENV_STUDY: self.study,
        }
        return LaunchRequest(
            attempt_id=attempt.id,
            program=self.program,
            assign=self.assign(attempt, devices, params),
            folder=str(self.files.folder),
            log_path=str(self.files.log(attempt.trial_number, attempt.number)),
            environment=environment,
            n_threads=sum(device.n_threads or 0 for device in devices) or None,
        )

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
        )


def device_environment(devices: Sequence[Device]) -> dict[str, str]:
    """Lets a program see its own devices and no others."""
    gpus = [device.id for device in devices if device.kind is not DeviceKind.CPU]
    environment = {
        # Empty hides every GPU from a trial that was given a CPU slot.
        "CUDA_VISIBLE_DEVICES": ",".join(gpus),
        ENV_DEVICES: ",".join(device.label for device in devices),
    }
    n_threads = sum(device.n_threads or 0 for device in devices)
    if n_threads:
        environment |= dict.fromkeys(THREAD_VARIABLES, str(n_threads))
    return environment
