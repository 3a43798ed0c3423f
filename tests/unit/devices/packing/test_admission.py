"""A newcomer fits beside all of its neighbours at their peaks, or it waits."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.fakes import GIB
from tuner.devices.device import DeviceStatus, Holder
from tuner.devices.packing.admission import (
    Neighbour,
    fits,
    margin_bytes,
    room_bytes,
    used_alone,
    used_by,
)

MIB = 1024**2
OWN = frozenset({10, 11})


def _holder(pid, memory_bytes, command="python"):
    return Holder(pid=pid, user="ann", command=command, memory_bytes=memory_bytes)


def _status(used_bytes, *holders):
    return DeviceStatus(memory_used_bytes=used_bytes, utilization_pct=0, holders=holders)


def _neighbour(expected_bytes, used_bytes):
    return Neighbour(expected_bytes=expected_bytes, used_bytes=used_bytes)


@pytest.mark.parametrize(
    ("holders", "expected"),
    [
        pytest.param((_holder(10, GIB),), GIB, id="one process"),
        pytest.param((_holder(10, GIB), _holder(11, 2 * GIB), _holder(99, 5)), 3 * GIB, id="ranks"),
        pytest.param((_holder(10, GIB), _holder(7, GIB, None)), GIB, id="beside a hidden one"),
        pytest.param((_holder(10, GIB), _holder(11, None)), None, id="one without a size"),
        pytest.param((_holder(99, GIB),), 0, id="not yet there"),
        pytest.param((), None, id="no processes told"),
        pytest.param((_holder(7, GIB, None),), None, id="hidden pid may be its own"),
    ],
)
def test_used_by(holders, expected):
    assert used_by(_status(9 * GIB, *holders), OWN) == expected


@pytest.mark.parametrize(
    ("status", "baseline_bytes", "expected"),
    [
        pytest.param(_status(5 * GIB), GIB, 4 * GIB, id="no processes told"),
        pytest.param(_status(5 * GIB, _holder(7, GIB, None)), 0, 5 * GIB, id="hidden pid"),
        pytest.param(_status(9 * GIB, _holder(99, 5 * GIB)), GIB, 3 * GIB, id="beside another"),
        pytest.param(_status(GIB), 2 * GIB, 0, id="less than before"),
        pytest.param(_status(None), 0, None, id="no figure"),
        pytest.param(_status(GIB), None, None, id="no baseline"),
    ],
)
def test_used_alone(status, baseline_bytes, expected):
    assert used_alone(status, baseline_bytes=baseline_bytes) == expected


@pytest.mark.parametrize(
    ("status", "neighbours", "expected"),
    [
        pytest.param(_status(0), (), 24 * GIB, id="empty"),
        pytest.param(_status(4 * GIB), (_neighbour(6 * GIB, 4 * GIB),), 18 * GIB, id="will grow"),
        pytest.param(_status(8 * GIB), (_neighbour(6 * GIB, 8 * GIB),), 16 * GIB, id="outgrew"),
        pytest.param(_status(30 * GIB), (), 0, id="never negative"),
        pytest.param(_status(GIB), (_neighbour(None, GIB),), 0, id="may take all"),
        pytest.param(_status(0), (_neighbour(6 * GIB, None),), 18 * GIB, id="hidden, just started"),
        pytest.param(
            _status(8 * GIB),
            (_neighbour(6 * GIB, None), _neighbour(6 * GIB, None)),
            12 * GIB,
            id="hidden ones are not counted twice",
        ),
        pytest.param(
            _status(8 * GIB, _holder(10, 3 * GIB), _holder(7, 5 * GIB, None)),
            (_neighbour(4 * GIB, 3 * GIB), _neighbour(6 * GIB, None)),
            14 * GIB,
            id="a seen and a hidden one",
        ),
        pytest.param(
            _status(8 * GIB, _holder(99, 8 * GIB)),
            (_neighbour(6 * GIB, None),),
            10 * GIB,
            id="what is somebody else's is not the hidden one's",
        ),
    ],
)
def test_room_bytes(status, neighbours, expected):
    assert room_bytes(status, 24 * GIB, neighbours) == expected


def test_room_bytes_leaves_hidden_memory_from_before_to_its_owner():
    status = _status(8 * GIB)
    neighbours = (_neighbour(6 * GIB, None),)
    assert room_bytes(status, 24 * GIB, neighbours, baseline_bytes=5 * GIB) == 13 * GIB
    assert room_bytes(status, 24 * GIB, neighbours, baseline_bytes=None) == 10 * GIB
    not_told = _status(8 * GIB, _holder(99, None))
    assert room_bytes(not_told, 24 * GIB, neighbours) == 10 * GIB


def test_room_bytes_says_nothing_of_a_device_that_tells_no_memory():
    assert room_bytes(_status(None), 24 * GIB, ()) is None
    assert room_bytes(_status(0), None, ()) is None


@pytest.mark.parametrize(
    ("total_mib", "margin_mib"), [(8192, 512), (24564, 512), (81920, 1638), (143771, 2875)]
)
def test_margin_bytes(total_mib, margin_mib):
    assert margin_bytes(total_mib * MIB) // MIB == margin_mib


def test_fits_keeps_the_margin_free():
    assert fits(4 * GIB, 4 * GIB + 512 * MIB, 8 * GIB)
    assert not fits(4 * GIB, 4 * GIB + 512 * MIB - 1, 8 * GIB)


@given(
    attempts=st.lists(
        st.tuples(st.integers(0, 30), st.floats(0, 1), st.booleans()), min_size=1, max_size=6
    ),
    need_gib=st.integers(0, 30),
)
def test_what_fits_beside_others_fits_when_all_are_at_their_peaks(attempts, need_gib):
    peaks = [peak_gib * GIB for peak_gib, _, _ in attempts]
    now = [int(peak * part) for peak, (_, part, _) in zip(peaks, attempts, strict=True)]
    holders = [
        _holder(pid, used, None if is_hidden else "python")
        for pid, (used, (_, _, is_hidden)) in enumerate(zip(now, attempts, strict=True))
    ]
    neighbours = [
        _neighbour(peak, None if is_hidden else used)
        for peak, used, (_, _, is_hidden) in zip(peaks, now, attempts, strict=True)
    ]
    room = room_bytes(_status(sum(now), *holders), 80 * GIB, neighbours)
    assert room is not None
    if neighbours and fits(need_gib * GIB, room, 80 * GIB):
        assert sum(peaks) + need_gib * GIB + margin_bytes(80 * GIB) <= 80 * GIB
