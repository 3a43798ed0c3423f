"""The queue after a reboot, by a real cron that has tables of its own."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.commands.test_queue import GATED, WAIT_S, entries, has_no_runner, runner_of
from tests.e2e.study_folder import StudyFolder, wait_until

pytestmark = pytest.mark.slow

#: Cron sees no table of this machine, and this machine none of the test's.
ISOLATED = """
set -e
mount -t tmpfs none /var/spool/cron/crontabs
chmod 1730 /var/spool/cron/crontabs
mount -t tmpfs none /etc/cron.d
mount --bind /dev/null /etc/crontab
mount -t tmpfs none /run
exec sleep 600
"""


@pytest.fixture
def inside(study_folder: StudyFolder) -> Iterator[list[str]]:
    """Runs a program where the tables of cron are empty."""
    programs = ("unshare", "nsenter", "cron", "crontab")
    if os.geteuid() != 0 or not all(map(shutil.which, programs)):
        pytest.skip("needs cron, and the right to mount")
    keeper = subprocess.Popen(["unshare", "--mount", "sh", "-c", ISOLATED])
    try:
        command = Path(f"/proc/{keeper.pid}/cmdline")
        wait_until(lambda: keeper.poll() is not None or b"sleep" in command.read_bytes(), "mounts")
        if keeper.poll() is not None:
            pytest.skip("nothing can be mounted here")
        yield ["nsenter", f"--target={keeper.pid}", "--mount", f"--wd={study_folder.path}", "--"]
    finally:
        keeper.kill()
        keeper.wait()


@pytest.mark.programs
def test_cron_starts_what_ran_when_the_machine_went_down(
    study_folder: StudyFolder, tmp_path: Path, inside: list[str]
) -> None:
    folder = study_folder
    folder.env |= {"XDG_STATE_HOME": str(tmp_path / "state 100%"), "HOME": str(tmp_path)}
    folder.write("gated.py", GATED)
    folder.study(study="first", trial={"function": "gated:train"})
    added = folder.tuner("queue", "study.yaml", prefix=inside)
    assert "cron starts it again after a reboot" in added.out, added.text
    runner, pid = runner_of(folder, "first")
    for each in (runner, pid):
        os.kill(each, signal.SIGKILL)
    wait_until(lambda: not Path(f"/proc/{pid}").exists(), "all is gone", WAIT_S)
    folder.write("go", "")
    cron = subprocess.Popen([*inside, "cron", "-f"])
    try:
        wait_until(lambda: entries(folder)["first"]["exit_code"] == 0, "it has ended", WAIT_S)
        wait_until(lambda: has_no_runner(folder), "the queue's process has ended", WAIT_S)
        # At the next boot nothing is started.
        table = subprocess.run([*inside, "crontab", "-l"], capture_output=True, text=True)
        assert "no crontab for" in table.stderr
    finally:
        cron.terminate()
        cron.wait()
    assert folder.states("first.db") == ["COMPLETE"] * 4
