"""`tuner queue` with real studies, one after the other."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path

import pytest

from tests.e2e.study_folder import StudyFolder, wait_until
from tuner.errors import EXIT_BAD_INPUT
from tuner.queue.runner import is_running

pytestmark = pytest.mark.slow
WAIT_S = 90.0
GATED = """
import time
from pathlib import Path

def train(trial):
    while not Path("go").exists():
        time.sleep(0.02)
    return trial.params.x
"""
#: A machine's cron, as far as `crontab` shows it: it keeps the table.
CRONTAB = """#!/bin/sh
case "$1" in
-l) cat "$TABLE";;
-r) rm "$TABLE";;
*) cat > "$TABLE";;
esac
"""


@pytest.fixture
def folder(study_folder: StudyFolder, tmp_path: Path) -> StudyFolder:
    """With a state folder of its own, and neither systemd nor cron."""
    study_folder.env |= {"XDG_STATE_HOME": str(tmp_path / "state"), "HOME": str(tmp_path)}
    study_folder.env["PATH"] = f"{Path(os.__file__).parents[2] / 'bin'}"
    return study_folder


def entries(folder: StudyFolder) -> dict[str, dict[str, object]]:
    (file,) = Path(folder.env["XDG_STATE_HOME"]).glob("tuner/queue/*/entries.json")
    return {each["study"]: each for each in json.loads(file.read_text())}


def test_studies_start_one_after_the_other_and_go_on_after_the_runner_was_ended(
    folder: StudyFolder,
) -> None:
    folder.write("gated.py", GATED)
    for name in ("first", "second"):
        folder.study(f"{name}.yaml", study=name, trial={"function": "gated:train"})
    added = folder.tuner("queue", "first.yaml")
    assert added.code == 0, added.text
    assert "Study 'first' is number 1 of your queue on this machine" in added.out
    assert "not after a reboot: neither systemd's user services nor cron are here" in added.out
    wait_until(lambda: entries(folder)["first"]["pid"] is not None, "it runs", WAIT_S)
    assert "number 2 of your queue" in folder.tuner("queue", "second.yaml").out
    shown = folder.tuner("queue").out
    assert "runs (pid" in shown
    assert "waits" in shown
    # The machine goes down: its study saves, and is the next to start.
    runner, pid = runner_of(folder, "first")
    os.kill(runner, signal.SIGTERM)
    wait_until(lambda: not Path(f"/proc/{pid}").exists(), "the study has ended", WAIT_S)
    wait_until(lambda: entries(folder)["first"]["pid"] is None, "it waits again", WAIT_S)
    assert entries(folder)["first"]["exit_code"] is None
    folder.write("go", "")
    wait_until(lambda: folder.tuner("queue").out.count("completed") == 2, "both end", WAIT_S)
    assert folder.states("first.db") == folder.states("second.db") == ["COMPLETE"] * 4


def runner_of(folder: StudyFolder, study: str) -> tuple[int, int]:
    """The process that has started a study of the queue, and that of the study."""
    wait_until(lambda: entries(folder)[study]["pid"] is not None, "it runs", WAIT_S)
    pid = int(str(entries(folder)[study]["pid"]))
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1]), pid


def has_no_runner(folder: StudyFolder) -> bool:
    (state,) = Path(folder.env["XDG_STATE_HOME"]).glob("tuner/queue/*")
    return not is_running(state)


@pytest.mark.programs
def test_cron_starts_the_queue_after_a_reboot_until_nothing_waits(
    folder: StudyFolder, tmp_path: Path
) -> None:
    program = folder.write("bin/crontab", CRONTAB)
    program.chmod(0o755)
    table = tmp_path / "table"
    other = f"@reboot env XDG_STATE_HOME={tmp_path}/other python -m tuner.queue # tuner queue"
    table.write_text(f"0 4 * * * backup\n{other}\n")
    folder.env |= {"PATH": f"{program.parent}:/usr/bin:/bin", "TABLE": str(table)}
    folder.write("gated.py", GATED)
    folder.study(study="first", trial={"function": "gated:train"})
    for n_kills in (1, 0):
        assert "cron starts it again after a reboot" in folder.tuner("queue", "study.yaml").out
        lines = table.read_text().splitlines()
        assert lines[:2] == ["0 4 * * * backup", other]
        assert len(lines) == 3
        assert lines[2].startswith("@reboot ")
        assert "-m tuner.queue" in lines[2]
        for _ in range(n_kills):
            # Its study goes on, and is not started a second time.
            os.kill(runner_of(folder, "first")[0], signal.SIGKILL)
            wait_until(lambda: has_no_runner(folder), "the queue's process is gone", WAIT_S)
            assert "cron starts it again after a reboot" in folder.tuner("queue").out
        folder.write("go", "")
        wait_until(lambda: entries(folder)["first"]["exit_code"] is not None, "it ends", WAIT_S)
        assert entries(folder)["first"]["exit_code"] == 0
        wait_until(lambda: has_no_runner(folder), "the queue's process has ended", WAIT_S)
        assert table.read_text().splitlines() == ["0 4 * * * backup", other]
    assert folder.states("first.db") == ["COMPLETE"] * 4


@pytest.mark.programs
def test_a_queue_that_is_soon_empty_is_not_started_after_a_reboot(
    folder: StudyFolder, tmp_path: Path
) -> None:
    # The study ends before a process that began before this would have been entered.
    program = folder.write("bin/crontab", CRONTAB.replace("*) cat", "*) sleep 5; cat"))
    program.chmod(0o755)
    table = tmp_path / "table"
    table.write_text("0 4 * * * backup\n")
    folder.env |= {"PATH": f"{program.parent}:/usr/bin:/bin", "TABLE": str(table)}
    folder.study(study="first", budget={"trials": 1})
    assert "cron starts it again after a reboot" in folder.tuner("queue", "study.yaml").out
    wait_until(lambda: entries(folder)["first"]["exit_code"] is not None, "it ends", WAIT_S)
    wait_until(lambda: has_no_runner(folder), "the queue's process has ended", WAIT_S)
    assert table.read_text() == "0 4 * * * backup\n"


def test_removing_the_last_study_ends_the_start_after_a_reboot(
    folder: StudyFolder, tmp_path: Path
) -> None:
    program = folder.write("bin/crontab", CRONTAB)
    program.chmod(0o755)
    table = tmp_path / "table"
    folder.env |= {"PATH": f"{program.parent}:/usr/bin:/bin", "TABLE": str(table)}
    folder.write("gated.py", GATED)
    folder.study(study="first", trial={"function": "gated:train"})
    # There is no table yet.
    assert "cron starts it again after a reboot" in folder.tuner("queue", "study.yaml").out
    runner, _ = runner_of(folder, "first")
    os.kill(runner, signal.SIGTERM)
    wait_until(lambda: has_no_runner(folder), "the queue's process has ended", WAIT_S)
    assert "@reboot " in table.read_text()
    assert "is empty" in folder.tuner("queue", "remove", "1").out
    assert not table.exists()


def test_words_that_are_none_and_files_that_are_wrong_put_nothing_into_the_queue(
    folder: StudyFolder,
) -> None:
    folder.study(budget={"trials": 0})
    refused = folder.tuner("queue", "study.yaml")
    assert (refused.code, "budget.trials is 0" in refused.err) == (EXIT_BAD_INPUT, True)
    refused = folder.tuner("queue", "move", "one", "2")
    assert (refused.code, "is given 'one'" in refused.err) == (EXIT_BAD_INPUT, True)
    refused = folder.tuner("queue", "remove", "1")
    assert (refused.code, "has no such number" in refused.err) == (EXIT_BAD_INPUT, True)
    assert "is empty" in folder.tuner("queue").out
