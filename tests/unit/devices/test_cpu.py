"""CPU slots share the cores that the process may really use."""

from __future__ import annotations

import pytest

from tuner.devices.cpu_slots.probe import CpuProbe, usable_cores
from tuner.devices.device import DeviceKind


@pytest.mark.parametrize(
    ("n_cores", "n_slots", "expected_slots", "expected_threads"),
    [(4, None, 4, 1), (64, None, 8, 8), (1, None, 1, 1), (16, 3, 3, 5), (2, 6, 6, 1)],
)
def test_slots_share_the_cores(n_cores, n_slots, expected_slots, expected_threads):
    devices = CpuProbe(n_slots, n_cores=n_cores).devices()
    assert [device.id for device in devices] == [f"cpu:{n}" for n in range(expected_slots)]
    assert {device.n_threads for device in devices} == {expected_threads}
    assert {device.kind for device in devices} == {DeviceKind.CPU}


def test_no_slot_is_refused():
    with pytest.raises(ValueError, match="at least 1 CPU slot"):
        CpuProbe(0)


@pytest.fixture
def n_affinity_cores(monkeypatch):
    monkeypatch.setattr("os.sched_getaffinity", lambda _: set(range(16)), raising=False)


def _cores(tmp_path, files, memberships):
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    (tmp_path / "self").write_text(memberships)
    return usable_cores(tmp_path, tmp_path / "self")


@pytest.mark.usefixtures("n_affinity_cores")
@pytest.mark.parametrize(
    ("files", "memberships", "expected"),
    [
        pytest.param({}, "0::/\n", 16, id="no quota"),
        pytest.param({"cpu.max": "max 100000\n"}, "0::/\n", 16, id="v2 max"),
        pytest.param({"cpu.max": "350000 100000\n"}, "0::/\n", 3, id="v2 rounds down"),
        pytest.param({"cpu.max": "50000 100000\n"}, "0::/\n", 1, id="v2 half a core"),
        pytest.param(
            {"a/b/cpu.max": "max 100000\n", "a/cpu.max": "200000 100000\n"},
            "0::/a/b\n",
            2,
            id="v2 quota of the group above",
        ),
        pytest.param(
            {"cpu/cpu.cfs_quota_us": "400000\n", "cpu/cpu.cfs_period_us": "100000\n"},
            "4:cpu,cpuacct:/docker/0123\n1:name=systemd:/\n",
            4,
            id="v1 in a container",
        ),
        pytest.param(
            {"cpu/cpu.cfs_quota_us": "-1\n", "cpu/cpu.cfs_period_us": "100000\n"},
            "1:cpu:/\n",
            16,
            id="v1 no quota",
        ),
        pytest.param({"cpu.max": "9900000 100000\n"}, "0::/\n", 16, id="quota above affinity"),
    ],
)
def test_usable_cores_obey_the_quota(tmp_path, files, memberships, expected):
    assert _cores(tmp_path, files, memberships) == expected


@pytest.mark.usefixtures("n_affinity_cores")
def test_usable_cores_without_cgroups_are_those_of_the_affinity_mask(tmp_path):
    assert usable_cores(tmp_path / "none", tmp_path / "none") == 16
