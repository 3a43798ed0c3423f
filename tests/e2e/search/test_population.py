"""Population-based training with real processes, and the example as its README says."""

from __future__ import annotations

import importlib.util
import math
import shutil
import signal
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import optuna
import pytest

import tuner
from tests.e2e.study_folder import REPOSITORY, StudyFolder, wait_until
from tests.populations import check_books, origins
from tests.servers import Server
from tuner.errors import EXIT_BUDGET_REACHED

EXAMPLE = REPOSITORY / "examples" / "population"
#: On a machine that many share; nothing is measured here.
PATIENCE_S = 110.0

CLIMB = """
import os, time
import optuna, torch

def train(trial):
    while not os.path.exists("go"):
        time.sleep(0.05)
    state = trial.load_checkpoint() or {"step": 0, "total": torch.zeros(1)}
    total = state["total"]
    for step in range(state["step"] + 1, 13):
        time.sleep(0.05)
        total = total + trial.params.x
        trial.save_checkpoint({"step": step, "total": total}, step)
        trial.report(float(total), step)
        if trial.should_prune():
            raise optuna.TrialPruned
    return float(total)
"""


@pytest.fixture
def example(tmp_path: Path) -> Iterator[StudyFolder]:
    path = tmp_path / "population"
    shutil.copytree(EXAMPLE, path, ignore=shutil.ignore_patterns("tuner-files", "*.db"))
    folder = StudyFolder(path=path)
    yield folder
    folder.end_all()


@pytest.fixture
def program() -> ModuleType:
    """The example's own arithmetic."""
    spec = importlib.util.spec_from_file_location("population_example", EXAMPLE / "train.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.programs
@pytest.mark.timeout(240)
def test_no_constant_is_as_good_as_what_a_population_finds(
    example: StudyFolder, program: ModuleType
) -> None:
    example.env["STEP_S"] = "0"
    # Few processes, and one after the other: then the same seed gives the same study.
    options = ("--set", "pruner.population=6", "--set", "devices=cpu:1")
    ended = example.start(*options).wait(PATIENCE_S)
    assert ended.code == EXIT_BUDGET_REACHED, ended.text
    assert "the population has come to its end: 6 completed" in ended.text
    standing = example.tuner("status", "study.yaml")
    assert standing.code == 0
    assert "finished (the population has come to its end)" in standing.out
    url = f"sqlite:///{example.path / 'falling_rate.db'}"
    trials = optuna.load_study(study_name=None, storage=url).get_trials()
    check_books(trials, population=6)
    rates = [1e-3 * 1800 ** (place / 999) for place in range(1000)]
    best_constant = min(program.loss_with(lambda _, rate=rate: rate) for rate in rates)
    best = tuner.load_best(url)
    assert best.value < best_constant
    _check_schedule(example, program, best)
    _check_why(example, trials)


def _check_schedule(
    example: StudyFolder, program: ModuleType, best: tuner.BestConfiguration
) -> None:
    """The loss is that of the learning rates which the lineage names, and so is the checkpoint."""
    shown = example.tuner("schedule", "study.yaml", "-o", "schedule.json")
    assert shown.code == 0, shown.text
    schedule = tuner.load_schedule(example.path / "schedule.json")
    assert schedule.trial == best.trial_number
    assert len({phase.params["lr"] for phase in schedule.phases}) > 1
    again = program.loss_with(lambda step: float(schedule.at(step)["lr"]))
    assert math.isclose(again, best.value, rel_tol=1e-9)
    state = best.load_checkpoint()
    assert state is not None
    assert state["step"] == program.N_STEPS
    assert program.loss_of(state["squares"]) == best.value
    printed = example.python("again.py")
    assert printed.code == 0, printed.text
    _, with_schedule, _ = (float(line.split()[-1]) for line in printed.out.splitlines())
    assert math.isclose(with_schedule, best.value, abs_tol=1e-6)


def _check_why(example: StudyFolder, trials: list[optuna.trial.FrozenTrial]) -> None:
    number, origin = next(iter(origins(trials).items()))
    why = example.tuner("why", "study.yaml", str(number)).out
    assert f"copy of trial {origin.parent} at step {origin.step}, in the place of" in why
    why = example.tuner("why", "study.yaml", str(origin.replaces)).out
    assert f"replaced by trial {number}, a copy of trial {origin.parent}" in why
    assert f"a copy of trial {origin.parent} at step {origin.step} takes its place" in why


# -- accidents and company ---------------------------------------------------------------------


def a_population(folder: StudyFolder, storage: str, devices: str) -> None:
    folder.write("forecast.py", CLIMB)
    folder.study(
        storage=storage,
        objectives={"value": "maximize"},
        pruner={"name": "pbt", "population": 4, "interval": 3, "quantile": 0.5, "max_resource": 12},
        devices=devices,
        budget=None,
    )


def check(url: str) -> None:
    trials = optuna.load_study(study_name=None, storage=url).get_trials()
    # Of a dispatcher that was killed the last second of reports may be missing.
    check_books(trials, population=4, has_all_reports=False)
    assert origins(trials)
    for trial in trials:
        for step, value in trial.intermediate_values.items():
            assert math.isclose(value, total_of(trials, trial.number, step), rel_tol=1e-4)


def total_of(trials: list[optuna.trial.FrozenTrial], number: int, last: int) -> float:
    """What the lineage of a trial has added up to."""
    origin = origins(trials).get(number)
    x = float(trials[number].params["x"])
    if origin is None:
        return last * x
    assert origin.parent is not None
    return total_of(trials, origin.parent, origin.step) + (last - origin.step) * x


def test_a_killed_dispatcher_loses_nobody(study_folder: StudyFolder) -> None:
    a_population(study_folder, "sqlite:///small.db", "cpu:3")
    replaced = "select 1 from trial_system_attributes where key = 'tuner:replaced'"
    running = study_folder.start()
    wait_until(lambda: ": started on" in running.out, "a trial begins")
    study_folder.write("go", "")
    wait_until(lambda: bool(study_folder.rows(replaced)), "a member is given up", PATIENCE_S)
    running.signal(signal.SIGKILL)
    running.wait()
    assert study_folder.start().wait(PATIENCE_S).code == EXIT_BUDGET_REACHED
    check(f"sqlite:///{study_folder.path / 'small.db'}")


def test_two_dispatchers_share_a_population(study_folder: StudyFolder, postgresql: Server) -> None:
    url = postgresql.new_database()
    study_folder.env["STORAGE"] = url
    a_population(study_folder, "${STORAGE}", "cpu:2")
    fleet = [study_folder.start() for _ in range(2)]
    wait_until(lambda: all(": started on" in one.out for one in fleet), "both have trials")
    study_folder.write("go", "")
    assert [one.wait(PATIENCE_S).code for one in fleet] == [EXIT_BUDGET_REACHED] * 2
    check(url)
    postgresql.drop_database(url)
