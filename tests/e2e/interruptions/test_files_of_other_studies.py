"""A trial starts from its own files alone: what another study or trial left is moved aside."""

from __future__ import annotations

import json
import signal
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

import tuner
from tests.e2e.study_folder import Running, StudyFolder, wait_until
from tuner.errors import EXIT_BAD_INPUT, EXIT_BUDGET_REACHED, EXIT_INTERRUPTED

TRAIN = """
import optuna, pathlib, time, torch

def train(trial):
    state, x = trial.load_checkpoint(), trial.params["x"]
    if state is not None and state["x"] != x:
        print("state of another configuration")
        x = state["x"]
    for step in range(state["step"] + 1 if state else 1, 4):
        trial.report(x, step)
        trial.save_checkpoint({"x": x, "step": step}, step)
        while step == 2 and pathlib.Path("wait").exists():
            if trial.should_prune():
                raise optuna.TrialPruned
            time.sleep(0.02)
    return x
"""
N_TRIALS = 3
MOVED = "moved-aside"


@pytest.fixture
def trained(study_folder: StudyFolder) -> StudyFolder:
    """A study that has ended, with the states and logs of its trials."""
    _write_study(study_folder, N_TRIALS)
    assert study_folder.tune().code == EXIT_BUDGET_REACHED
    return study_folder


def _write_study(folder: StudyFolder, n_trials: int) -> None:
    folder.write("forecast.py", TRAIN)
    folder.study(
        storage="sqlite:///small.db",
        objectives={"value": "minimize"},
        devices="cpu:1",
        budget={"trials": n_trials},
    )


def _start_until_step_2(folder: StudyFolder, *, n_trials: int) -> Running:
    """Starts a study whose first trial stands at step 2 until the file `wait` goes."""
    folder.write("wait", "")
    _write_study(folder, n_trials)
    running = folder.start()
    saved = _root(folder) / "trial-0" / "checkpoints" / "step-2.pt"
    wait_until(saved.exists, "step 2 is saved")
    return running


def _check_trained(folder: StudyFolder, database: str = "small.db", n: int = N_TRIALS) -> None:
    """Each trial has its own value, and every step of its own."""
    rows = folder.rows(
        """
        select t.number, v.value, p.param_value,
            (select count(*) from trial_intermediate_values i where i.trial_id = t.trial_id)
        from trials t join trial_values v on v.trial_id = t.trial_id
        join trial_params p on p.trial_id = t.trial_id
        where t.state = 'COMPLETE' order by t.number
        """,
        database=database,
    )
    assert [number for number, *_ in rows] == list(range(n))
    assert all(value == x and n_steps == 3 for _, value, x, n_steps in rows), rows


def _contents(folder: StudyFolder) -> set[bytes]:
    """All states and logs below `tuner-files`, wherever they are."""
    found = folder.path.glob("tuner-files/**/trial-*/**/*")
    return {path.read_bytes() for path in found if path.suffix in (".pt", ".log")}


def _root(folder: StudyFolder) -> Path:
    return folder.path / "tuner-files" / "small"


def _remove_database(folder: StudyFolder) -> None:
    for path in folder.path.glob("small.db*"):
        path.unlink()


def test_database_that_was_removed(trained: StudyFolder) -> None:
    before = _contents(trained)
    _remove_database(trained)
    again = trained.tune("--set", "sampler.seed=2")
    assert again.code == EXIT_BUDGET_REACHED
    _check_trained(trained)
    assert "another study" in again.text
    assert str(_root(trained) / MOVED) in again.text
    assert before <= _contents(trained), "a file was lost"
    assert len(_root(trained).joinpath("trial-0", "attempt-1.log").read_text().splitlines()) <= 1


def test_study_that_was_deleted_without_its_files(trained: StudyFolder) -> None:
    before = _contents(trained)
    deleted = trained.tuner("delete", "study.yaml", "--study", "small", "--yes")
    assert deleted.code == 0
    assert "Its files stay in" in deleted.text
    assert str(_root(trained)) in deleted.text
    assert "moved aside" in deleted.text
    assert trained.tune("--set", "sampler.seed=2").code == EXIT_BUDGET_REACHED
    _check_trained(trained)
    assert before <= _contents(trained)


def test_another_database_and_the_first_again(trained: StudyFolder) -> None:
    """Each study finds its own files, however often they take turns."""
    first = f"sqlite:///{trained.path / 'small.db'}"
    value = tuner.load_best(first).value
    other = ("--set", "storage=sqlite:///other.db", "--set", "sampler.seed=2")
    assert trained.tune(*other).code == EXIT_BUDGET_REACHED
    _check_trained(trained, "other.db")
    # Its files are elsewhere now, and are still found.
    state = tuner.load_best(first).load_checkpoint()
    assert state is not None
    assert state["x"] == value
    more = ("--set", f"budget.trials={N_TRIALS + 1}")
    assert trained.tune(*more).code == EXIT_BUDGET_REACHED
    _check_trained(trained, n=N_TRIALS + 1)
    assert tuner.load_best(first).checkpoint == str(
        _root(trained) / f"trial-{tuner.load_best(first).trial_number}/checkpoints/step-3.pt"
    )
    best = tuner.load_best(f"sqlite:///{trained.path / 'other.db'}")
    state = best.load_checkpoint()
    assert state is not None
    assert state["x"] == best.value


def test_database_restored_from_a_backup(trained: StudyFolder) -> None:
    """Trials that it does not know come again with other parameters."""
    more = ("--set", f"budget.trials={N_TRIALS + 2}")
    with (
        closing(sqlite3.connect(trained.path / "small.db")) as source,
        closing(sqlite3.connect(trained.path / "backup.db")) as backup,
    ):
        source.backup(backup)
    assert trained.tune(*more).code == EXIT_BUDGET_REACHED
    before = _contents(trained)
    _remove_database(trained)
    (trained.path / "backup.db").rename(trained.path / "small.db")
    again = trained.tune(*more, "--set", "sampler.seed=5")
    assert again.code == EXIT_BUDGET_REACHED
    _check_trained(trained, n=N_TRIALS + 2)
    assert f"Trial {N_TRIALS}" in again.text
    assert "backup" in again.text
    assert before <= _contents(trained)
    # Those that it knows are where they were.
    assert (_root(trained) / "trial-0" / "checkpoints" / "step-3.pt").exists()


def test_trial_goes_on_from_its_own_state_after_an_interrupt(study_folder: StudyFolder) -> None:
    running = _start_until_step_2(study_folder, n_trials=1)
    folder = _root(study_folder) / "trial-0"
    assert json.loads((folder / "trial.json").read_text())["trial"] == 0
    running.signal(signal.SIGINT)
    assert running.wait().code == EXIT_INTERRUPTED
    (study_folder.path / "wait").unlink()
    assert study_folder.tune().code == EXIT_BUDGET_REACHED
    _check_trained(study_folder, n=1)
    assert not (_root(study_folder) / MOVED).exists()
    assert [each.number for each in study_folder.attempts()] == [1, 2]


def test_study_of_an_older_version_keeps_its_files(study_folder: StudyFolder) -> None:
    """Neither its database nor its folders have an identity."""
    running = _start_until_step_2(study_folder, n_trials=2)
    root = _root(study_folder)
    running.signal(signal.SIGINT)
    assert running.wait().code == EXIT_INTERRUPTED
    study_folder.execute("delete from study_user_attributes where key = 'tuner:identity'")
    (root / "study.json").unlink()
    (root / "trial-0" / "trial.json").unlink()
    # Of a trial that the database does not know.
    foreign = root / "trial-1" / "checkpoints"
    foreign.mkdir(parents=True)
    foreign.joinpath("step-9.pt").write_bytes(
        (root / "trial-0" / "checkpoints" / "step-2.pt").read_bytes()
    )
    (study_folder.path / "wait").unlink()
    again = study_folder.tune()
    assert again.code == EXIT_BUDGET_REACHED
    _check_trained(study_folder, n=2)
    assert "Trial 1" in again.text
    assert not list((root / MOVED).glob("**/trial-0*"))
    assert (root / "trial-0" / "trial.json").exists()


def test_two_databases_at_once_in_one_folder_are_refused(study_folder: StudyFolder) -> None:
    running = _start_until_step_2(study_folder, n_trials=1)
    second = study_folder.tune("--set", "storage=sqlite:///other.db")
    assert second.code == EXIT_BAD_INPUT
    assert "--study" in second.text
    (study_folder.path / "wait").unlink()
    assert running.wait().code == EXIT_BUDGET_REACHED
    _check_trained(study_folder, n=1)


def test_delete_with_files_takes_those_of_its_own_study_alone(trained: StudyFolder) -> None:
    other = ("--set", "storage=sqlite:///other.db", "--set", "sampler.seed=2")
    assert trained.tune(*other).code == EXIT_BUDGET_REACHED
    first = tuner.load_best(f"sqlite:///{trained.path / 'small.db'}").checkpoint
    second = tuner.load_best(f"sqlite:///{trained.path / 'other.db'}").checkpoint
    assert first is not None
    assert second is not None
    deleted = trained.tuner("delete", "study.yaml", "--study", "small", "--files", "--yes")
    assert deleted.code == 0
    assert not Path(first).exists()
    assert Path(second).exists()


def test_imported_study_goes_on_from_the_files_of_the_first(study_folder: StudyFolder) -> None:
    running = _start_until_step_2(study_folder, n_trials=2)
    running.signal(signal.SIGINT)
    assert running.wait().code == EXIT_INTERRUPTED
    (study_folder.path / "wait").unlink()
    assert study_folder.tuner("export", "-o", "kept.db").code == 0
    assert study_folder.tuner("import", "kept.db", "sqlite:///other.db").code == 0
    again = study_folder.tune("--set", "storage=sqlite:///other.db")
    assert again.code == EXIT_BUDGET_REACHED
    _check_trained(study_folder, "other.db", n=2)
    assert not (_root(study_folder) / MOVED).exists()
    # Its first two steps were not trained again.
    steps = "select count(*) from tuner_attempts where number = 2"
    assert study_folder.rows(steps, database="other.db") == [(1,)]
    state = tuner.load_best(f"sqlite:///{study_folder.path / 'other.db'}").load_checkpoint()
    assert state is not None
