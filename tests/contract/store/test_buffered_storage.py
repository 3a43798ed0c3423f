"""Optuna's own storage suite on our storage, and that what it holds is what the database holds."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import optuna
import pytest
import sqlalchemy as sa
from optuna.storages import BaseStorage
from optuna.testing.pytest_storages import StorageTestCase
from optuna.trial import TrialState

from tuner.store.connection.database import Database, open_database
from tuner.store.records.population_rows import COPY_KEY, is_replaced


class TestBufferedStorage(StorageTestCase):
    @pytest.fixture
    def storage(self, url: str) -> Iterator[BaseStorage]:
        database = open_database(url)
        yield database.storage
        database.close()


def test_flush_after_a_study_leaves_the_same_trials_in_the_database(url: str) -> None:
    database = open_database(url)
    study = optuna.create_study(
        storage=database.storage,
        study_name="s",
        sampler=optuna.samplers.RandomSampler(0),
        pruner=optuna.pruners.MedianPruner(n_startup_trials=2),
    )
    study.enqueue_trial({"x": 0.5, "kind": "a"})

    def objective(trial: optuna.Trial) -> float:
        x = trial.suggest_float("x", 0, 1)
        trial.suggest_categorical("kind", ["a", "b", None])
        trial.set_user_attr("note", {"of": trial.number})
        for step in range(3):
            trial.report(float("nan") if (trial.number, step) == (5, 2) else x + step, step)
            if trial.should_prune():
                raise optuna.TrialPruned
        if trial.number == 7:
            raise ValueError
        return float("inf") if trial.number == 3 else x

    study.optimize(objective, n_trials=12, catch=ValueError)
    in_memory = study.get_trials()
    database.storage.flush()
    reread = optuna.load_study(study_name="s", storage=url)

    # Optuna's columns for instants hold whole seconds on MySQL.
    cut = {"microsecond": 0} if url.startswith("mysql") else {}

    def shown(trial: optuna.trial.FrozenTrial) -> object:
        assert trial.datetime_start is not None
        assert trial.datetime_complete is not None
        return (
            trial.number,
            trial.state,
            trial.values,
            trial.params,
            trial.distributions,
            trial.user_attrs,
            trial.system_attrs,
            repr(trial.intermediate_values),
            trial.datetime_start.replace(**cut),
            trial.datetime_complete.replace(**cut),
        )

    assert [shown(t) for t in reread.get_trials()] == [shown(t) for t in in_memory]
    assert {t.state.name for t in in_memory} == {"COMPLETE", "PRUNED", "FAIL"}
    database.close()


def test_number_of_a_trial_after_another_program_added_some_stays_unique(url: str) -> None:
    database = open_database(url)
    study = optuna.create_study(storage=database.storage, study_name="s")
    study.ask()
    other = optuna.load_study(study_name="s", storage=url)
    other.enqueue_trial({"x": 1.0})
    assert [study.ask().number for _ in range(2)] == [2, 1]
    assert [t.number for t in study.get_trials()] == [0, 1, 2]
    database.close()


def test_refresh_after_another_program_enqueued_a_trial_hands_it_out(url: str) -> None:
    database = open_database(url)
    study = optuna.create_study(storage=database.storage, study_name="s")
    study.ask()
    other = optuna.load_study(study_name="s", storage=url)
    other.enqueue_trial({"x": 0.25})
    database.storage.refresh(study._study_id)
    trial = study.ask({"x": optuna.distributions.FloatDistribution(0, 1)})
    assert (trial.number, trial.params) == (1, {"x": 0.25})
    assert other.get_trials()[1].state == optuna.trial.TrialState.RUNNING
    database.close()


def test_completed_trials_are_one_list_that_grows_as_they_become_known(url: str) -> None:
    database = open_database(url)
    study = optuna.create_study(storage=database.storage, study_name="s")
    first, second = study.ask(), study.ask()
    completed = database.storage.completed(study._study_id)
    study.tell(second, 0.2)
    other = optuna.load_study(study_name="s", storage=url)
    other.tell(other.ask(), 0.3)
    database.storage.refresh(study._study_id)
    study.tell(first, 0.1)
    assert [trial.number for trial in completed] == [1, 2, 0]
    assert database.storage.completed(study._study_id) is completed
    complete = (optuna.trial.TrialState.COMPLETE,)
    assert [trial.number for trial in study.get_trials(states=complete)] == [0, 1, 2]
    database.close()


def test_who_holds_a_running_trial_does_not_see_it_move(url: str) -> None:
    database = open_database(url)
    study = optuna.create_study(storage=database.storage, study_name="s")
    trial, held = study.ask(), []
    for step in range(4):
        held.append(database.storage.get_trial(trial._trial_id))
        trial.report(step / 10, step)
    found = [each.intermediate_values for each in held]
    assert found[1:] == [{step: step / 10 for step in range(n)} for n in range(1, 4)]
    database.close()


def test_look_at_a_file_that_nobody_else_has_changed_reads_nothing(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/study.db"
    database = open_database(url)
    study = optuna.create_study(storage=database.storage, study_name="s")
    database.storage.refresh(study._study_id)
    other = optuna.load_study(study_name="s", storage=url)
    other.enqueue_trial({"x": 0.25})
    statements: list[str] = []
    sa.event.listen(
        database.engine, "before_cursor_execute", lambda *words: statements.append(str(words[2]))
    )
    assert len(database.storage.refresh(study._study_id)) == 1
    statements.clear()
    study.ask()
    database.storage.flush()
    statements.clear()
    assert database.storage.refresh(study._study_id) == []
    assert statements == ["PRAGMA data_version"]
    other.enqueue_trial({"x": 0.5})
    assert len(database.storage.refresh(study._study_id)) == 1
    database.close()


@pytest.mark.slow
def test_a_new_database_and_a_new_study_need_no_alembic(new_url: str) -> None:
    program = f"""
import sys
from tuner.store.connection.database import open_database
import optuna
database = open_database({new_url!r})
study = optuna.create_study(study_name="s", storage=database.storage, direction="maximize")
study.set_user_attr("of", ["a", 1])
study.set_user_attr("of", ["b", 2])
study.tell(study.ask(), 0.5)
database.storage.flush()
database.close()
assert "alembic" not in sys.modules
"""
    subprocess.run([sys.executable, "-c", program], check=True, cwd=Path(__file__).parents[3])
    stored = optuna.load_study(study_name="s", storage=new_url)
    assert (stored.best_value, stored.user_attrs) == (0.5, {"of": ["b", 2]})


@pytest.mark.slow
def test_study_that_is_looked_at_needs_no_alembic(url: str) -> None:
    optuna.create_study(storage=url, study_name="s").ask()
    program = f"""
import sys
from tuner.store.connection.database import Database, open_database
from tuner.store.records.population_rows import COPY_KEY, is_replaced
import optuna
database = open_database({url!r})
study = optuna.load_study(study_name="s", storage=database.storage)
assert study.directions and not study.user_attrs
study.tell(study.ask(), 0.5)
database.storage.flush()
database.close()
assert "alembic" not in sys.modules
"""
    subprocess.run([sys.executable, "-c", program], check=True, cwd=Path(__file__).parents[3])


def test_numbers_are_right_where_the_database_returns_none_from_an_insert(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As on MySQL."""
    database = open_database(url)
    study = optuna.create_study(storage=database.storage, study_name="s")
    study.ask()
    monkeypatch.setattr(database.engine.dialect, "insert_returning", False)
    other = optuna.load_study(study_name="s", storage=url)
    other.enqueue_trial({"x": 1.0})
    another = optuna.create_study(storage=database.storage, study_name="t")
    assert [another.ask().number for _ in range(2)] == [0, 1]
    assert [study.ask().number for _ in range(2)] == [2, 1]
    assert [trial.number for trial in study.get_trials()] == [0, 1, 2]
    database.close()


def test_a_trial_that_ran_elsewhere_and_waits_again_is_taken_as_it_is_now(url: str) -> None:
    here, there = open_database(url), open_database(url)
    study = optuna.create_study(storage=there.storage, study_name="s")
    trial_id = there.storage.create_new_trial(study._study_id)
    there.storage.set_trial_state_values(trial_id, TrialState.WAITING)
    there.storage.flush()
    (known,) = here.storage.get_all_trials(study._study_id)
    assert known.state is TrialState.WAITING
    assert there.storage.set_trial_state_values(trial_id, TrialState.RUNNING)
    there.storage.set_trial_intermediate_value(trial_id, 1, 0.5)
    there.storage.set_trial_system_attr(trial_id, "rung", 1)
    there.storage.set_trial_state_values(trial_id, TrialState.WAITING)
    there.storage.flush()
    # Optuna's columns for instants hold whole seconds on MySQL, so that a look may miss it there.
    if not url.startswith("mysql"):
        (seen,) = here.storage.refresh(study._study_id)
        assert seen.intermediate_values == {1: 0.5}
        assert not here.storage.refresh(study._study_id), "nothing has happened since"
    assert here.storage.set_trial_state_values(trial_id, TrialState.RUNNING)
    taken = here.storage.get_trial(trial_id)
    assert (taken.state, taken.intermediate_values) == (TrialState.RUNNING, {1: 0.5})
    assert taken.system_attrs == {"rung": 1}
    here.storage.set_trial_intermediate_value(trial_id, 1, 0.25)
    here.storage.set_trial_system_attr(trial_id, "rung", 2)
    here.storage.flush()
    (stored,) = optuna.load_study(study_name="s", storage=url).get_trials()
    assert (stored.intermediate_values, stored.system_attrs) == ({1: 0.25}, {"rung": 2})
    here.close()
    there.close()


def test_a_trial_is_begun_with_its_attributes_or_not_at_all(url: str) -> None:
    database, other = open_database(url), open_database(url)
    study = optuna.create_study(storage=database.storage, study_name="s")
    study_id = study._study_id
    begun = database.storage.begin_trial(study_id, {"of": {"parent": 3}}, lambda _: True)
    assert begun is not None
    assert database.storage.get_trial(begun).state is TrialState.RUNNING
    # Nothing waits to be written.
    (stored,) = optuna.load_study(study_name="s", storage=url).get_trials()
    assert (stored.state, stored.system_attrs) == (TrialState.RUNNING, {"of": {"parent": 3}})
    assert other.storage.begin_trial(study_id, {"of": 1}, lambda _: False) is None
    assert len(optuna.load_study(study_name="s", storage=url).get_trials()) == 1
    database.storage.set_trial_system_attr(begun, "of", {"parent": 4})
    database.storage.flush()
    (stored,) = optuna.load_study(study_name="s", storage=url).get_trials()
    assert stored.system_attrs == {"of": {"parent": 4}}
    database.close()
    other.close()


def test_of_two_who_look_before_they_begin_one_begins(url: str) -> None:
    """The look sees what the other one has committed, and nobody adds one in between."""
    databases = [open_database(url) for _ in range(2)]
    study = optuna.create_study(storage=databases[0].storage, study_name="s")
    study_id, begun = study._study_id, []
    together = threading.Barrier(2)

    def begin(database: Database) -> None:
        together.wait(30.0)
        for number in range(10):
            may = partial(_lacks, study_id=study_id, number=number)
            begun.append(
                database.storage.begin_trial(
                    study_id, {COPY_KEY: {"parent": 0, "step": 1, "replaces": number}}, may
                )
            )

    threads = [threading.Thread(target=begin, args=(each,)) for each in databases]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60.0)
    assert len(begun) == 20
    assert sum(each is not None for each in begun) == 10
    trials = optuna.load_study(study_name="s", storage=url).get_trials()
    assert sorted(t.system_attrs[COPY_KEY]["replaces"] for t in trials) == list(range(10))
    for database in databases:
        database.close()


def _lacks(connection: sa.Connection, *, study_id: int, number: int) -> bool:
    return not is_replaced(connection, study_id, number)
