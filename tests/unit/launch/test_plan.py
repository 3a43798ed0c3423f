"""From a trial and its devices to what is launched."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

from tests.fakes import a_gpu
from tuner.checkpoints.paths import StudyFiles
from tuner.devices.allocation.pool import Lease
from tuner.devices.allocation.width import WHOLE, parts_of
from tuner.devices.cpu_slots.probe import CpuProbe
from tuner.devices.device import Device, DeviceId, DeviceKind
from tuner.domain.attempt import Attempt
from tuner.launch.plan import THREAD_VARIABLES, TrialPlan, device_environment
from tuner.launch.request import FunctionProgram, LaunchRequest, trial_environment

PROGRAM = FunctionProgram(module="train", function="objective")
ATTEMPT = Attempt(
    trial_id=70, trial_number=7, number=2, seed=99, leased_at=datetime(2026, 1, 1, tzinfo=UTC)
)
MIG = Device(id=DeviceId("MIG-1"), kind=DeviceKind.MIG, name="1g.10gb", index=0)


def requests(plan: TrialPlan, *devices: Device, parts: int = WHOLE) -> tuple[LaunchRequest, ...]:
    lease = Lease(number=1, attempt_id=ATTEMPT.id, devices=devices, parts=parts)
    return plan.requests(ATTEMPT, lease, {"lr": 0.1}, address="/sock", token="secret", port=4242)


def a_plan(seed: int = 0, **fields: bool) -> TrialPlan:
    return TrialPlan(
        program=PROGRAM,
        files=StudyFiles(folder=Path("/home/ann"), study="digits"),
        study="digits",
        seed=seed,
        objectives=("accuracy",),
        **fields,
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
    (request,) = requests(a_plan(), slot)
    environment = request.environment
    assert environment["CUDA_VISIBLE_DEVICES"] == ""
    assert environment["TUNER_DEVICES"] == "cpu:1"
    assert {environment[name] for name in THREAD_VARIABLES} == {"4"}


def test_device_environment_of_a_mig_slice_names_it_by_uuid():
    assert device_environment([MIG])["CUDA_VISIBLE_DEVICES"] == "MIG-1"


def test_request_says_what_to_run_where_and_how_to_reach_us():
    (request,) = requests(a_plan(), a_gpu(0))
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
    (request,) = requests(a_plan(), *slots)
    assert request.n_threads == 6
    assert {request.environment[name] for name in THREAD_VARIABLES} == {"6"}


def test_share_of_a_slot_has_that_share_of_its_threads():
    slot = CpuProbe(1, n_cores=6).devices()[0]
    (half,) = requests(a_plan(), slot, parts=parts_of(0.5))
    (tiny,) = requests(a_plan(), slot, parts=parts_of(0.01))
    assert (half.n_threads, tiny.n_threads) == (3, 1)


def test_ddp_is_one_rank_per_device_with_the_environment_of_torchrun():
    near = [replace(a_gpu(i), cores=(i, i + 8)) for i in range(3)]
    ranks = requests(a_plan(is_ddp=True), *near)
    assert [request.rank for request in ranks] == [0, 1, 2]
    assert [request.cores for request in ranks] == [(0, 8), (1, 9), (2, 10)]
    assert [request.log_path.rpartition("/")[2] for request in ranks] == [
        "attempt-2.log",
        "attempt-2.rank-1.log",
        "attempt-2.rank-2.log",
    ]
    for rank, request in enumerate(ranks):
        assert (
            dict(request.environment).items()
            >= {
                "RANK": str(rank),
                "LOCAL_RANK": str(rank),
                "WORLD_SIZE": "3",
                "LOCAL_WORLD_SIZE": "3",
                "MASTER_ADDR": "127.0.0.1",
                "MASTER_PORT": "4242",
                "CUDA_VISIBLE_DEVICES": ",".join(gpu.id for gpu in near),
            }.items()
        )


def test_ddp_ranks_on_slots_have_their_own_threads_each():
    slots = CpuProbe(2, n_cores=6).devices()
    assert [r.n_threads for r in requests(a_plan(is_ddp=True), *slots)] == [3, 3]


def test_one_process_that_sees_all_devices_has_no_rank():
    (request,) = requests(a_plan(), a_gpu(0), a_gpu(1))
    assert "RANK" not in request.environment
    assert request.assign.devices == ("GPU 0", "GPU 1")


def test_memory_is_guarded_for_a_promised_share_only():
    quarter = parts_of(0.25)
    (whole,) = requests(a_plan(), a_gpu(0))
    (promised,) = requests(a_plan(), a_gpu(0), parts=quarter)
    (believed,) = requests(a_plan(guards_memory=False), a_gpu(0), parts=quarter)
    assert whole.memory_fraction is None
    assert believed.memory_fraction is None
    assert promised.memory_fraction is not None
    assert 0.2 < promised.memory_fraction < 0.25


def test_request_as_data_is_json_without_the_token():
    (request,) = requests(a_plan(), a_gpu(0))
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
