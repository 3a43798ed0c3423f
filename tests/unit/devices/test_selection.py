"""Each form of `devices:` gets the devices it means, and a sentence on those it does not get."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.fakes import GIB, FakeProbe, a_gpu
from tuner.devices.cpu_slots.probe import CpuProbe
from tuner.devices.device import Device, DeviceId, DeviceKind, Holder
from tuner.devices.limits import GpuLimits
from tuner.devices.request import AllDevices, AutoDevices, CpuSlots, NamedDevices
from tuner.devices.selection import select_devices
from tuner.errors import DeviceError

ANN = Holder(pid=4242, user="ann", command="python", memory_bytes=8 * GIB)
ZERO, ONE, TWO = (a_gpu(index) for index in range(3))


class TakenBy:
    """Locks of which another tuner has some; remembers what was claimed."""

    def __init__(self, *taken: Device, pid: int | None = 77) -> None:
        self.taken, self.pid = taken, pid
        self.claimed: list[Device] = []

    def acquire(self, device: Device) -> bool:
        if device in self.taken:
            return False
        self.claimed.append(device)
        return True

    def owner_pid(self, device: Device) -> int | None:
        return self.pid


def four_cores(n_slots: int | None) -> CpuProbe:
    return CpuProbe(n_slots, n_cores=4)


def select(request, gpus, **options):
    return select_devices(request, gpus=gpus, cpu=four_cores, **options)


def named(*names: int | str) -> NamedDevices:
    return NamedDevices(names=names)


def error_of(request, gpus, **options) -> str:
    with pytest.raises(DeviceError) as caught:
        select(request, gpus, **options)
    return str(caught.value)


def test_cpu_slots_ignore_gpus():
    selection = select(CpuSlots(n_slots=3), FakeProbe(2))
    assert [device.id for device in selection.devices] == ["cpu:0", "cpu:1", "cpu:2"]


@pytest.mark.parametrize("gpus", [None, FakeProbe(0)], ids=["no driver", "no visible GPU"])
def test_auto_without_gpu_uses_cpu_slots(gpus):
    assert [device.id for device in select(AutoDevices(), gpus).devices] == [
        "cpu:0",
        "cpu:1",
        "cpu:2",
        "cpu:3",
    ]


def test_auto_leaves_out_a_gpu_in_use():
    gpus = FakeProbe(3)
    gpus.use(TWO, ANN)
    locks = TakenBy()
    selection = select(AutoDevices(), gpus, locks=locks)
    assert selection.devices == (ZERO, ONE)
    assert [one.device for one in selection.left_out] == [TWO]
    assert selection.left_out[0].reason == (
        "GPU 2 is left out: python (pid 4242, user ann) holds 8.0 GiB of it."
    )
    assert selection.standby == ((TWO, "python (pid 4242, user ann) holds 8.0 GiB of it"),)
    assert locks.claimed == [ZERO, ONE]


def test_auto_leaves_out_a_gpu_with_hidden_memory():
    gpus = FakeProbe(2)
    gpus.use(ZERO, memory_used_bytes=2 * GIB)
    selection = select(AutoDevices(), gpus)
    assert selection.devices == (ONE,)
    assert "2.0 GiB of it is held by processes that cannot be seen" in selection.left_out[0].reason


def test_auto_takes_a_gpu_that_only_own_processes_use():
    gpus = FakeProbe(1)
    gpus.use(ZERO, ANN)
    assert select(AutoDevices(), gpus, own_pids=frozenset({4242})).devices == (ZERO,)


def test_auto_leaves_out_a_lost_gpu():
    gpus = FakeProbe(2)
    gpus.lose(ZERO)
    selection = select(AutoDevices(), gpus)
    assert selection.devices == (ONE,)
    assert "could not be read" in selection.left_out[0].reason
    assert selection.standby == ()


@pytest.mark.parametrize(
    ("pid", "who"), [(77, "another tuner (pid 77) uses it"), (None, "another tuner uses it")]
)
def test_auto_leaves_out_a_gpu_of_another_tuner(pid, who):
    selection = select(AutoDevices(), FakeProbe(2), locks=TakenBy(ZERO, pid=pid))
    assert selection.devices == (ONE,)
    assert selection.left_out[0].reason == f"GPU 0 is left out: {who}."
    assert selection.standby == ((ZERO, who),)


def test_auto_with_all_gpus_busy_names_the_holders_and_the_ways_out():
    gpus = FakeProbe(2)
    gpus.use(ZERO, ANN)
    message = error_of(AutoDevices(), gpus, locks=TakenBy(ONE))
    assert message == (
        "No free device: GPU 0 is left out: python (pid 4242, user ann) holds 8.0 GiB of it. "
        "GPU 1 is left out: another tuner (pid 77) uses it. Wait until one is free, share them "
        "anyway by naming them (`devices: [0, 1]`) or with `devices: all`, or use the CPU with "
        "`devices: cpu:4`."
    )


def test_auto_with_only_unreadable_gpus_is_an_error_and_not_the_cpu():
    problem = "GPU 0 is not used: it could not be read (GPU is lost)."
    message = error_of(AutoDevices(), FakeProbe(0, problems=(problem,)))
    assert message == (f"No GPU can be used. {problem} You can use the CPU with `devices: cpu:4`.")


def test_auto_warns_of_an_unreadable_gpu():
    assert select(AutoDevices(), FakeProbe(1, problems=("GPU 1 is lost.",))).warnings == (
        "GPU 1 is lost.",
    )


def test_all_takes_busy_gpus_with_a_warning():
    gpus = FakeProbe(2)
    gpus.use(ONE, ANN)
    selection = select(AllDevices(), gpus)
    assert selection.devices == (ZERO, ONE)
    assert selection.warnings == (
        "GPU 1 is in use: python (pid 4242, user ann) holds 8.0 GiB of it. "
        "Trials on it may be slow or run out of memory.",
    )


def test_all_without_driver_is_an_error():
    message = error_of(AllDevices(), None)
    assert message.startswith("devices: all finds no GPU. This machine has no NVIDIA driver")


def test_all_with_gpus_hidden_names_the_variable():
    message = error_of(AllDevices(), FakeProbe(0, cuda_visible_devices=""))
    assert message.endswith("CUDA_VISIBLE_DEVICES is ''.")


def test_named_devices_are_used_in_the_order_named():
    assert select(named(2, 0), FakeProbe(3)).devices == (TWO, ZERO)


def test_named_by_the_beginning_of_a_uuid():
    assert select(named("gpu-00000001"), FakeProbe(3)).devices == (ONE,)


def test_named_twice_in_two_forms_is_one_device():
    assert select(named(1, ONE.id), FakeProbe(3)).devices == (ONE,)


def test_named_and_busy_is_used_with_a_warning():
    gpus = FakeProbe(1)
    gpus.use(ZERO, ANN)
    selection = select(named(0), gpus)
    assert selection.devices == (ZERO,)
    assert selection.warnings[0].startswith("GPU 0 is in use: python (pid 4242, user ann)")


def test_named_but_missing_says_what_is_here():
    gpus = FakeProbe(2, cuda_visible_devices="0,1")
    assert error_of(named(0, 3), gpus) == (
        f"devices: 3 is not here. This machine has GPU 0 ({ZERO.id}), GPU 1 ({ONE.id}). "
        "CUDA_VISIBLE_DEVICES is '0,1'."
    )
    assert error_of(named(3, "MIG-1"), gpus).startswith("devices: 3, MIG-1 are not here.")


def test_named_by_a_beginning_of_two_uuids_is_an_error():
    assert error_of(named("GPU-0"), FakeProbe(2)) == (
        f"devices: GPU-0 is the beginning of several: GPU 0 ({ZERO.id}), GPU 1 ({ONE.id})."
    )


def test_named_but_of_another_tuner_is_an_error():
    assert error_of(named(0), FakeProbe(1), locks=TakenBy(ZERO)) == (
        f"GPU 0 ({ZERO.id}) is not free: another tuner (pid 77) uses it. "
        "Wait until it ends, or name other devices."
    )


def test_named_but_lost_is_an_error():
    gpus = FakeProbe(1)
    gpus.lose(ZERO)
    assert "could not be read" in error_of(named(0), gpus)


def test_number_of_a_gpu_with_mig_names_all_its_slices():
    slices = [
        Device(id=DeviceId(f"MIG-{n}"), kind=DeviceKind.MIG, name="1g.10gb", index=1)
        for n in range(2)
    ]
    gpus = FakeProbe([ZERO, *slices])
    assert select(named(1), gpus).devices == tuple(slices)
    assert select(named("MIG-1"), gpus).devices == (slices[1],)


# -- limits ----------------------------------------------------------------------------------

T4 = replace(a_gpu(0, memory_bytes=15 * GIB), name="NVIDIA T4")
H200, OTHER_H200 = (replace(a_gpu(index), name="NVIDIA H200") for index in (1, 2))
MIXED = (T4, H200, OTHER_H200)
ONLY_H200 = GpuLimits(types=("h200",))


@pytest.mark.parametrize(
    "limits", [ONLY_H200, GpuLimits(min_memory_bytes=40 * GIB)], ids=["type", "memory"]
)
@pytest.mark.parametrize(
    "request_", [AutoDevices(), AllDevices(), named(0, 1, 2)], ids=["auto", "all", "named"]
)
def test_gpus_that_do_not_suit_are_left_out_for_good(request_, limits):
    locks = TakenBy()
    selection = select(request_, FakeProbe(MIXED), limits=limits, locks=locks)
    assert selection.devices == (H200, OTHER_H200)
    assert locks.claimed == [H200, OTHER_H200]
    assert [one.device for one in selection.left_out] == [T4]
    assert selection.left_out[0].reason == limits.refusal(T4)
    assert selection.standby == ()


@pytest.mark.parametrize(
    "request_", [AutoDevices(), AllDevices(), named(0)], ids=["auto", "all", "named"]
)
def test_no_gpu_that_suits_is_an_error_that_says_what_is_here(request_):
    message = error_of(request_, FakeProbe([T4]), limits=ONLY_H200)
    assert message == (
        "No GPU suits the study: trial.resources.gpu_type is [h200], but there is only "
        "GPU 0 (NVIDIA T4, 15.0 GiB). Ask for less, or for other devices."
    )


def test_auto_without_gpu_is_no_way_around_a_demand():
    message = error_of(AutoDevices(), None, limits=ONLY_H200)
    assert message.startswith(
        "No GPU suits the study: trial.resources.gpu_type is [h200]. This machine has no NVIDIA"
    )
    at_most_two = GpuLimits(max_devices=2)
    assert len(select(AutoDevices(), None, limits=at_most_two).devices) == 4


def test_auto_with_all_that_suit_busy_speaks_only_of_them():
    gpus = FakeProbe(MIXED)
    gpus.use(H200, ANN)
    message = error_of(AutoDevices(), gpus, limits=ONLY_H200, locks=TakenBy(OTHER_H200))
    assert "GPU 0" not in message
    assert "`devices: [1, 2]`" in message


def test_auto_claims_at_most_max_gpus_and_the_rest_stands_by():
    gpus = FakeProbe(4)
    gpus.use(ZERO, ANN)
    locks = TakenBy()
    selection = select(AutoDevices(), gpus, limits=GpuLimits(max_devices=2), locks=locks)
    assert selection.devices == (ONE, TWO)
    assert locks.claimed == [ONE, TWO]
    assert selection.left_out[1].reason == "GPU 3 is left out: max_gpus is 2."
    assert selection.standby == (
        (ZERO, "python (pid 4242, user ann) holds 8.0 GiB of it"),
        (a_gpu(3), "max_gpus is 2"),
    )


@pytest.mark.parametrize(
    ("request_", "expected"),
    [(AllDevices(), (ZERO, ONE)), (named(2, 0, 1), (TWO, ZERO))],
    ids=["all", "named"],
)
def test_all_and_named_take_the_first_of_max_gpus(request_, expected):
    locks = TakenBy()
    selection = select(request_, FakeProbe(3), limits=GpuLimits(max_devices=2), locks=locks)
    assert selection.devices == expected
    assert locks.claimed == list(expected)
    assert [one.reason.partition(": ")[2] for one in selection.left_out] == ["max_gpus is 2."]
    assert selection.standby == ()
