"""kill -9 of a dispatcher and the same command at once: no trial starts beside its own remains."""

from __future__ import annotations

import signal

import pytest

from tests.e2e.study_folder import StudyFolder, wait_until
from tuner.errors import EXIT_BUDGET_REACHED

# The first attempts listen to nothing; the second ones look whether the first are gone.
STUBBORN = """
import os, signal, sys, time
from pathlib import Path

def train(trial):
    return go(trial.number, trial.attempt_number)

def go(number, attempt):
    if attempt == 1:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        Path(f"pid-{number}").write_text(str(os.getpid()))
        Path(f"ready-{number}").touch()
        while True:
            time.sleep(0.1)
    living = [path.name for path in Path().glob("pid-*") if is_alive(path.read_text())]
    Path(f"living-{number}").write_text(" ".join(living))
    return 1.0

def is_alive(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False

if __name__ == "__main__":
    print('{"value": %g}' % go(int(sys.argv[1]), int(sys.argv[2])))
"""
PROGRAMS = {
    "function": {"function": "forecast:train"},
    "command": {"command": ["python", "forecast.py", "{trial_number}", "{attempt_number}"]},
}


@pytest.mark.parametrize("program", sorted(PROGRAMS))
def test_a_start_waits_for_what_a_killed_dispatcher_has_left(
    study_folder: StudyFolder, program: str
) -> None:
    study_folder.write("forecast.py", STUBBORN)
    study_folder.study(trial=PROGRAMS[program], budget={"trials": 2})
    running = study_folder.start()
    ready = {"ready-0", "ready-1"}
    wait_until(
        lambda: ready <= study_folder.files() or running.process.poll() is not None,
        "both trials run",
    )
    assert running.process.poll() is None, running.wait()
    running.signal(signal.SIGKILL)
    again = study_folder.tune()
    assert again.code == EXIT_BUDGET_REACHED, again.text
    living = [(study_folder.path / f"living-{number}").read_text() for number in range(2)]
    assert living == ["", ""]
    ends = [(one.number, one.outcome) for one in study_folder.attempts()]
    assert ends == [(1, "lost"), (2, "completed")] * 2
    left = study_folder.path / "tuner-files" / "small" / "dispatchers"
    assert list(left.iterdir()) == []
