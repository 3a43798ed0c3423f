"""mpirun as a launcher, with the real Open MPI on two CPU slots."""

from __future__ import annotations

import shutil
import signal
import sys

import psutil
import pytest

from tests.e2e.study_folder import REPOSITORY, StudyFolder, wait_until
from tuner.errors import EXIT_BAD_INPUT, EXIT_BUDGET_REACHED

pytestmark = [pytest.mark.programs, pytest.mark.timeout(300)]
#: Each rank imports torch; the machine may be busy.
PATIENCE_S = 270.0
ENVIRONMENT = {
    "OMPI_ALLOW_RUN_AS_ROOT": "1",
    "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
    "OMP_NUM_THREADS": "1",
}
MPIRUN = ["mpirun", "-n", "{gpus}", "--oversubscribe", "--bind-to", "none", "python", "train.py"]
#: Each rank reports; those of rank 1 must not count.
RANKS = """
import os
from pathlib import Path
import tuner

trial = tuner.current()
Path(f"rank-{trial.number}-{trial.rank}").write_text(
    f"{trial.local_rank} of {trial.world_size}: {trial.device_labels[trial.local_rank]}"
)
for step in range(1, 4):
    trial.report(float(100 * trial.rank + step), step)
    if trial.should_prune():
        break
"""
ENDLESS = """
import time
from pathlib import Path
import tuner

trial = tuner.current()
Path(f"rank-{trial.rank}").touch()
while True:
    time.sleep(0.05)
"""


#: Two groups one after the other; the ranks add up their numbers in each.
GROUPS = """
import torch
import torch.distributed as dist
import tuner
from tuner import ddp

trial = tuner.current()
total = torch.zeros(1)
for _ in range(2):
    with ddp.group(trial):
        own = torch.tensor([trial.rank + 1.0])
        dist.all_reduce(own)
        total += own
trial.report(float(total), 1)
"""


@pytest.fixture
def mpi_folder(study_folder: StudyFolder) -> StudyFolder:
    """A study of a command that mpirun starts."""
    assert shutil.which("mpirun"), "needs Open MPI: apt-get install openmpi-bin"
    trial = {"command": MPIRUN, "resources": {"cpus": 2}, "env": ENVIRONMENT, "stop_grace": "5s"}
    study_folder.study(trial=trial, budget={"trials": 2}, pruner="none")
    return study_folder


def test_each_rank_has_its_device_and_rank_0_reports(mpi_folder: StudyFolder) -> None:
    mpi_folder.write("train.py", RANKS)
    ended = mpi_folder.tune()
    assert ended.code == EXIT_BUDGET_REACHED, ended.text
    for trial in range(2):
        ranks = [(mpi_folder.path / f"rank-{trial}-{rank}").read_text() for rank in range(2)]
        assert ranks == ["0 of 2: cpu:0", "1 of 2: cpu:1"]
    reports = mpi_folder.rows(
        "select step, intermediate_value from trial_intermediate_values order by trial_id, step"
    )
    assert reports == [(1, 1.0), (2, 2.0), (3, 3.0)] * 2


def test_pruned_trial_ends_on_all_ranks(mpi_folder: StudyFolder) -> None:
    mpi_folder.write("train.py", RANKS)
    ended = mpi_folder.tune("--set", "pruner={name: threshold, upper: 1.5}")
    assert ended.text.count(": pruned") == 2, ended.text
    reports = mpi_folder.rows("select step from trial_intermediate_values where trial_id = 1")
    assert reports == [(1,), (2,)]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_no_rank_is_left_when_the_tuner_is_ended(
    mpi_folder: StudyFolder, number: signal.Signals
) -> None:
    mpi_folder.write("train.py", ENDLESS)
    running = mpi_folder.start()
    wait_until(lambda: {"rank-0", "rank-1"} <= mpi_folder.files(), "both ranks are at work")
    family = psutil.Process(running.process.pid).children(recursive=True)
    assert sum("train.py" in " ".join(each.cmdline()) for each in family) >= 3
    running.signal(number)
    running.wait()
    gone = {psutil.STATUS_ZOMBIE, psutil.STATUS_DEAD}
    wait_until(
        lambda: all(not p.is_running() or p.status() in gone for p in family), "all have ended"
    )


def test_tuner_that_mpirun_starts_is_refused(mpi_folder: StudyFolder) -> None:
    mpi_folder.env.update(ENVIRONMENT)
    tune = [sys.executable, "-m", "tuner.run", "study.yaml", "--trials", "1"]
    ended = mpi_folder.run("mpirun", "-n", "2", "--oversubscribe", *tune)
    assert ended.code == EXIT_BAD_INPUT, ended.text
    assert (
        "mpirun (Open MPI) has started this command 2 times on this machine, but one tuner runs "
        "all devices of a machine and starts the ranks of each trial itself. Start it alone: "
        "python -m tuner.run study.yaml --trials 1\n"
        "Ranks per trial are keys of the study file: trial: {parallel: ddp, resources: {gpus: 2}}"
    ) in ended.err
    assert "small.db" not in mpi_folder.files()


def test_ranks_meet_once_and_again(mpi_folder: StudyFolder) -> None:
    mpi_folder.write("train.py", GROUPS)
    ended = mpi_folder.start("--trials", "1").wait(PATIENCE_S)
    assert ended.code == EXIT_BUDGET_REACHED, ended.text
    assert mpi_folder.rows("select value from trial_values") == [(6.0,)]


def test_example(mpi_folder: StudyFolder) -> None:
    for file in (REPOSITORY / "examples" / "mpirun").iterdir():
        shutil.copy(file, mpi_folder.path)
    words = ["--set", "devices=cpu:2", "--set", "pruner=none", "--trials", "1"]
    ended = mpi_folder.start(*words).wait(PATIENCE_S)
    assert ended.code == EXIT_BUDGET_REACHED, ended.text
    ((accuracy,),) = mpi_folder.rows("select value from trial_values", database="mpirun.db")
    assert accuracy > 0.5
    log = mpi_folder.path / "tuner-files/digits-mpirun/trial-0/attempt-1.log"
    assert {"rank 0 of 2 on cpu", "rank 1 of 2 on cpu"} <= set(log.read_text().splitlines())


def test_example_alone(mpi_folder: StudyFolder) -> None:
    script = REPOSITORY / "examples" / "mpirun" / "train.py"
    words = ["mpirun", "-n", "2", "--oversubscribe", "--bind-to", "none", "python", str(script)]
    mpi_folder.env.update(ENVIRONMENT)
    ended = mpi_folder.run(*words, timeout_s=PATIENCE_S)
    assert ended.code == 0, ended.text
    assert "accuracy 0." in ended.out, ended.text
