"""Reads that neither write nor wait, and that after the first time read only what is new."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import optuna
import pytest
import sqlalchemy as sa
from optuna.trial import TrialState, create_trial

from tests.integration.stored_studies import seeded
from tests.unit.app.columns import bars_of
from tuner.actions.delete import delete_study
from tuner.app.data.connection import ReadOnlyDatabase
from tuner.app.data.convergence.series import pareto_front
from tuner.app.data.outcome_words import ALL_WORDS
from tuner.app.data.page_data import Look
from tuner.app.data.trials.log_text import find_log, read_log
from tuner.checkpoints.paths import StudyFiles
from tuner.checkpoints.study_folder import StudyFolder
from tuner.checkpoints.trial_folders import StudyKey, TrialFolders, TrialKey
from tuner.domain.attempt import Outcome
from tuner.errors import StoreError
from tuner.host.process_identity import own_process
from tuner.queries.locate import StoredStudy
from tuner.queries.trials.attempts import StoredAttempt
from tuner.queries.trials.listing import Choice, read_trials
from tuner.queries.usage import NO_USE

NOW = seeded.NOW
#: When a dispatcher of another host has been silent for long.
LATER = NOW + timedelta(hours=1)


@contextmanager
def looking(url: str) -> Iterator[Look]:
    look = Look(url)
    yield look
    look.close()


def only_study(look: Look) -> StoredStudy:
    (study,) = look.studies().values()
    return study


def statements(look: Look) -> list[str]:
    """Every statement that is executed from now on."""
    said: list[str] = []

    def note(_c: Any, _cursor: Any, statement: str, *_: Any) -> None:
        said.append(statement)

    sa.event.listen(look._database._engine, "before_cursor_execute", note)
    return said


def test_nothing_can_be_written(url: str) -> None:
    seeded.add_first_study(url)
    database = ReadOnlyDatabase(url)
    with pytest.raises(StoreError):
        database.read(lambda connection: connection.execute(sa.text("DELETE FROM trials")))
    with seeded.looking(url) as connection:
        assert connection.execute(sa.text("SELECT count(*) FROM trials")).scalar() == 8
    database.close()


def test_reads_while_another_program_writes(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/a b%20?.db".replace("?", "")
    seeded.add_first_study(url)
    with looking(url) as look, seeded.writing(url) as connection:
        connection.execute(sa.text("DELETE FROM trial_values"))
        assert len(look.trials(only_study(look))) == 8


def test_a_missing_database_is_refused_and_not_made(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="There is no database"):
        Look(f"sqlite:///{tmp_path}/none.db")
    assert list(tmp_path.iterdir()) == []


def test_columns_of_trials(url: str) -> None:
    seeded.add_first_study(url)
    with looking(url) as look:
        trials = look.trials(only_study(look))
    words = [ALL_WORDS[code] for code in trials.words.tolist()]
    assert words == [
        *("completed", "completed", "pruned", "out_of_memory"),
        *("running", "waiting", "completed", "completed"),
    ]
    assert trials.values[:3, 0].tolist() == [0.8, 0.9, 0.1]
    assert np.flatnonzero(trials.is_candidate).tolist() == [0, 1]
    assert np.flatnonzero(~trials.is_finished).tolist() == [4, 5]


def test_a_refresh_sees_new_trials_and_those_that_have_ended(url: str) -> None:
    seeded.add_first_study(url)
    with looking(url) as look:
        study = only_study(look)
        before = look.trials(study)
        with seeded.optuna_storage(url) as storage:
            stored = optuna.load_study(storage=storage, study_name="first")
            stored.add_trial(create_trial(value=0.95))
            running = stored.get_trials()[4]
            storage.set_trial_state_values(running._trial_id, TrialState.COMPLETE, [0.97])
        after = look.trials(study)
    assert (len(before), len(after)) == (8, 9)
    assert after.values[[4, 8], 0].tolist() == [0.97, 0.95]
    assert after.numbers.tolist() == list(range(9))


def test_a_refresh_does_not_read_finished_trials_again(url: str) -> None:
    seeded.add_study(url, "first", [create_trial(value=float(i)) for i in range(20)])
    with looking(url) as look:
        study = only_study(look)
        first = look.trials(study)
        said = statements(look)
        assert look.trials(study) is first
    assert not [each for each in said if "trial_values" in each]


def test_a_study_that_was_made_anew_is_read_anew(url: str) -> None:
    seeded.add_study(url, "first", [create_trial(value=1.0)] * 3)
    with looking(url) as look:
        assert len(look.trials(only_study(look))) == 3
        delete_study(seeded.place(url, "first"), own_process())
        seeded.add_study(url, "first", [create_trial(value=2.0)] * 2)
        assert look.trials(only_study(look)).values[:, 0].tolist() == [2.0, 2.0]


def test_convergence_reads_of_curves_only_the_last_step_of_open_trials(url: str) -> None:
    seeded.add_first_study(url)
    with looking(url) as look:
        said = statements(look)
        look.trials(only_study(look))
    assert all("max(" in each for each in said if "intermediate" in each)


def test_params_as_the_command_line_shows_them(url: str) -> None:
    seeded.add_first_study(url)
    with looking(url) as look:
        study = only_study(look)
        trials = look.trials(study)
        params = look.params(study, trials)
        objectives = look.objectives(study)
        assert look.params(study, trials) == params
    with seeded.looking(url) as connection:
        shown = read_trials(connection, study.id, objectives, Choice(), now=NOW)
    assert [dict(params[trial_id]) for trial_id in trials.ids.tolist()] == [
        dict(each.params) for each in shown
    ]


def test_leases_of_two_hosts_and_of_a_wide_trial(url: str) -> None:
    seeded.add_first_study(url)
    other = seeded.add_dispatcher(url, "first", host="elsewhere")
    seeded.add_attempt(url, other, 1, outcome=None)
    with looking(url) as look:
        leases = look.leases(only_study(look), LATER)
        assert {each.host for each in leases.devices.values()} == {seeded.HERE, "elsewhere"}
        words = [bar.word for bar in bars_of(leases)]
        again = look.leases(None, LATER)
    assert sorted(words) == [
        *("abandoned", "completed", "failed", "out_of_memory", "pruned", "running")
    ]
    assert len(again.columns) == 6


def test_a_refresh_sees_that_a_lease_was_given_back(url: str) -> None:
    seeded.add_first_study(url)
    with looking(url) as look:
        study = only_study(look)
        before = look.leases(study, NOW).columns
        with seeded.writing(url) as connection:
            connection.execute(
                sa.text("UPDATE tuner_leases SET released_at = leased_at, held_device_id = NULL")
            )
        after = look.leases(study, NOW).columns
    assert (before.is_held.sum(), after.is_held.sum()) == (1, 0)
    assert sorted(after.ids.tolist()) == sorted(before.ids.tolist())


def test_a_database_of_optuna_alone(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/optuna.db"
    seeded.add_study(url, "plain", [create_trial(value=1.0)], space=None)
    with looking(url) as look:
        study = only_study(look)
        assert len(look.trials(study)) == 1
        assert len(look.leases(study, NOW).columns) == 0
        assert look.overview(NOW)[0].n_devices == 0
        found = look.trial(study, 0, NOW)
        assert found is not None
        assert "another program" in found.why
        assert look.best(study, n=1, now=NOW)[0].values == {"value": 1.0}


def test_overview(url: str) -> None:
    seeded.add_first_study(url)
    with looking(url) as look:
        (line,) = look.overview(NOW)
    assert line.best == "accuracy 0.9"
    assert line.n_devices == 1
    assert seeded.HERE in line.workers
    assert line.fraction == pytest.approx(6 / 8)


def test_one_trial_with_its_curves(url: str) -> None:
    seeded.add_first_study(url)
    with looking(url) as look:
        found = look.trial(only_study(look), 0, NOW)
        assert found is not None
        assert found.curves["accuracy"][3] == 0.8
        assert found.curves["loss"] == {1: 0.5}
        assert look.trial(only_study(look), 99, NOW) is None


def test_best_of_one_objective(url: str) -> None:
    seeded.add_first_study(url)
    with looking(url) as look:
        found = look.best(only_study(look), n=5, now=NOW)
    assert [each.trial_number for each in found] == [1, 0]
    assert (found[1].seed, found[1].git_commit) == (11, "abc")


def test_best_of_several_objectives_is_the_front(url: str) -> None:
    trials = [create_trial(values=[a, b]) for a, b in ((1.0, 1.0), (2.0, 2.0), (3.0, 5.0))]
    directions, names = ("maximize", "minimize"), ("accuracy", "latency")
    seeded.add_study(url, "two", trials, directions=directions, objectives=names)
    with looking(url) as look:
        study = only_study(look)
        front = pareto_front(look.trials(study), [True, False])
        found = look.best(study, n=5, now=NOW)
    assert front.all()
    assert [each.trial_number for each in found] == [2, 1, 0]


def attempt(log_path: Path, host: str = seeded.HERE) -> Any:
    from tuner.domain.attempt import AttemptState
    from tuner.queries.trials.attempts import StoredAttempt

    at: datetime | None = None
    return StoredAttempt(
        number=1,
        state=AttemptState.FINISHED,
        outcome=Outcome.FAILED,
        cause=None,
        detail="",
        dispatcher_id=1,
        host=host,
        devices=(),
        pid=None,
        seed=0,
        peak_memory_bytes=None,
        log_path=str(log_path),
        leased_at=at,
        started_at=at,
        ended_at=at,
        finished_at=at,
        use=NO_USE,
    )


def log_tail(attempt: StoredAttempt, key: TrialKey | None = None) -> str:
    """What the page shows of a log."""
    log = find_log(attempt, key)
    return log.problem if log.path is None else read_log(log.path).text


def test_tail_of_a_log(tmp_path: Path) -> None:
    log = tmp_path / "tuner-files" / "study" / "trial-0" / "attempt-1.log"
    log.parent.mkdir(parents=True)
    log.write_text("".join(f"line {i}\n" for i in range(10_000)))
    lines = log_tail(attempt(log)).splitlines()
    assert (lines[-1], len(lines)) == ("line 9999", 60)
    assert "is on elsewhere" in log_tail(attempt(log, "elsewhere"))


def test_log_of_another_trial_with_the_same_number_is_not_shown(tmp_path: Path) -> None:
    """Another database had a study of this name, and its files were moved aside."""
    files = StudyFiles(folder=tmp_path, study="study")
    own, other = StudyKey(id="a" * 32), StudyKey(id="b" * 32)
    begun_at = datetime(2026, 1, 1, 12)
    key = TrialKey(study=own, number=0, begun_at=begun_at, params={"x": 0.5})
    log = files.log(0, 1)
    TrialFolders(files, own).begin(0, begun_at, {"x": 0.5})
    log.write_text("its own")
    assert log_tail(attempt(log), key) == "its own"
    StudyFolder(files, other, has_begun=False).close()
    assert log_tail(attempt(log), key) == "its own"
    TrialFolders(files, other).begin(0, begun_at, {"x": 0.5})
    log.write_text("of the other")
    assert log_tail(attempt(log), key) == "its own"
    shutil.rmtree(files.moved_aside)
    assert "holds the files of another trial" in log_tail(attempt(log), key)


def test_no_other_file_is_shown_as_a_log(tmp_path: Path) -> None:
    secret = tmp_path / "secret.log"
    secret.write_text("password")
    folder = tmp_path / "tuner-files"
    folder.mkdir()
    (folder / "trial.log").symlink_to(secret)
    for path in (secret, folder / "trial.log", folder / ".." / "secret.log"):
        assert "password" not in log_tail(attempt(path))
