"""The database file is deleted, moved, replaced or overwritten while a study runs."""

from __future__ import annotations

import re
import shutil
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import optuna
import pytest

from tests.databases import new_database
from tests.e2e.study_folder import Ended, Running, StudyFolder, wait_until
from tuner.errors import EXIT_BUDGET_REACHED, EXIT_STUDY_FAILED

pytestmark = pytest.mark.programs

#: The first two trials end at once; later ones go on until they are told to stop, or may end.
PROGRAM = """
import os, pathlib, time
import optuna

def train(trial):
    x = trial.suggest_float("x", 0, 1)
    step = 0
    while trial.number >= 2 and not os.path.exists(os.environ["MAY_END"]):
        trial.report(x, step)
        if trial.should_prune():
            raise optuna.TrialPruned
        time.sleep(0.05)
        step += 1
    return 2 * x
"""
N_TRIALS = 4
_NAMED = re.compile(r"The study is in (\S+) now")


@pytest.fixture
def running(study_folder: StudyFolder, tmp_path: Path) -> Iterator[Running]:
    """A study of whose trials two have completed and two are at work."""
    study_folder.env["MAY_END"] = str(tmp_path / "may-end")
    study_folder.write("forecast.py", PROGRAM)
    study_folder.study(pruner="none", budget={"trials": N_TRIALS}, search_space=None)
    running = study_folder.start()
    wait_until(lambda: n_curves(study_folder) == 2, "two trials report")
    yield running
    study_folder.end_all()


def n_curves(folder: StudyFolder) -> int:
    try:
        (row,) = folder.rows("SELECT count(DISTINCT trial_id) FROM trial_intermediate_values")
    except sqlite3.Error:
        return 0
    return int(row[0])


def rescued(ended: Ended) -> Path:
    """The new file, once the command has failed and named it."""
    assert ended.code == EXIT_STUDY_FAILED, ended.text
    assert "accident" not in ended.text
    named = _NAMED.search(ended.err)
    assert named is not None, ended.text
    return Path(named[1])


def check_copy(copy: Path, *, has_attempts: bool = True) -> None:
    """It holds what had ended, with values, and what was reported of the rest."""
    trials = optuna.load_study(study_name="small", storage=f"sqlite:///{copy}").get_trials()
    assert [trial.state.name for trial in trials] == ["COMPLETE"] * 2 + ["WAITING"] * 2
    assert [trial.value for trial in trials[:2]] == [2 * t.params["x"] for t in trials[:2]]
    assert all(trial.intermediate_values for trial in trials[2:])
    with closing(sqlite3.connect(copy)) as connection:
        query = "SELECT outcome FROM tuner_attempts ORDER BY id"
        outcomes = [outcome for (outcome,) in connection.execute(query)]
        query = "SELECT count(*) FROM tuner_dispatchers WHERE ended_at IS NULL"
        assert connection.execute(query).fetchone() == (0,)
    assert sorted(outcomes) == (["cancelled"] * 2 + ["completed"] * 2 if has_attempts else [])


def delete(folder: StudyFolder) -> None:
    for path in folder.path.glob("small.db*"):
        path.unlink()


def delete_alone(folder: StudyFolder) -> None:
    (folder.path / "small.db").unlink()


def move(folder: StudyFolder) -> None:
    (folder.path / "small.db").rename(folder.path / "moved.db")


def replace_by_another(folder: StudyFolder) -> None:
    new_database(folder.path)
    (folder.path / "study.db").rename(folder.path / "small.db")


def delete_log(folder: StudyFolder) -> None:
    (folder.path / "small.db-wal").unlink()


def delete_index(folder: StudyFolder) -> None:
    (folder.path / "small.db-shm").unlink()


@pytest.mark.parametrize(
    ("strike", "reason"),
    [
        (delete, "was deleted or moved"),
        (delete_alone, "was deleted or moved"),
        (move, "was deleted or moved"),
        (replace_by_another, "was replaced by another file"),
        (delete_log, "small.db-wal was deleted or moved"),
        (delete_index, "small.db-shm was deleted or moved"),
    ],
)
def test_what_was_done_is_kept_in_a_new_file(
    study_folder: StudyFolder,
    running: Running,
    strike: Callable[[StudyFolder], None],
    reason: str,
) -> None:
    strike(study_folder)
    ended = running.wait()
    copy = rescued(ended)
    assert copy == study_folder.path / "small.rescued.db"
    assert reason in ended.err
    assert "Stopping: no trial starts any more" in ended.out
    check_copy(copy)


def test_the_study_goes_on_once_the_new_file_is_in_its_place(
    study_folder: StudyFolder, running: Running, tmp_path: Path
) -> None:
    delete(study_folder)
    copy = rescued(running.wait())
    assert "2 of 4 trials" in study_folder.tuner("status", str(copy)).out
    assert study_folder.tuner("trials", str(copy)).code == 0
    exported = study_folder.tuner("export", str(copy), "-o", "exported.db")
    assert exported.code == 0, exported.text
    copy.rename(study_folder.path / "small.db")
    (tmp_path / "may-end").touch()
    ended = study_folder.tune()
    assert ended.code == EXIT_BUDGET_REACHED, ended.text
    assert study_folder.states() == ["COMPLETE"] * N_TRIALS


def test_another_studys_database_at_the_path_is_left_alone(
    study_folder: StudyFolder, running: Running
) -> None:
    replace_by_another(study_folder)
    before = (study_folder.path / "small.db").read_bytes()
    rescued(running.wait())
    assert (study_folder.path / "small.db").read_bytes() == before


def test_a_file_that_is_restored_in_place_is_not_written_into(
    study_folder: StudyFolder, running: Running
) -> None:
    """`cp backup.db small.db`: the same inode with another content."""
    new_database(study_folder.path)
    backup, file = study_folder.path / "study.db", study_folder.path / "small.db"
    shutil.copyfile(backup, file)
    ended = running.wait()
    assert "was overwritten by another program" in ended.err
    check_copy(rescued(ended), has_attempts=False)
    assert file.read_bytes() == backup.read_bytes()
    with closing(sqlite3.connect(file)) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        assert connection.execute("SELECT count(*) FROM trials").fetchone() == (0,)


def test_where_the_folder_is_gone_too_the_new_file_is_elsewhere(
    study_folder: StudyFolder, running: Running, tmp_path: Path
) -> None:
    shutil.rmtree(study_folder.path, ignore_errors=True)
    shutil.rmtree(study_folder.path, ignore_errors=True)
    ended = running.wait()
    copy = rescued(ended)
    assert copy == tmp_path / "tmp" / "small.rescued.db"
    check_copy(copy)


def test_a_file_that_is_lost_in_the_last_moment_is_noticed(
    study_folder: StudyFolder, running: Running, tmp_path: Path
) -> None:
    delete(study_folder)
    (tmp_path / "may-end").touch()
    ended = running.wait()
    copy = rescued(ended)
    trials = optuna.load_study(study_name="small", storage=f"sqlite:///{copy}").get_trials()
    assert [trial.state.name for trial in trials] == ["COMPLETE"] * N_TRIALS


def test_checkpoints_and_other_programs_are_no_loss(
    study_folder: StudyFolder, running: Running, tmp_path: Path
) -> None:
    file = study_folder.path / "small.db"
    for _ in range(3):
        with closing(sqlite3.connect(file, isolation_level=None, timeout=30)) as connection:
            connection.execute("CREATE TABLE IF NOT EXISTS somebody (elses BLOB)")
            connection.execute("INSERT INTO somebody VALUES (zeroblob(100000))")
            connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        assert study_folder.tuner("status").code == 0
    file.touch()
    (tmp_path / "may-end").touch()
    ended = running.wait()
    assert ended.code == EXIT_BUDGET_REACHED, ended.text
    assert study_folder.states() == ["COMPLETE"] * N_TRIALS
