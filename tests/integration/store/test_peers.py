"""Several dispatchers on one study: exact numbers, claims, and no writing after a takeover."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta

import optuna
import pytest
from optuna.distributions import CategoricalDistribution, FloatDistribution
from optuna.storages import RDBStorage
from optuna.trial import TrialState

from tests.contract.store.old_schema import connected
from tests.fakes import a_gpu
from tests.hosts import ALIVE as HERE
from tests.hosts import DEAD, ELSEWHERE, with_process
from tuner.devices.allocation.pool import Lease
from tuner.domain.attempt import Attempt
from tuner.domain.budget import Budget
from tuner.errors import StoreError
from tuner.host.clock import Instant, SystemClock
from tuner.store.connection.database import Database, open_database
from tuner.store.optuna_tables.reads import read_trials
from tuner.store.records.dispatchers.ownership import NoTrialLeft, TakenOver
from tuner.store.records.dispatchers.peers import Loss
from tuner.store.records.dispatchers.silence import STALE_AFTER_S
from tuner.store.records.dispatchers.starts import StartRecord
from tuner.store.records.provenance import GitState, HostFacts
from tuner.store.records.recorder import Recorder

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)


def at(seconds: float) -> Instant:
    return Instant(utc=NOW + timedelta(seconds=seconds), monotonic_s=1000.0 + seconds)


def watched(look: Callable[[Instant], list[Loss]], from_s: float, to_s: float) -> list[Loss]:
    """What looks every 5 s find, the one at `to_s` included."""
    times_s = [*range(int(from_s), int(to_s), 5), to_s]
    return [loss for seconds in times_s for loss in look(at(seconds))]


class Member:
    """One dispatcher of the study, with a connection and a memory of its own."""

    def __init__(self, url: str, host: HostFacts, n_trials: int | None = None) -> None:
        self.database: Database = open_database(url)
        try:
            self.study = optuna.load_study(study_name="s", storage=self.database.storage)
        except KeyError:
            self.study = optuna.create_study(study_name="s", storage=self.database.storage)
        start = StartRecord(
            study_id=self.study._study_id,
            host=host,
            seed=1,
            study_file="",
            folder="",
            versions={},
            git=GitState(),
        )
        self.recorder = Recorder(
            self.database, start, [a_gpu(0)], clock=SystemClock(), budget=Budget(trials=n_trials)
        )

    @property
    def storage(self):
        return self.database.storage

    def refresh(self) -> list[int]:
        return [trial.number for trial in self.storage.refresh(self.study._study_id)]

    def begin_attempt(self, trial: optuna.Trial) -> None:
        attempt = Attempt(
            trial_id=trial._trial_id,
            trial_number=trial.number,
            number=1,
            seed=1,
            leased_at=NOW,
        )
        lease = Lease(number=1, attempt_id=attempt.id, devices=(a_gpu(0),))
        self.recorder.lease(attempt, lease, params={}, log_path="/log")
        self.recorder.commit()


@pytest.fixture
def fleet(url: str) -> Iterator[type[Member]]:
    if url.startswith("sqlite"):
        pytest.skip("an SQLite file has one dispatcher at a time")
    members: list[Member] = []

    def join(host: HostFacts = HERE, n_trials: int | None = None) -> Member:
        members.append(Member(url, host, n_trials))
        return members[-1]

    yield join
    for member in members:
        member.database.close()


def stored_states(url: str) -> list[str]:
    return [t.state.name for t in optuna.load_study(study_name="s", storage=url).get_trials()]


def test_trials_are_numbered_together_and_seen_by_both(fleet):
    first, second = fleet(), fleet()
    numbers = [member.study.ask().number for member in (first, second, second, first)]
    assert numbers == [0, 1, 2, 3]
    second.refresh()
    assert [trial.number for trial in second.study.get_trials()] == [0, 1, 2, 3]


def test_reports_of_one_are_seen_by_the_other(fleet):
    first, second = fleet(), fleet()
    assert second.refresh() == []
    trial = first.study.ask()
    trial.report(0.5, 3)
    first.storage.flush()
    assert second.refresh() == [0]
    assert second.study.get_trials()[0].intermediate_values == {3: 0.5}
    trial.report(0.25, 4)
    first.study.tell(trial, 1.5)
    first.storage.flush()
    assert second.refresh() == [0]
    assert second.study.best_value == 1.5
    assert second.refresh() == []


def test_no_more_trials_than_allowed_are_begun_whoever_asks(fleet):
    members = [fleet(n_trials=5) for _ in range(3)]
    n_asked = 0
    for turn in range(12):
        member = members[turn % 3]
        try:
            member.study.ask()
            n_asked += 1
        except NoTrialLeft:
            member.refresh()
    assert n_asked == 5


def test_trial_that_waits_goes_to_one_of_them(fleet, url):
    first, second = fleet(), fleet()
    first.study.enqueue_trial({"x": 0.5})
    second.refresh()
    asked = [member.study.ask() for member in (first, second)]
    assert sorted(trial.number for trial in asked) == [0, 1]
    assert stored_states(url) == ["RUNNING", "RUNNING"]


def test_trials_of_a_dead_process_of_this_host_wait_again_at_once(fleet, url):
    alive, dead = fleet(HERE), fleet(DEAD)
    trial = dead.study.ask()
    dead.begin_attempt(trial)
    # So does the next start on this host.
    (loss,) = alive.recorder.fleet.look(at(0))
    assert loss.trial_numbers == (0,)
    assert stored_states(url) == ["WAITING"]
    alive.refresh()
    assert alive.study.ask().number == 0


def test_dispatcher_elsewhere_is_dead_once_it_was_silent_for_a_minute_of_looking(fleet):
    silent, alive = fleet(ELSEWHERE), fleet(HERE)
    silent.begin_attempt(silent.study.ask())
    look = alive.recorder.fleet.look
    assert look(at(0)) == []
    assert alive.recorder.fleet.others
    assert watched(look, 0, STALE_AFTER_S - 1) == []
    (loss,) = look(at(STALE_AFTER_S))
    assert loss.trial_numbers == (0,)
    assert look(at(STALE_AFTER_S + 5)) == []


def test_dispatcher_of_another_pid_namespace_is_watched_whatever_its_pid_means_here(fleet):
    other, alive = fleet(with_process(DEAD, pid_namespace="1")), fleet(HERE)
    other.begin_attempt(other.study.ask())
    look = alive.recorder.fleet.look
    assert watched(look, 0, STALE_AFTER_S - 1) == []
    assert look(at(STALE_AFTER_S))


def test_clock_that_jumps_makes_nobody_dead(fleet):
    other, alive = fleet(ELSEWHERE), fleet(HERE)
    hours = Instant(utc=NOW + timedelta(hours=5), monotonic_s=1010.0)
    assert alive.recorder.fleet.look(at(0)) == []
    assert alive.recorder.fleet.look(hours) == []
    other.storage.set_trial_user_attr(other.study.ask()._trial_id, "a", 1)
    other.storage.flush()


def test_an_outage_that_a_look_notices_does_not_count(fleet, url):
    silent, alive = fleet(ELSEWHERE), fleet(HERE)
    silent.begin_attempt(silent.study.ask())
    look = alive.recorder.fleet.look
    assert watched(look, 0, 25) == []
    rename_table(url, "tuner_dispatchers", "away")
    with pytest.raises(StoreError):
        look(at(30))
    rename_table(url, "away", "tuner_dispatchers")
    # A dispatcher that could not write while this one could not read is not dead.
    outage_s = 10
    assert watched(look, 35, STALE_AFTER_S + outage_s - 1) == []
    (loss,) = look(at(STALE_AFTER_S + outage_s))
    assert loss.trial_numbers == (0,)


def test_an_outage_in_which_nothing_was_read_ends_no_dispatcher(fleet):
    other, alive = fleet(ELSEWHERE), fleet(HERE)
    look = alive.recorder.fleet.look
    assert watched(look, 0, 10) == []
    # The database is away; this dispatcher is the first one that is connected again.
    assert look(at(10 + 2 * STALE_AFTER_S)) == []
    other.study.ask()
    assert alive.recorder.fleet.others


def rename_table(url: str, before: str, after: str) -> None:
    with connected(url) as connection:
        connection.exec_driver_sql(f"ALTER TABLE {before} RENAME TO {after}")


def test_dispatcher_that_writes_now_and_then_lives(fleet):
    busy, alive = fleet(ELSEWHERE), fleet(HERE)
    for seconds in range(0, 300, 30):
        busy.study.ask()
        assert alive.recorder.fleet.look(at(seconds)) == []


def test_one_that_was_taken_over_cannot_write(fleet, url):
    silent, alive = fleet(ELSEWHERE), fleet(HERE)
    trial = silent.study.ask()
    assert watched(alive.recorder.fleet.look, 0, STALE_AFTER_S)
    alive.refresh()
    again = alive.study.ask()
    assert again.number == trial.number
    trial.report(0.5, 1)
    with pytest.raises(TakenOver):
        silent.recorder.commit()
    with pytest.raises(TakenOver):
        silent.study.ask()
    alive.study.tell(again, 2.0)
    alive.recorder.commit()
    assert stored_states(url) == ["COMPLETE"]


def test_device_time_of_others_is_counted(fleet):
    first, second = fleet(), fleet()
    first.begin_attempt(first.study.ask())
    second.recorder.fleet.measure()
    assert second.recorder.fleet.device_s_elsewhere > 0
    first.recorder.fleet.measure()
    assert first.recorder.fleet.device_s_elsewhere == 0


def test_trials_of_other_programs_of_optuna_are_left_alone(fleet, url):
    alive = fleet(HERE)
    foreign = optuna.load_study(study_name="s", storage=url)
    foreign.ask()
    assert alive.recorder.fleet.look(at(0)) == []
    fleet(HERE)
    assert stored_states(url) == ["RUNNING"]


def test_study_is_read_as_optuna_reads_it(url):
    database = open_database(url)
    study = optuna.create_study(study_name="s", storage=database.storage, directions=["minimize"])
    distributions = {
        "x": FloatDistribution(0.0, 1.0),
        "c": CategoricalDistribution(["a", None, 2, True]),
    }
    for number, value in enumerate((1.5, math.inf, -math.inf, 0.0)):
        trial = study.ask(distributions)
        for step, report in enumerate((0.5, math.nan, math.inf, -math.inf)):
            trial.report(report, step * 10)
        trial.set_user_attr("größe", {"deep": [1, None]})
        study.tell(trial, value)
        assert trial.number == number
    study.enqueue_trial({"x": 0.25})
    study.ask()
    study.tell(study.ask(distributions), state=TrialState.FAIL)
    database.storage.flush()
    with database.engine.connect() as connection:
        ours = read_trials(connection, study._study_id)
    theirs = RDBStorage(url).get_all_trials(study._study_id)
    # NaN equals nothing, not even itself.
    assert list(map(repr, ours)) == list(map(repr, theirs))
    database.close()


def test_trials_of_a_dead_one_wait_until_its_workers_are_gone(fleet, url):
    second, first = fleet(), fleet(DEAD)
    first.begin_attempt(first.study.ask())
    left = [DEAD.process]
    second.recorder.fleet.leaves_workers = left.__contains__
    assert second.recorder.fleet.look(at(0.0)) == []
    assert stored_states(url) == ["RUNNING"]
    left.clear()
    (loss,) = second.recorder.fleet.look(at(5.0))
    assert loss.trial_numbers == (0,)
    assert stored_states(url) == ["WAITING"]
