"""GPUs that the rules divide into shares: what a study sees of them, locks and limits."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from tests.fakes import GIB, FakeProbe, a_gpu
from tuner.devices.allocation.pool import DevicePool
from tuner.devices.allocation.watch import DeviceWatch
from tuner.devices.allocation.width import (
    ONE,
    WHOLE,
    FixedWidth,
    MemoryShare,
    Share,
    parts_of,
    parts_on,
)
from tuner.devices.device import Device, DeviceId, DeviceStatus, Holder
from tuner.devices.gpu_shares import DividedGpus
from tuner.devices.locks import DeviceLocks
from tuner.dispatch.supply.gpu_memory import GpuMemory
from tuner.dispatch.supply.leasing import Leasing
from tuner.launch.plan import device_environment, memory_limit
from tuner.shares.facts import parts_of_device

GPUS = [replace(a_gpu(index), memory_bytes=80 * GIB) for index in range(2)]
FOREIGN = Holder(pid=7, user="eve", command="python", memory_bytes=GIB)


class Probe:
    """Two GPUs; somebody uses both."""

    cuda_visible_devices: str | None = None
    problems: tuple[str, ...] = ("GPU 2 is broken.",)

    def devices(self) -> tuple[Device, ...]:
        return tuple(GPUS)

    def status(self, device: Device) -> DeviceStatus:
        assert device in GPUS
        return DeviceStatus(memory_used_bytes=GIB, utilization_pct=5, holders=(FOREIGN,))

    def close(self) -> None:
        pass


QUARTER = Share(parts=2500)


def divided(width: Share | MemoryShare = QUARTER, *, is_used: bool = False) -> DividedGpus:
    return DividedGpus(
        Probe(), {"0": 4}, lambda one: parts_on(width, one) is not None, lambda _: is_used
    )


def test_a_divided_gpu_is_so_many_devices_with_a_part_of_its_memory_each() -> None:
    devices = divided().devices()
    assert [each.label for each in devices] == [
        *(f"GPU 0 (share {number})" for number in range(1, 5)),
        "GPU 1",
    ]
    assert len({each.id for each in devices}) == 5
    assert [each.memory_bytes for each in devices] == [20 * GIB] * 4 + [80 * GIB]
    assert [parts_of_device(each) for each in devices] == [WHOLE // 4] * 4 + [WHOLE]
    # CUDA knows the GPU alone.
    visible = device_environment(devices[:1])["CUDA_VISIBLE_DEVICES"]
    assert visible == GPUS[0].id


@pytest.mark.parametrize(
    ("width", "parts"),
    [
        (Share(parts=parts_of(0.25)), WHOLE),
        (Share(parts=parts_of(0.1)), 4000),
        (Share(parts=parts_of(0.3)), None),
        (MemoryShare(memory_bytes=10 * GIB), WHOLE // 2),
        (MemoryShare(memory_bytes=30 * GIB), None),
    ],
)
def test_a_trial_takes_of_a_share_what_it_takes_of_the_gpu(
    width: Share | MemoryShare, parts: int | None
) -> None:
    share = divided(Share(parts=1)).devices()[0]
    assert parts_on(width, share) == parts


def test_a_study_whose_trials_do_not_fit_does_not_see_the_gpu_and_is_told_why() -> None:
    probe = divided(Share(parts=parts_of(0.5)))
    assert probe.devices() == (GPUS[1],)
    assert probe.problems[0] == "GPU 2 is broken."
    assert probe.problems[1].startswith("GPU 0 is divided into 4 shares")


def test_processes_on_a_gpu_are_foreign_until_a_tuner_has_a_share_of_it() -> None:
    first, *_, whole = divided().devices()
    assert divided().status(first).holders == (FOREIGN,)
    alone = divided(is_used=True)
    assert (alone.status(first).holders, alone.status(first).memory_used_bytes) == ((), None)
    assert alone.status(whole).holders == (FOREIGN,)


def test_a_gpu_is_locked_whole_or_by_shares_and_never_both(tmp_path: Path) -> None:
    one, two, *_ = divided().devices()
    first, second, third = (DeviceLocks(tmp_path) for _ in range(3))
    assert first.acquire(one)
    assert second.acquire(two)
    assert not second.acquire(one)
    # A tuner that knows nothing of the division: its rules file is another one.
    assert not third.acquire(GPUS[0])
    first.release(one)
    second.close()
    assert third.acquire(GPUS[0])
    assert not first.acquire(one)
    third.close()
    assert first.acquire(one)
    first.close()


def test_torch_is_limited_to_the_share_also_where_a_trial_has_all_of_it() -> None:
    share, *_, whole = divided().devices()
    of_share = memory_limit(DevicePool([share]).lease(ONE, "0.1"))
    of_gpu = memory_limit(DevicePool([whole]).lease(Share(parts=2500), "0.1"))
    assert of_share == of_gpu is not None
    assert 0.2 < of_share < 0.25
    assert memory_limit(DevicePool([whole]).lease(ONE, "0.1")) is None


def test_an_id_names_a_gpu_as_well(tmp_path: Path) -> None:
    probe = DividedGpus(Probe(), {GPUS[1].id[:6]: 2, "9": 2}, lambda _: True, lambda _: False)
    assert {each.share_of for each in probe.devices()} <= {None, GPUS[0].id, GPUS[1].id}
    named = DividedGpus(Probe(), {str(GPUS[1].id): 2}, lambda _: True, lambda _: False)
    assert [each.id for each in named.devices()] == [
        GPUS[0].id,
        DeviceId(f"{GPUS[1].id}#1"),
        DeviceId(f"{GPUS[1].id}#2"),
    ]


@pytest.mark.parametrize(("n_trials", "n_devices"), [(0, 0), (1, 1), (3, 1), (4, 1), (5, 2)])
def test_a_trial_for_a_share_asks_for_no_more_whole_gpus_than_would_do(
    n_trials: int, n_devices: int
) -> None:
    *shares, whole = divided().devices()
    pool = DevicePool([whole])
    # Three more trials have room on the whole GPU, where one is at work.
    pool.lease(QUARTER, "0.1")
    for each in shares:
        pool.add(each)
    watch = DeviceWatch(FakeProbe(GPUS))
    leasing = Leasing(
        pool=pool,
        watch=watch,
        rule=FixedWidth(width=QUARTER),
        widths=[QUARTER],
        memory=GpuMemory(pool, watch),
    )
    assert leasing.n_devices_for_more(n_trials + 3) == n_devices
