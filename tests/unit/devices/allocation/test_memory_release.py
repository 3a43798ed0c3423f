"""A device is clear when nothing of the last attempt is left on it, whatever neighbours do."""

from __future__ import annotations

import pytest

from tests.fakes import GIB
from tuner.devices.allocation.memory_release import MARGIN_BYTES, is_clear, unclaimed_bytes
from tuner.devices.device import DeviceStatus, Holder

OWN = frozenset({10, 11})


def _holder(pid, memory_bytes, command="python"):
    return Holder(pid=pid, user="ann", command=command, memory_bytes=memory_bytes)


def _status(used_bytes, *holders):
    return DeviceStatus(memory_used_bytes=used_bytes, utilization_pct=0, holders=holders)


@pytest.mark.parametrize(
    ("status", "baseline_bytes", "expected"),
    [
        pytest.param(_status(0), 0, True, id="empty"),
        pytest.param(_status(GIB + MARGIN_BYTES), GIB, True, id="within the margin"),
        pytest.param(_status(GIB + MARGIN_BYTES + 1), GIB, False, id="memory not back"),
        pytest.param(_status(0, _holder(11, 0)), 0, False, id="own process is left"),
        pytest.param(_status(9 * GIB, _holder(99, 9 * GIB)), 0, True, id="a neighbour grew"),
        pytest.param(_status(12 * GIB, _holder(99, 9 * GIB)), 0, False, id="ours beside it"),
        pytest.param(_status(9 * GIB, _holder(99, None)), 0, True, id="a neighbour of any size"),
        pytest.param(
            _status(9 * GIB, _holder(7, 9 * GIB, command=None)), 0, False, id="pid of nobody"
        ),
        pytest.param(_status(None), None, True, id="no memory figure"),
        pytest.param(_status(None, _holder(10, None)), None, False, id="no figure, own process"),
        pytest.param(_status(9 * GIB), None, True, id="no baseline"),
    ],
)
def test_is_clear(status, baseline_bytes, expected):
    assert is_clear(status, baseline_bytes=baseline_bytes, own_pids=OWN) is expected


def test_unclaimed_bytes_counts_own_processes_and_the_driver():
    status = _status(10 * GIB, _holder(10, 4 * GIB), _holder(99, 5 * GIB))
    assert unclaimed_bytes(status, own_pids=OWN) == 5 * GIB


def test_unclaimed_bytes_is_never_negative():
    assert unclaimed_bytes(_status(GIB, _holder(99, 2 * GIB)), own_pids=OWN) == 0
