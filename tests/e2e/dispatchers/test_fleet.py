"""Several dispatchers on one study and one server: exactly so many trials, whoever dies."""

from __future__ import annotations

import random
import signal

import optuna
import pytest
import sqlalchemy as sa

from tests.databases import ONE_SERVER_BY_DAY
from tests.e2e.study_folder import Running, StudyFolder, wait_until
from tests.servers import Server
from tuner.errors import EXIT_BUDGET_REACHED, EXIT_INTERRUPTED

# What it returns can be checked; it takes a moment, in which it may be killed.
CHECKABLE = """
import time

import optuna

def train(trial):
    x = trial.params["x"]
    for step in range(4):
        trial.report(x, step)
        if trial.should_prune():
            raise optuna.TrialPruned
        time.sleep(0.1)
    return 2 * x
"""


@pytest.fixture(params=["postgresql", "mariadb"])
def shared(request: pytest.FixtureRequest, study_folder: StudyFolder):
    server: Server = request.getfixturevalue(request.param)
    url = server.new_database()
    study_folder.env["STORAGE"] = url
    study_folder.write("forecast.py", CHECKABLE)
    yield study_folder
    study_folder.end_all()
    server.drop_database(url)


def a_study(folder: StudyFolder, n_trials: int, **keys: object) -> None:
    defaults: dict[str, object] = {
        "storage": "${STORAGE}",
        "trial": {"function": "forecast:train"},
        "pruner": "none",
        "devices": "cpu:2",
        "budget": {"trials": n_trials},
    }
    folder.study(**defaults | keys)


def trials_of(folder: StudyFolder) -> list[optuna.trial.FrozenTrial]:
    """As any other program of Optuna reads them; none where there is no study yet."""
    storage = optuna.storages.RDBStorage(
        folder.env["STORAGE"], engine_kwargs={"poolclass": sa.NullPool}
    )
    try:
        return optuna.load_study(study_name="small", storage=storage).get_trials()
    except KeyError:
        return []
    finally:
        storage.engine.dispose()


def n_done(folder: StudyFolder) -> int:
    return sum(trial.state.is_finished() for trial in trials_of(folder))


def check_all_are_done(folder: StudyFolder, n_trials: int) -> None:
    trials = trials_of(folder)
    assert [trial.number for trial in trials] == list(range(n_trials))
    assert {trial.state.name for trial in trials} == {"COMPLETE"}
    assert all(trial.value == 2 * trial.params["x"] for trial in trials)
    assert all(len(trial.intermediate_values) == 4 for trial in trials)
    assert len({trial.params["x"] for trial in trials}) == n_trials, "two drew the same numbers"


def test_dispatchers_that_start_at_once_share_a_study(shared: StudyFolder) -> None:
    a_study(shared, 20)
    fleet = [shared.start() for _ in range(3)]
    assert [one.wait().code for one in fleet] == [EXIT_BUDGET_REACHED] * 3
    check_all_are_done(shared, 20)
    started = [sum(": started on" in line for line in one.out.splitlines()) for one in fleet]
    assert sum(started) == 20
    assert all(started), f"one had nothing to do: {started}"


def test_trials_of_one_that_was_killed_are_run_by_the_others(shared: StudyFolder) -> None:
    a_study(shared, 14)
    first, second = shared.start(), shared.start()
    wait_until(lambda: ": started on" in first.out and ": started on" in second.out, "both work")
    first.signal(signal.SIGKILL)
    ended = second.wait()
    assert ended.code == EXIT_BUDGET_REACHED, ended.text
    assert "is gone. Trials that wait" in ended.out
    check_all_are_done(shared, 14)


@pytest.mark.parametrize("shared", ONE_SERVER_BY_DAY, indirect=True)
def test_ctrl_c_leaves_its_trials_to_the_others(shared: StudyFolder) -> None:
    a_study(shared, 14)
    first, second = shared.start(), shared.start()
    wait_until(lambda: ": started on" in first.out, "the first works")
    first.signal(signal.SIGINT)
    assert first.wait().code == EXIT_INTERRUPTED
    assert second.wait().code == EXIT_BUDGET_REACHED
    check_all_are_done(shared, 14)


# By day, tests/chaos kills dispatchers of one study for a while, too.
@pytest.mark.nightly
@pytest.mark.timeout(300)
@pytest.mark.parametrize("shared", ["postgresql"], indirect=True)
def test_six_dispatchers_that_are_killed_and_started_at_random(shared: StudyFolder) -> None:
    n_trials, chance = 300, random.Random(4)
    a_study(shared, n_trials)
    fleet: list[Running] = [shared.start() for _ in range(6)]
    for _ in range(5):
        enough = n_done(shared) + 8
        wait_until(lambda n=enough: n_done(shared) >= n, "some more trials are done")
        victim = chance.randrange(len(fleet))
        fleet[victim].signal(chance.choice([signal.SIGKILL, signal.SIGTERM]))
        fleet[victim] = shared.start()
    codes = [one.wait(timeout_s=180.0).code for one in fleet]
    assert codes == [EXIT_BUDGET_REACHED] * 6
    check_all_are_done(shared, n_trials)
