"""Programs whose ranks meet before `study.optimize`, in the shapes of Optuna's public examples.

`pytorch_distributed_simple` is started by mpirun, `pytorch_distributed_spawn` starts its ranks
itself. Both name a port in their text.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator

import pytest

from tests.e2e.study_folder import StudyFolder
from tuner.errors import EXIT_BAD_INPUT, EXIT_BUDGET_REACHED

pytestmark = [pytest.mark.programs, pytest.mark.timeout(600)]

#: Each rank imports torch, and each runs the program from its first line.
TIMEOUT_S = 240.0

OBJECTIVE = """
import os
import time

import optuna
import torch
import torch.distributed as dist
import torch.multiprocessing as mp


def objective(single):
    trial = optuna.integration.TorchDistributedTrial(single)
    x = trial.suggest_float("x", 0.0, 1.0)
    if trial.number < 2:  # Both hold their ports until the other one is there.
        open(f"there-{trial.number}", "w").close()
        while not all(os.path.exists(f"there-{n}") for n in range(2)):
            time.sleep(0.05)
    total = torch.tensor([x, 1.0])
    dist.all_reduce(total)
    trial.report(total[0].item(), 0)
    trial.set_user_attr("ranks", int(total[1]))
    if trial.number == 2 or trial.should_prune():
        raise optuna.TrialPruned
    return total[0].item()


def optimize(rank):
    if rank:
        for _ in range(3):
            try:
                objective(None)
            except optuna.TrialPruned:
                pass
        return None
    study = optuna.create_study(direction="maximize", pruner=optuna.pruners.NopPruner())
    study.optimize(objective, n_trials=3)
    return study
"""

BY_MPIRUN = """
if __name__ == "__main__":
    os.environ.update({"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "20000"})
    for name in ("RANK", "WORLD_SIZE"):
        key = name.replace("WORLD_", "")
        os.environ[name] = os.environ[f"OMPI_COMM_WORLD_{key}"]
    dist.init_process_group("gloo")
    dist.barrier()
    study = optimize(dist.get_rank())
    if dist.get_rank() == 0:
        print("ended:", sorted(trial.state.name for trial in study.trials))
"""

BY_SPAWN = """
def work(rank, n_ranks, found):
    os.environ.update({"MASTER_ADDR": "localhost", "MASTER_PORT": "20001"})
    dist.init_process_group("gloo", rank=rank, world_size=n_ranks)
    study = optimize(rank)
    if rank == 0:
        found["study"] = study
    dist.destroy_process_group()


if __name__ == "__main__":
    found = mp.Manager().dict()
    mp.spawn(work, args=(2, found), nprocs=2)
    print("ended:", sorted(trial.state.name for trial in found["study"].trials))
"""


@pytest.fixture(autouse=True)
def short_temporary_folder(study_folder: StudyFolder) -> Iterator[None]:
    """The path of a Manager's socket has at most 107 characters."""
    with tempfile.TemporaryDirectory(prefix="tuner-", ignore_cleanup_errors=True) as folder:
        study_folder.env["TMPDIR"] = folder
        yield


@pytest.mark.parametrize("main", [BY_MPIRUN, BY_SPAWN], ids=["mpirun", "spawn"])
def test_ranks_that_a_program_brings_together_are_those_of_the_tuner(
    study_folder: StudyFolder, main: str
) -> None:
    study_folder.write("train.py", OBJECTIVE + main)
    started = study_folder.start("--set", "devices=cpu:4", file="train.py")
    ended = started.wait(TIMEOUT_S)
    assert ended.code == EXIT_BUDGET_REACHED, ended.text
    assert "TorchDistributedTrial, 2 ranks per trial (trial.resources.cpus)" in ended.out
    assert "trial 1: started on cpu:2, cpu:3" in ended.out
    assert "ended: ['COMPLETE', 'COMPLETE', 'PRUNED']" in ended.out
    query = (
        "select param_value, value, value_json from trial_params join trial_values "
        "using (trial_id) join trial_user_attributes using (trial_id) where key = 'ranks'"
    )
    found = study_folder.rows(query, database="train.db")
    assert [(value, ranks) for _, value, ranks in found] == [
        (pytest.approx(2 * x), "2") for x, _, _ in found
    ]
    assert len(found) == 3


def test_a_trial_that_has_other_ranks_than_the_program_starts_is_named(
    study_folder: StudyFolder,
) -> None:
    study_folder.write("train.py", OBJECTIVE + BY_SPAWN)
    options = ("--set", "trial.resources.cpus=3", "--set", "devices=cpu:3")
    ended = study_folder.start(*options, file="train.py").wait(TIMEOUT_S)
    assert ended.code != EXIT_BUDGET_REACHED, ended.text
    message = (
        "The program starts 2 ranks (mp.spawn), but this trial has 3. Start the study with --set "
        "trial.resources.cpus=2, or give the program its arguments for 3."
    )
    assert message in ended.text


def test_ranks_that_are_no_trial_together_are_refused(study_folder: StudyFolder) -> None:
    text = OBJECTIVE.replace("optuna.integration.TorchDistributedTrial(single)", "single")
    study_folder.write("train.py", text.replace("optimize(rank)", "work(rank)") + "mp.spawn(work)")
    ended = study_folder.tune(file="train.py")
    assert ended.code == EXIT_BAD_INPUT, ended.text
    assert "study.optimize runs in a process that the program starts itself" in ended.err
