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
if [ "$1" = -l ]; then cat "$TABLE"; else cat > "$TABLE"; fi
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
    pid = int(str(entries(folder)["first"]["pid"]))
    runner = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    os.kill(runner, signal.SIGTERM)
    wait_until(lambda: not Path(f"/proc/{pid}").exists(), "the study has ended", WAIT_S)
    wait_until(lambda: entries(folder)["first"]["pid"] is None, "it waits again", WAIT_S)
    assert entries(folder)["first"]["exit_code"] is None
    folder.write("go", "")
    wait_until(lambda: folder.tuner("queue").out.count("completed") == 2, "both end", WAIT_S)
    assert folder.states("first.db") == folder.states("second.db") == ["COMPLETE"] * 4


def test_cron_starts_the_queue_after_a_reboot_where_it_is_there(
    folder: StudyFolder, tmp_path: Path
) -> None:
    program = folder.write("bin/crontab", CRONTAB)
    program.chmod(0o755)
    table = tmp_path / "table"
    table.write_text("0 4 * * * backup\n")
    folder.env |= {"PATH": f"{program.parent}:/usr/bin:/bin", "TABLE": str(table)}
    folder.study(study="small")

    def has_ended() -> bool:
        (state,) = Path(folder.env["XDG_STATE_HOME"]).glob("tuner/queue/*")
        return not is_running(state)

    for _ in range(2):
        assert "cron starts it again after a reboot" in folder.tuner("queue", "study.yaml").out
        wait_until(lambda: "waits" not in folder.tuner("queue").out, "it has run", WAIT_S)
        wait_until(has_ended, "the queue's process has ended", WAIT_S)
    lines = table.read_text().splitlines()
    assert lines[0] == "0 4 * * * backup"
    assert len(lines) == 2
    assert lines[1].startswith("@reboot ")
    assert "-m tuner.queue" in lines[1]


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
