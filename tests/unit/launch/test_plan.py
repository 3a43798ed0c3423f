"""From a trial and its devices to what is launched."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path

from tests.fakes import a_gpu
from tuner.attempt import Attempt
from tuner.devices.cpu import CpuProbe
from tuner.devices.device import Device, DeviceId, DeviceKind
from tuner.files import StudyFiles
from tuner.launch.plan import THREAD_VARIABLES, TrialPlan, device_environment
from tuner.launch.request import FunctionProgram, trial_environment

PROGRAM = FunctionProgram(module="train", function="objective")
ATTEMPT = Attempt(
    trial_id=70, trial_number=7, number=2, seed=99, leased_at=datetime(2026, 1, 1, tzinfo=UTC)
)
MIG = Device(id=DeviceId("MIG-1"), kind=DeviceKind.MIG, name="1g.10gb", index=0)


def a_plan(seed: int = 0) -> TrialPlan:
    return TrialPlan(
        program=PROGRAM,
        files=StudyFiles(folder=Path("/home/ann"), study="digits"),
        study="digits",
        seed=seed,
        objectives=("accuracy",),
    )


def test_seed_of_is_the_same_tomorrow():
    assert a_plan().seed_of(0, 1) == 898252347


def test_seed_of_differs_by_study_trial_and_attempt():
    seeds = [a_plan(s).seed_of(t, a) for s in range(10) for t in range(30) for a in range(1, 4)]
    assert len(set(seeds)) == len(seeds)
    assert all(0 <= seed < 2**31 for seed in seeds)
    assert a_plan().seed_of(1, 11) != a_plan().seed_of(11, 1)


def test_device_environment_of_gpus_names_them_and_leaves_threads_alone():
    environment = device_environment([a_gpu(1), a_gpu(0)])
    assert environment == {
        "CUDA_VISIBLE_DEVICES": f"{a_gpu(1).id},{a_gpu(0).id}",
        "TUNER_DEVICES": "GPU 1,GPU 0",
    }


def test_device_environment_of_a_cpu_slot_hides_gpus_and_limits_threads():
    slot = CpuProbe(2, n_cores=8).devices()[1]
    environment = device_environment([slot])
    assert environment["CUDA_VISIBLE_DEVICES"] == ""
    assert environment["TUNER_DEVICES"] == "cpu:1"
    assert {environment[name] for name in THREAD_VARIABLES} == {"4"}


def test_device_environment_of_a_mig_slice_names_it_by_uuid():
    assert device_environment([MIG])["CUDA_VISIBLE_DEVICES"] == "MIG-1"


def test_request_says_what_to_run_where_and_how_to_reach_us():
    request = a_plan().request(ATTEMPT, [a_gpu(0)], {"lr": 0.1}, address="/sock", token="secret")
    assert request.program is PROGRAM
    assert request.folder == "/home/ann"
    assert request.log_path == "/home/ann/tuner-files/digits/trial-7/attempt-2.log"
    assert request.n_threads is None
    assert request.environment | {
        "TUNER_CHANNEL": "/sock",
        "TUNER_TOKEN": "secret",
        "TUNER_ATTEMPT": "7.2",
        "TUNER_STUDY": "digits",
    } == dict(request.environment)
    assert request.assign.params == {"lr": 0.1}
    assert (request.assign.seed, request.assign.objectives) == (99, ("accuracy",))
    assert request.assign.devices == ("GPU 0",)


def test_request_counts_the_threads_of_all_its_slots():
    slots = CpuProbe(2, n_cores=6).devices()
    assert a_plan().request(ATTEMPT, slots, {}, address="", token="").n_threads == 6


def test_request_as_data_is_json_without_the_token():
    request = a_plan().request(ATTEMPT, [a_gpu(0)], {"lr": 0.1}, address="/sock", token="secret")
    text = json.dumps(request.as_data())
    assert "secret" not in text
    assert '"kind": "FunctionProgram"' in text
    assert '"TUNER_CHANNEL": "/sock"' in text


def test_trial_environment_makes_names_that_a_shell_takes():
    found = trial_environment(
        {"opt.lr-max": 1e-5, "name": "a b", "on": True},
        number=3,
        attempt_number=1,
        seed=5,
        checkpoint_dir="/c",
    )
    assert found == {
        "TUNER_PARAM_OPT_LR_MAX": "1e-05",
        "TUNER_PARAM_NAME": "a b",
        "TUNER_PARAM_ON": "true",
        "TUNER_TRIAL_NUMBER": "3",
        "TUNER_ATTEMPT_NUMBER": "1",
        "TUNER_SEED": "5",
        "TUNER_CHECKPOINT_DIR": "/c",
    }
