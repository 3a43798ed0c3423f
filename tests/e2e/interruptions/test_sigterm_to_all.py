"""SIGTERM to every process of a job at once: each running trial saves, and the study goes on."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from tests.e2e.study_folder import Ended, StudyFolder, wait_until
from tuner.errors import EXIT_BUDGET_REACHED, EXIT_INTERRUPTED

MARK = "JOB_OF_TEST"
# The first attempts train until they are asked to end; later ones take three more steps.
TRAINS = """
import itertools, time
from pathlib import Path

import optuna

def train(trial):
    state = trial.load_checkpoint()
    begin = state["step"] + 1 if state else 0
    Path(f"begin-{trial.number}-{trial.attempt_number}").write_text(str(begin))
    for step in itertools.count(begin) if trial.attempt_number == 1 else range(begin, begin + 3):
        trial.report(1.0, step)
        if step == begin + 2:
            Path(f"ready-{trial.number}-{trial.rank}").touch()
        if trial.should_prune():
            trial.save_checkpoint({"step": step}, step)
            Path(f"saved-{trial.number}-{trial.rank}").write_text(str(step))
            raise optuna.TrialPruned
        time.sleep(0.05)
    return 1.0
"""
# The same with the names of Optuna's own trial only, so that nothing can be saved.
OBJECTIVE = """
import itertools, time
from pathlib import Path

import optuna

def train(trial):
    begin = 0 if not Path(f"ready-{trial.number}-0").exists() else -1
    trial.suggest_float("x", 0, 1)
    for step in itertools.count() if begin == 0 else range(3):
        trial.report(1.0, step)
        if step == 2:
            Path(f"ready-{trial.number}-0").touch()
        if trial.should_prune():
            Path(f"saved-{trial.number}-0").write_text(str(step))
            raise optuna.TrialPruned()
        time.sleep(0.05)
    return 1.0
"""
SCRIPT = (
    TRAINS
    + """
if __name__ == "__main__":
    import sys
    import tuner
    try:
        train(tuner.current())
    except optuna.TrialPruned:
        sys.exit({exit_code})
"""
)
# Imports nothing of ours, and has its own way to end.
PLAIN = """
import itertools, json, signal, sys, time
from pathlib import Path

number, folder = sys.argv[1], Path(sys.argv[2])
folder.mkdir(parents=True, exist_ok=True)
state = folder / "state"
begin = int(state.read_text()) + 1 if state.exists() else 0
signals = []
signal.signal(signal.SIGTERM, lambda *heard: signals.append(heard))
for step in range(begin, begin + 3) if state.exists() else itertools.count():
    print(json.dumps({"step": step, "value": 1.0}), flush=True)
    if step == begin + 2:
        Path(f"ready-{number}-0").touch()
    if signals:
        state.write_text(str(step))
        Path(f"saved-{number}-0").write_text(str(step))
        sys.exit(0)
    time.sleep(0.05)
"""
# Each rank joins a group, and all must leave at one step, or some wait in a collective.
WIDE = TRAINS.replace("def train(trial):", "def steps(trial):").replace(
    "trial.report(1.0, step)", "ddp.mean(1.0, trial); trial.report(1.0, step)"
) + (
    """
from tuner import ddp

def train(trial):
    with ddp.group(trial):
        return steps(trial)
"""
)
# The children of a data loader get the signal, too, and the loader fails for want of them.
LOADER = """
import time
from pathlib import Path

from torch.utils.data import DataLoader

class Slow(list):
    def __getitem__(self, index):
        time.sleep(0.02)
        return super().__getitem__(index)

def train(trial):
    n = 10 ** 6 if trial.attempt_number == 1 else 20
    for step, batch in enumerate(DataLoader(Slow(range(n)), batch_size=2, num_workers=2)):
        trial.report(1.0, step)
        if step == 5:
            Path(f"ready-{trial.number}-0").touch()
    return 1.0
"""
# Rank 0 gets the signal before it has joined the others, who wait for it.
LATE = """
import time
from pathlib import Path

import optuna

from tuner import ddp

def train(trial):
    Path(f"pid-{trial.attempt_number}-{trial.rank}").write_text(str(__import__("os").getpid()))
    while trial.is_main and not Path("released").exists():
        time.sleep(0.05)
    with ddp.group(trial):
        for step in range(3):
            ddp.mean(1.0, trial)
            trial.report(1.0, step)
            if trial.should_prune():
                raise optuna.TrialPruned
    return 1.0
"""
FUNCTION = {"function": "forecast:train"}
COMMAND = ["python", "forecast.py"]
PROGRAMS: dict[str, tuple[str, dict[str, object], int]] = {
    "function": (TRAINS, FUNCTION, 1),
    "objective": (OBJECTIVE, FUNCTION, 1),
    "script that exits with 0": (SCRIPT.replace("{exit_code}", "0"), {"command": COMMAND}, 1),
    "script that exits with 3": (SCRIPT.replace("{exit_code}", "3"), {"command": COMMAND}, 1),
    "command": (PLAIN, {"command": [*COMMAND, "{trial_number}", "{checkpoint_dir}"]}, 1),
    "ranks": (WIDE, {**FUNCTION, "parallel": "ddp", "resources": {"cpus": 2}}, 2),
}


def processes_of_job(mark: str) -> list[int]:
    """All that have the variable, whatever their sessions, groups and parents are."""
    wanted = f"{MARK}={mark}".encode()
    found = []
    for folder in Path("/proc").iterdir():
        try:
            if folder.name.isdigit() and wanted in (folder / "environ").read_bytes().split(b"\0"):
                found.append(int(folder.name))
        except OSError:
            continue
    return found


def begin_and_end(folder: StudyFolder, program: str) -> tuple[Ended, int]:
    """Starts the study, and signals all of its processes while two trials train."""
    text, trial, n_ranks = PROGRAMS[program]
    folder.write("forecast.py", text)
    folder.study(
        trial=trial,
        search_space=None
        if program == "objective"
        else {"x": {"type": "float", "low": 0, "high": 1}},
        pruner={"name": "none"},
        devices=f"cpu:{2 * n_ranks}",
        budget={"trials": 2},
    )
    mark = str(folder.path)
    running = folder.start(env={MARK: mark})
    ready = {f"ready-{number}-0" for number in range(2)}
    wait_until(
        lambda: ready <= folder.files() or running.process.poll() is not None, "both trials train"
    )
    for pid in processes_of_job(mark):
        os.kill(pid, signal.SIGTERM)
    ended = running.wait()
    wait_until(lambda: not processes_of_job(mark), "no process is left")
    return ended, n_ranks


#: By day a script that exits with 0 when it is told to end; other codes: test_verdicts.py.
BY_NIGHT = {"script that exits with 3"}


@pytest.mark.parametrize(
    "program",
    [
        pytest.param(name, marks=[pytest.mark.nightly] * (name in BY_NIGHT))
        for name in sorted(PROGRAMS)
    ],
)
def test_trials_save_and_the_same_command_goes_on(study_folder: StudyFolder, program: str) -> None:
    ended, n_ranks = begin_and_end(study_folder, program)
    assert ended.code == EXIT_INTERRUPTED, ended.text
    saved = {
        (number, rank): int((study_folder.path / f"saved-{number}-{rank}").read_text())
        for number in range(2)
        for rank in range(n_ranks)
    }
    # All ranks have left at one step.
    assert all(saved[number, rank] == saved[number, 0] for number, rank in saved)
    assert study_folder.states() == ["WAITING"] * 2
    assert [one.outcome for one in study_folder.attempts()] == ["cancelled"] * 2

    again = study_folder.tune()
    assert again.code == EXIT_BUDGET_REACHED, again.text
    assert study_folder.states() == ["COMPLETE"] * 2
    assert [one.outcome for one in study_folder.attempts()] == ["cancelled", "completed"] * 2
    if program in ("function", "ranks"):
        begun = [int((study_folder.path / f"begin-{number}-2").read_text()) for number in range(2)]
        assert begun == [saved[number, 0] + 1 for number in range(2)]


def test_a_data_loader_whose_processes_are_ended_is_no_failure(study_folder: StudyFolder) -> None:
    study_folder.write("forecast.py", LOADER)
    study_folder.study(trial={**FUNCTION, "retries": 0}, budget={"trials": 2})
    running = study_folder.start(env={MARK: str(study_folder.path)})
    wait_until(lambda: {"ready-0-0", "ready-1-0"} <= study_folder.files(), "both trials train")
    for pid in processes_of_job(str(study_folder.path)):
        os.kill(pid, signal.SIGTERM)
    ended = running.wait()
    assert ended.code == EXIT_INTERRUPTED, ended.text
    assert [one.outcome for one in study_folder.attempts()] == ["cancelled"] * 2
    again = study_folder.tune()
    assert again.code == EXIT_BUDGET_REACHED, again.text
    assert study_folder.states() == ["COMPLETE"] * 2


@pytest.mark.parametrize("rank", [0, 1])
def test_a_signal_to_a_rank_before_it_joins_costs_no_retry(
    study_folder: StudyFolder, rank: int
) -> None:
    study_folder.write("forecast.py", LATE)
    trial = {**FUNCTION, "parallel": "ddp", "resources": {"cpus": 2}, "retries": 0}
    study_folder.study(trial=trial, pruner={"name": "none"}, budget={"trials": 1})
    running = study_folder.start()
    pids = [study_folder.path / f"pid-1-{number}" for number in range(2)]
    wait_until(lambda: all(file.exists() and file.read_text() for file in pids), "both ranks wait")
    os.kill(int(pids[rank].read_text()), signal.SIGTERM)
    study_folder.write("released", "")
    ended = running.wait()
    assert ended.code == EXIT_BUDGET_REACHED, ended.text
    ends = [(one.outcome, one.cause) for one in study_folder.attempts()]
    assert ends == [("cancelled", "signal"), ("completed", None)]
