"""A Gaussian process suggests in a process of its own, which is gone with the dispatcher."""

from __future__ import annotations

import signal
from pathlib import Path

import psutil
import pytest

from tests.e2e.interruptions.test_interrupt import PATIENT, is_gone, processes_of
from tests.e2e.study_folder import Running, StudyFolder, wait_until
from tuner.errors import EXIT_BUDGET_REACHED, EXIT_INTERRUPTED

N_TRIALS = 8
GP = {"name": "gp", "seed": 1, "n_startup_trials": 2}
#: Those before trial 4 end at once; the others work until the file `go` is there.
EARLY = PATIENT.replace(
    'while not Path("go").exists()', 'while trial.number > 3 and not Path("go").exists()'
)


def begin(folder: StudyFolder) -> Running:
    """Starts the study and waits until two trials that were suggested are at work."""
    folder.write("forecast.py", EARLY)
    folder.study(sampler=GP, pruner={"name": "none"}, budget={"trials": N_TRIALS})
    running = folder.start()
    wait_until(
        lambda: {"begun-4-1", "begun-5-1"} <= folder.files() or running.process.poll() is not None,
        "two trials are at work",
    )
    assert running.process.poll() is None, running.wait()
    return running


def suggester_of(running: Running) -> psutil.Process:
    (found,) = [
        each
        for each in processes_of(running)
        if "tuner.search.samplers.out_of_process.worker" in each.cmdline()
    ]
    return found


def holds_torch(pid: int) -> bool:
    return "libtorch" in Path(f"/proc/{pid}/maps").read_text()


def test_dispatcher_holds_no_torch(study_folder: StudyFolder) -> None:
    study_folder.is_cold = True  # Its own memory is looked at.
    running = begin(study_folder)
    suggester = suggester_of(running)
    # The two trials may have begun at random while it was imported.
    wait_until(lambda: holds_torch(suggester.pid), "the suggester has torch")
    assert not holds_torch(running.process.pid)
    study_folder.write("go", "")
    ended = running.wait()
    assert (ended.code, ended.err) == (EXIT_BUDGET_REACHED, "")
    assert study_folder.states() == ["COMPLETE"] * N_TRIALS
    assert is_gone(suggester)
    notes = "select count(*) from trial_system_attributes where key = 'gp:relative_params:0'"
    # Four begin before two have ended, and two may be drawn while torch is imported.
    assert study_folder.rows(notes)[0][0] >= N_TRIALS - 4 - 2


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_it_ends_with_the_dispatcher(study_folder: StudyFolder, number: signal.Signals) -> None:
    running = begin(study_folder)
    everyone = processes_of(running)
    assert suggester_of(running) in everyone
    running.signal(number)
    ended = running.wait()
    assert ended.code in (EXIT_INTERRUPTED, -signal.SIGKILL)
    wait_until(lambda: all(map(is_gone, everyone)), "all processes are gone")


def test_study_survives_it(study_folder: StudyFolder) -> None:
    running = begin(study_folder)
    suggester_of(running).kill()
    study_folder.write("go", "")
    ended = running.wait()
    assert (ended.code, ended.err) == (EXIT_BUDGET_REACHED, "")
    assert study_folder.states() == ["COMPLETE"] * N_TRIALS
