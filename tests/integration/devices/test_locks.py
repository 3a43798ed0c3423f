"""Two tuners on one host never claim the same GPU, whoever runs them and however they end."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from tests.fakes import a_gpu
from tuner.devices import locks as locks_module
from tuner.devices.cpu_slots.probe import CpuProbe
from tuner.devices.device import Device, DeviceId, DeviceKind
from tuner.devices.locks import DeviceLocks, default_lock_folder
from tuner.errors import DeviceError

ZERO, ONE = a_gpu(0), a_gpu(1)


@pytest.fixture
def folder(tmp_path):
    return tmp_path / "tuner-devices"


@pytest.fixture
def ours(folder):
    with DeviceLocks(folder) as locks:
        yield locks


@pytest.fixture
def theirs(folder):
    with DeviceLocks(folder) as locks:
        yield locks


def test_claimed_device_is_refused_to_others(ours, theirs):
    assert ours.acquire(ZERO)
    assert not theirs.acquire(ZERO)
    assert theirs.acquire(ONE)
    assert theirs.owner_pid(ZERO) == os.getpid()


def test_acquire_twice_is_true(ours):
    assert ours.acquire(ZERO)
    assert ours.acquire(ZERO)


def test_close_gives_all_back(ours, theirs):
    ours.acquire(ZERO)
    ours.close()
    ours.close()
    assert theirs.owner_pid(ZERO) is None
    assert theirs.acquire(ZERO)


def test_release_gives_one_back(ours, theirs):
    ours.acquire(ZERO)
    ours.acquire(ONE)
    ours.release(ZERO)
    assert theirs.owner_pid(ZERO) is None
    assert theirs.acquire(ZERO)
    assert not theirs.acquire(ONE)
    assert not ours.acquire(ZERO)


def test_release_of_what_is_not_ours_does_nothing(ours, theirs):
    theirs.acquire(ZERO)
    ours.release(ZERO)
    assert not ours.acquire(ZERO)


def test_cpu_slots_are_shared(ours, theirs, folder):
    (slot,) = CpuProbe(1).devices()
    assert ours.acquire(slot)
    assert theirs.acquire(slot)
    assert not folder.exists()


def test_owner_is_unknown_before_any_claim(ours):
    assert ours.owner_pid(ZERO) is None


def test_folder_and_files_are_open_to_all_users(ours, folder):
    before = os.umask(0o077)
    try:
        ours.acquire(ZERO)
    finally:
        os.umask(before)
    assert stat.S_IMODE(folder.stat().st_mode) == 0o1777
    assert stat.S_IMODE((folder / ZERO.id).stat().st_mode) == 0o666


def test_uuid_with_slashes_stays_in_the_folder(ours, folder):
    device = Device(id=DeviceId("MIG-GPU-aa/1/0"), kind=DeviceKind.MIG, name="x", index=0)
    assert ours.acquire(device)
    assert [file.name for file in folder.iterdir()] == ["MIG-GPU-aa_1_0"]


def test_link_in_place_of_a_file_is_refused(ours, folder, tmp_path):
    target = tmp_path / "precious"
    target.write_text("precious")
    folder.mkdir()
    (folder / ZERO.id).symlink_to(target)
    with pytest.raises(DeviceError, match="GPU 0 cannot be claimed"):
        ours.acquire(ZERO)
    assert target.read_text() == "precious"


def test_hard_link_in_place_of_a_file_is_refused(ours, folder, tmp_path):
    folder.mkdir()
    target = tmp_path / "precious"
    target.write_text("1")
    (folder / ZERO.id).hardlink_to(target)
    with pytest.raises(DeviceError, match=r"a hard link to another file, so no .*\. Remove it\."):
        ours.acquire(ZERO)
    assert target.read_text() == "1"


def test_file_that_is_no_lock_is_refused(ours, folder):
    folder.mkdir()
    (folder / ZERO.id).write_text("precious " * 100)
    with pytest.raises(DeviceError, match=r"holds more than a lock does.*Remove it\."):
        ours.acquire(ZERO)
    assert len((folder / ZERO.id).read_text()) == 900


def test_pipe_in_place_of_a_file_is_refused(ours, folder):
    folder.mkdir()
    os.mkfifo(folder / ZERO.id)
    with pytest.raises(DeviceError, match=r"not a regular file.*Remove it\."):
        ours.acquire(ZERO)


def test_file_that_is_removed_between_opening_and_locking_is_not_held(ours, theirs, folder):
    assert theirs.acquire(ZERO)  # Makes the file.
    theirs.release(ZERO)
    before = locks_module._open

    def opened_and_removed(where, name):
        lock = before(where, name)
        if len(removed) < 3:
            removed.append(name)
            (where / name).unlink()
        return lock

    removed: list[str] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(locks_module, "_open", opened_and_removed)
        assert ours.acquire(ZERO)
    assert len(removed) == 3
    assert not theirs.acquire(ZERO)


def test_link_in_place_of_the_folder_is_refused(ours, folder, tmp_path):
    folder.symlink_to(tmp_path)
    with pytest.raises(DeviceError, match="GPU 0 cannot be claimed"):
        ours.acquire(ZERO)


def test_default_folder_is_in_the_temporary_one():
    assert default_lock_folder().name == "tuner-devices"


PROGRAM = """
import sys
from pathlib import Path
from tests.fakes import a_gpu
from tuner.devices.locks import DeviceLocks
locks = DeviceLocks(Path(sys.argv[1]))
print(locks.acquire(a_gpu(0)), flush=True)
sys.stdin.read()
"""


def test_killed_tuner_leaves_no_claim(ours, folder):
    root = Path(__file__).parents[3]
    command = [sys.executable, "-c", PROGRAM, folder]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True, cwd=root) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == "True\n"
        assert not ours.acquire(ZERO)
        assert ours.owner_pid(ZERO) == other.pid
        other.kill()
        other.wait()
    assert ours.owner_pid(ZERO) is None
    assert ours.acquire(ZERO)
