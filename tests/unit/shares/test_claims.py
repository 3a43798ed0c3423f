"""Claim files: who believes what of them, and what a file of somebody else can do."""

from __future__ import annotations

import fcntl
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tuner.devices.device import DeviceId
from tuner.errors import DeviceError
from tuner.host.process_identity import pid_namespace
from tuner.shares.claims import Claim, OwnClaim, read_claims

GPU = DeviceId("GPU-0")


def a_claim(**changes: object) -> Claim:
    values: dict[str, object] = {
        "pid": os.getpid(),
        "pid_namespace": pid_namespace(),
        "priority": 50,
        "since_s": 5.0,
        "wants": 2,
        "unit": 1,
        "suits": {GPU: 10_000},
        "holds": {GPU: 7.5},
        "leaving": frozenset([GPU]),
        "rules": "abc",
        **changes,
    }
    return Claim(**values)  # type: ignore[arg-type]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "claims"


def locked(folder: Path, name: str, content: bytes) -> int:
    """A file that somebody holds locked as a tuner does."""
    folder.mkdir(exist_ok=True)
    file = os.open(folder / name, os.O_RDWR | os.O_CREAT)
    os.write(file, content)
    fcntl.flock(file, fcntl.LOCK_EX)
    return file


def own_name(end: str = "1-abcd") -> str:
    return f"claim-{os.getuid()}-{end}"


def test_a_claim_is_read_as_it_was_written_and_its_user_is_the_owner(folder: Path) -> None:
    own = OwnClaim(folder)
    own.write(a_claim(wants=1))
    own.write(a_claim(wants=2))
    (found,) = read_claims(folder).claims
    assert found.uid == os.getuid()
    assert found == a_claim(name=own.name, uid=os.getuid())
    own.close()
    own.close()
    assert read_claims(folder).claims == ()
    assert list(folder.iterdir()) == []


def test_others_may_read_a_claim_and_not_write_it_whatever_the_umask(folder: Path) -> None:
    before = os.umask(0o077)
    try:
        own = OwnClaim(folder)
        own.write(a_claim())
    finally:
        os.umask(before)
    assert (folder / own.name).stat().st_mode & 0o777 == 0o644
    assert folder.stat().st_mode & 0o7777 == 0o1777
    own.close()


def test_a_claim_says_nothing_of_the_study(folder: Path) -> None:
    own = OwnClaim(folder)
    own.write(a_claim())
    assert set(json.loads((folder / own.name).read_text())) == {
        *("pid", "pid_namespace", "priority", "since_s", "wants", "unit", "suits", "holds"),
        *("leaving", "rules", "waits_since_s"),
    }
    own.close()


@pytest.mark.slow
def test_the_claim_of_a_killed_process_is_cleared_and_removed(folder: Path) -> None:
    code = (
        "import sys, os, time; from pathlib import Path\n"
        "from tuner.shares.claims import Claim, OwnClaim\n"
        "from tuner.host.process_identity import pid_namespace\n"
        "own = OwnClaim(Path(sys.argv[1]))\n"
        "own.write(Claim(pid=os.getpid(), pid_namespace=pid_namespace(), priority=1, since_s=0,"
        " wants=1, unit=1, suits={}))\n"
        "print('ready', flush=True); time.sleep(60)"
    )
    process = subprocess.Popen([sys.executable, "-c", code, folder], stdout=subprocess.PIPE)
    assert process.stdout is not None
    process.stdout.readline()
    assert [claim.pid for claim in read_claims(folder).claims] == [process.pid]
    process.kill()
    process.wait()
    process.stdout.close()
    assert read_claims(folder).claims == ()
    assert list(folder.iterdir()) == []


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"\x00\xff rubbish", "cannot be read as one"),
        (b"", "cannot be read as one"),
        (b"[]", "cannot be read as one"),
        (b"{}", "cannot be read as one"),
        (b"[" * 100_000, "cannot be read as one"),
        (b" " * 300_000, "larger than a claim"),
    ],
)
def test_rubbish_is_left_out_with_a_warning(folder: Path, content: bytes, reason: str) -> None:
    file = locked(folder, own_name(), content)
    read = read_claims(folder)
    os.close(file)
    assert read.claims == ()
    assert len(read.warnings) == 1
    assert reason in read.warnings[0]


@pytest.mark.parametrize(
    "change",
    [
        {"wants": -1},
        {"wants": "all"},
        {"wants": 1e9},
        {"priority": 101},
        {"unit": 0},
        {"holds": {"GPU-0": float("inf")}},
        {"holds": [1]},
        {"suits": {"GPU-0": 20_000}},
        {"suits": {"GPU-0": True}},
        {"suits": {"GPU-0\x1b[2J": 1}},
        {"holds": {"GPU-0\nGPU-1: root, by right": 1.0}},
        {"suits": {"cpu:" + "9" * 5000: 1}},
        {"leaving": "GPU-0"},
        {"since_s": float("nan")},
        {"pid": 0},
    ],
)
def test_values_that_no_tuner_writes_are_not_believed(
    folder: Path, change: dict[str, object]
) -> None:
    own = OwnClaim(folder)
    own.write(a_claim())
    values = json.loads((folder / own.name).read_text())
    own.close()
    file = locked(folder, own_name(), json.dumps(values).encode())
    assert len(read_claims(folder).claims) == 1
    os.close(file)
    file = locked(folder, own_name("2-bcde"), json.dumps(values | change).encode())
    read = read_claims(folder)
    os.close(file)
    assert (read.claims, len(read.warnings)) == ((), 1)


def test_links_and_names_of_other_users_are_not_believed(folder: Path, tmp_path: Path) -> None:
    other = tmp_path / "secret"
    other.write_text("secret")
    folder.mkdir()
    (folder / own_name("1-link")).symlink_to(other)
    os.link(other, folder / own_name("2-hard"))
    os.mkfifo(folder / own_name("3-pipe"))
    file = locked(folder, "claim-4242-4-user", b"{}")
    read = read_claims(folder)
    os.close(file)
    assert read.claims == ()
    text = "\n".join(read.warnings)
    assert "symbolic link" in text
    assert "hard link" in text
    assert "not a regular file" in text
    assert "not one for its owner" in text
    assert "secret" not in text.replace(str(tmp_path), "").replace("secret file", "")


def test_a_lock_that_anybody_may_take_keeps_no_dead_claim_alive(folder: Path) -> None:
    own = OwnClaim(folder)
    own.write(a_claim())
    content = (folder / own.name).read_bytes()
    own.close()
    file = locked(folder, own_name(), content)
    fcntl.flock(file, fcntl.LOCK_SH)
    assert read_claims(folder).claims == ()
    os.close(file)


def test_a_claim_in_the_name_of_another_user_s_process_is_not_believed(folder: Path) -> None:
    if os.getuid() == 0:
        pytest.skip("root may have any process")
    own = OwnClaim(folder)
    own.write(a_claim(pid=os.getppid()))
    values = json.loads((folder / own.name).read_text())
    own.close()
    file = locked(folder, own_name(), json.dumps(values | {"pid": 2**22 - 1}).encode())
    read = read_claims(folder)
    os.close(file)
    assert (read.claims, len(read.warnings)) == ((), 1)


def test_a_flood_of_one_user_s_claims_is_cut(folder: Path) -> None:
    claims = [OwnClaim(folder) for _ in range(70)]
    for each in claims:
        each.write(a_claim())
    read = read_claims(folder)
    assert len(read.claims) == 64
    (warning,) = read.warnings
    assert warning.startswith(f"User id {os.getuid()} has more claims than tuners have (64, ")
    for each in claims:
        each.close()


def test_a_user_s_large_claims_are_read_up_to_a_limit_together(folder: Path) -> None:
    large = {DeviceId(f"cpu:{number:0120}"): 10_000 for number in range(1800)}
    claims = [OwnClaim(folder) for _ in range(6)]
    for each in claims:
        each.write(a_claim(suits=large))
    read = read_claims(folder)
    assert len(read.claims) == 4
    assert "further ones are not looked at" in read.warnings[0]
    for each in claims:
        each.close()


def test_a_flood_of_rubbish_is_told_in_few_lines(folder: Path) -> None:
    folder.mkdir()
    folder.chmod(0o1777)
    for number in range(60):
        (folder / f"claim-{number}").symlink_to("/etc/shadow")
    warnings = read_claims(folder).warnings
    assert len(warnings) == 21
    assert warnings[-1] == f"{folder} has further files that are no claims."


def test_a_folder_in_which_others_may_remove_a_claim_is_refused(folder: Path) -> None:
    folder.mkdir()
    folder.chmod(0o777)
    with pytest.raises(DeviceError, match="chmod 1777"):
        OwnClaim(folder)
    link = folder.with_name("link")
    link.symlink_to(folder)
    with pytest.raises(DeviceError, match="is no folder"):
        OwnClaim(link)
    assert read_claims(folder.with_name("absent")).claims == ()


def test_a_claim_that_cannot_be_written_says_where(folder: Path) -> None:
    own = OwnClaim(folder)
    folder.rmdir()
    with pytest.raises(DeviceError, match="cannot be written: No such file"):
        own.write(a_claim())
