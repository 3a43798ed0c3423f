"""Who uses a device is said in words that name them."""

from __future__ import annotations

import pytest

from tests.fakes import GIB
from tuner.devices.device import DeviceStatus, Holder
from tuner.devices.occupancy import HIDDEN_USE_BYTES, size_text, use_by_others

ANN = Holder(pid=4242, user="ann", command="python", memory_bytes=int(8.1 * GIB))
MPS = Holder(pid=9, user="root", command="nvidia-cuda-mps-server", memory_bytes=66 * 1024**2)
NOBODY = Holder(pid=7, user=None, command=None, memory_bytes=None)


@pytest.mark.parametrize(
    ("used_bytes", "holders", "expected"),
    [
        pytest.param(0, (), None, id="idle"),
        pytest.param(None, (), None, id="no figure"),
        pytest.param(9 * GIB, (ANN,), "python (pid 4242, user ann) holds 8.1 GiB of it", id="one"),
        pytest.param(0, (NOBODY,), "a process (pid 7) uses it", id="unknown"),
        pytest.param(HIDDEN_USE_BYTES, (), None, id="a desktop's memory"),
        pytest.param(
            5 * GIB,
            (),
            "5.0 GiB of it is held by processes that cannot be seen from here",
            id="hidden by a container",
        ),
        pytest.param(
            9 * GIB, (Holder(pid=1, user=None, command="x", memory_bytes=GIB),), None, id="own"
        ),
        pytest.param(GIB, (MPS,), None, id="MPS without clients"),
        pytest.param(
            9 * GIB, (MPS, ANN), "python (pid 4242, user ann) holds 8.1 GiB of it", id="under MPS"
        ),
        pytest.param(
            0,
            (NOBODY,) * 5,
            "a process (pid 7) uses it, a process (pid 7) uses it, "
            "a process (pid 7) uses it and 2 more",
            id="many",
        ),
    ],
)
def test_use_by_others(used_bytes, holders, expected):
    status = DeviceStatus(memory_used_bytes=used_bytes, utilization_pct=0, holders=holders)
    assert use_by_others(status, own_pids=frozenset({1})) == expected


def test_size_text():
    assert [size_text(512 * 1024**2), size_text(GIB)] == ["512 MiB", "1.0 GiB"]
