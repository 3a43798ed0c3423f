"""Many running trials of another process, of which only what was added is read."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import closing

import optuna
import pytest
import sqlalchemy as sa
from optuna.trial import FrozenTrial

from tests.fakes import FakeClock
from tuner.store.connection.database import Database, open_database
from tuner.store.optuna_tables.reads import read_trials
from tuner.store.optuna_tables.running_reads import MOST_WHOLE
from tuner.store.optuna_tables.statements import CURVES, SYSTEM_ATTRS

#: More than are read whole at a look.
N_TRIALS = 3 * MOST_WHOLE


class Pair:
    """Two processes on one study: one runs trials, and the other looks."""

    def __init__(self, url: str, other: Database, own: Database) -> None:
        self.other, self.own = other, own
        self.writer = optuna.create_study(storage=other.storage, study_name="s")
        self.reader = optuna.load_study(storage=own.storage, study_name="s")

    @property
    def study_id(self) -> int:
        return self.writer._study_id

    def look(self) -> list[int]:
        """Numbers of the trials that a look finds changed."""
        self.other.storage.flush()
        return sorted(trial.number for trial in self.own.storage.refresh(self.study_id))

    def seen(self) -> list[FrozenTrial]:
        return self.reader.get_trials(deepcopy=False)

    def stored(self) -> list[FrozenTrial]:
        with self.own.engine.connect() as connection:
            return read_trials(connection, self.study_id)


@pytest.fixture
def pair(url: str) -> Iterator[Pair]:
    with closing(open_database(url)) as other, closing(open_database(url)) as own:
        yield Pair(url, other, own)


def report(trial: optuna.Trial, value: float, step: int) -> None:
    """Also a step that was reported before, as a trial that is resumed may do."""
    trial.storage.set_trial_intermediate_value(trial._trial_id, step, value)


def add(trial: optuna.Trial, step: int) -> None:
    report(trial, step / 10, step)


def test_a_look_returns_what_was_added_to_many_trials(pair: Pair) -> None:
    trials = [pair.writer.ask() for _ in range(N_TRIALS)]
    pair.look()
    assert len(pair.seen()) == N_TRIALS
    add(trials[40], 1)
    trials[41].suggest_float("x", 0.0, 1.0)
    trials[42].set_user_attr("note", [1, None])
    trials[43].storage.set_trial_system_attr(trials[43]._trial_id, "rung_0", 0.5)
    assert pair.look() == [40, 41, 42, 43]
    assert pair.seen() == pair.stored()
    # The same rows are read again for some seconds, and are no news.
    assert pair.look() == []


def test_values_that_are_written_again_are_seen(pair: Pair) -> None:
    trials = [pair.writer.ask() for _ in range(N_TRIALS)]
    pair.look()
    for value in (float("nan"), 1.0, float("inf"), 2.0):
        report(trials[30], value, 7)
        trials[31].set_user_attr("value", str(value))
        assert pair.look() == [30, 31]
        assert list(map(repr, pair.seen())) == list(map(repr, pair.stored()))


def test_ends_are_seen_whole(pair: Pair) -> None:
    trials = [pair.writer.ask() for _ in range(N_TRIALS)]
    pair.look()
    add(trials[20], 1)
    pair.writer.tell(trials[20], 0.5)
    pair.other.storage.set_trial_state_values(trials[21]._trial_id, optuna.trial.TrialState.WAITING)
    assert pair.look() == [20, 21]
    assert pair.seen() == pair.stored()


def test_dropped_reports_are_gone_after_some_looks(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = FakeClock()
    reads = pair.own.storage._running_reads[pair.study_id]
    monkeypatch.setattr(reads, "monotonic_s", lambda: clock.now().monotonic_s)
    trials = [pair.writer.ask() for _ in range(N_TRIALS)]
    for trial in trials:
        add(trial, 1)
        add(trial, 2)
    pair.look()
    pair.other.storage.drop_reports(trials[47]._trial_id, 2)
    for step in range(N_TRIALS // MOST_WHOLE):
        clock.advance(10.0)
        add(trials[0], 3 + step)  # On SQLite a file that has not changed is not read.
        pair.look()
    assert pair.seen() == pair.stored()


def test_nothing_is_missed_whatever_happens(pair: Pair) -> None:
    chance = random.Random(5)
    running: list[optuna.Trial] = []
    for _ in range(60):
        running += [pair.writer.ask() for _ in range(chance.randrange(4))]
        for trial in chance.sample(running, len(running) // 4):
            match chance.randrange(5):
                case 0 | 1:
                    report(trial, chance.random(), chance.randrange(8))
                case 2:
                    trial.set_user_attr(chance.choice("ab"), chance.random())
                case 3:
                    trial.suggest_int(chance.choice("xy"), 0, 9)
                case _:
                    pair.writer.tell(trial, chance.random())
                    running.remove(trial)
        pair.look()
        assert pair.seen() == pair.stored()
    assert len(running) > MOST_WHOLE


def test_rows_that_are_committed_late_are_seen(pair: Pair) -> None:
    """Another transaction has taken higher ids meanwhile, and was quicker."""
    if pair.own.engine.dialect.name == "sqlite":
        pytest.skip("one transaction at a time writes")
    trials = [pair.writer.ask() for _ in range(N_TRIALS)]
    pair.look()
    late = {"trial_id": trials[33]._trial_id, "key": "late", "value_json": "1"}
    with pair.own.engine.connect() as slow:
        slow.execute(sa.insert(SYSTEM_ATTRS), late)
        trials[34].storage.set_trial_system_attr(trials[34]._trial_id, "early", 2)
        assert pair.look() == [34]
        slow.commit()
    assert pair.look() == [33]
    assert pair.seen() == pair.stored()


def test_few_curves_are_read(pair: Pair) -> None:
    trials = [pair.writer.ask() for _ in range(N_TRIALS)]
    for trial in trials:
        add(trial, 1)
    pair.look()
    pair.look()
    n_ids: list[int] = []

    def note(*arguments: object) -> None:
        statement, parameters = str(arguments[2]), arguments[3]
        assert isinstance(parameters, (dict, tuple, list))
        if f"{CURVES.name}.trial_id IN" in statement and " > " not in statement:
            n_ids.append(len(parameters))

    add(trials[5], 2)
    pair.other.storage.flush()
    sa.event.listen(pair.own.engine, "before_cursor_execute", note)
    assert pair.look() == [5]
    sa.event.remove(pair.own.engine, "before_cursor_execute", note)
    assert n_ids == []
