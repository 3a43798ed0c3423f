"""Curves that are fetched when looked at: the same as Optuna reads, and the same decisions."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing, contextmanager
from random import Random
from typing import cast

import optuna
import pytest
import sqlalchemy as sa
from optuna.pruners import (
    BasePruner,
    HyperbandPruner,
    MedianPruner,
    PatientPruner,
    PercentilePruner,
    SuccessiveHalvingPruner,
    ThresholdPruner,
    WilcoxonPruner,
)
from optuna.samplers import BaseSampler, CmaEsSampler, RandomSampler, TPESampler
from optuna.storages import RDBStorage
from optuna.trial import FrozenTrial, TrialState, create_trial

from tuner.config import Direction
from tuner.search.samplers.bounded import bounded
from tuner.search.study import StudySearch
from tuner.store.connection.database import open_database
from tuner.store.optuna_tables.curves import lazy_curve
from tuner.store.optuna_tables.storage import BufferedStorage

X = optuna.distributions.FloatDistribution(0.0, 1.0)
STEPS = (range(1, 9), range(8), range(0, 80, 10), (1, 2, 4, 8, 16, 32), (3,), ())
STRANGE = (math.nan, math.inf, -math.inf)


@pytest.fixture(autouse=True)
def _small_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tuner.store.optuna_tables.curves.reads.BATCH_SIZE", 7)
    monkeypatch.setattr("tuner.store.optuna_tables.curves.memory.BATCH_SIZE", 7)
    assert lazy_curve.BATCH_SIZE > 7


def ended_trials(n_trials: int = 60, *, seed: int = 0) -> Iterator[FrozenTrial]:
    """Completed, pruned and failed ones, with steps and values of all kinds."""
    random = Random(seed)
    for number in range(n_trials):
        steps = STEPS[number // 2 % len(STEPS)] if number % 2 else STEPS[0]
        state = (TrialState.COMPLETE, TrialState.PRUNED, TrialState.COMPLETE, TrialState.FAIL)[
            random.randrange(4)
        ]
        level = random.random()
        curve = {step: level + random.random() / 10 for step in steps}
        if curve and number % 10 == 0:
            curve[random.choice(list(curve))] = random.choice(STRANGE)
        value = level if state is TrialState.COMPLETE else None
        yield create_trial(
            state=state,
            value=value,
            params={"x": random.random()},
            distributions={"x": X},
            intermediate_values=curve,
        )


@contextmanager
def stored_study(url: str) -> Iterator[BufferedStorage]:
    """Our storage of a study that was there before it."""
    with closing(open_database(url)) as database:
        study = optuna.create_study(study_name="s", storage=database.storage)
        study.add_trials(ended_trials())
        database.storage.flush()
    with closing(open_database(url)) as database:
        yield database.storage


@contextmanager
def statements(storage: BufferedStorage, *, of: str) -> Iterator[list[str]]:
    """Those that are sent and name a table."""
    sent: list[str] = []

    def note(_c: object, _cursor: object, statement: str, *_: object) -> None:
        if of in statement:
            sent.append(statement)

    sa.event.listen(storage._access.engine, "before_cursor_execute", note)
    try:
        yield sent
    finally:
        sa.event.remove(storage._access.engine, "before_cursor_execute", note)


def test_curves_are_those_that_optuna_reads(url: str) -> None:
    with stored_study(url) as storage:
        study_id = storage.get_study_id_from_name("s")
        ours = storage.get_all_trials(study_id)
        theirs = RDBStorage(url).get_all_trials(study_id)
        assert [repr(t.intermediate_values) for t in ours] == [
            repr(dict(sorted(t.intermediate_values.items()))) for t in theirs
        ]
        assert ours == storage.get_all_trials(study_id)
        assert {type(value) for t in ours for value in t.intermediate_values.values()} == {float}


def test_a_study_is_loaded_and_asked_without_a_look_at_its_curves(url: str) -> None:
    with stored_study(url) as storage:
        study = optuna.load_study(study_name="s", storage=storage, sampler=RandomSampler())
        with statements(storage, of="trial_intermediate_values") as sent:
            trials = study.get_trials()
            assert study.ask().number == len(trials)
            assert storage.refresh(study._study_id) == []
            assert study.best_trial.value == min(
                trial.value for trial in trials if trial.value is not None
            )
            assert sent == []
            pruned = [trial for trial in trials if trial.state is TrialState.PRUNED]
            assert pruned[0].intermediate_values
            n_of_a_batch = len(sent)
            assert 0 < n_of_a_batch < 5
            assert [len(trial.intermediate_values) for trial in pruned[:7]].count(8) > 0
            assert len(sent) == n_of_a_batch


def test_reports_of_running_trials_are_there_at_once(url: str) -> None:
    other = optuna.create_study(study_name="s", storage=RDBStorage(url))
    running = other.ask()
    running.report(0.5, 3)
    with closing(open_database(url)) as database:
        storage = database.storage
        trial = storage.get_trial(running._trial_id)
        assert type(trial.intermediate_values) is dict
        running.report(0.25, 4)
        storage.refresh(other._study_id)
        assert storage.get_trial(running._trial_id).intermediate_values == {3: 0.5, 4: 0.25}
        other.tell(running, 1.0)
        storage.refresh(other._study_id)
        ended = storage.get_trial(running._trial_id)
        assert ended.intermediate_values == {3: 0.5, 4: 0.25}
        assert type(ended.intermediate_values) is lazy_curve.Curve
        assert trial.intermediate_values == {3: 0.5}


def test_a_trial_that_ends_here_keeps_its_curve_compact(url: str) -> None:
    with closing(open_database(url)) as database:
        study = optuna.create_study(study_name="s", storage=database.storage)
        trial = study.ask()
        trial.report(0.5, 1)
        trial.report(math.nan, 2)
        study.tell(trial, 1.0)
        study.add_trial(study.trials[0])
        for ended in study.get_trials(deepcopy=False):
            assert type(ended.intermediate_values) is lazy_curve.Curve
            assert repr(ended.intermediate_values) == "{1: 0.5, 2: nan}"
        database.storage.flush()
        stored = RDBStorage(url).get_all_trials(study._study_id)
        assert [repr(each.intermediate_values) for each in stored] == ["{1: 0.5, 2: nan}"] * 2


def test_a_trial_that_is_begun_with_the_curve_of_another_reports_on(url: str) -> None:
    with stored_study(url) as storage:
        study = optuna.load_study(study_name="s", storage=storage)
        curve = study.get_trials(deepcopy=False)[2].intermediate_values
        study.add_trial(create_trial(state=TrialState.WAITING, intermediate_values=curve))
        trial = study.ask()
        trial.report(0.5, 100)
        assert storage.get_trial(trial._trial_id).intermediate_values == {**curve, 100: 0.5}
        assert len(curve) == 8


def test_a_look_at_a_trial_that_was_deleted_meanwhile_says_so(url: str) -> None:
    with stored_study(url) as storage:
        study_id = storage.get_study_id_from_name("s")
        trials = storage.get_all_trials(study_id)
        RDBStorage(url).delete_study(study_id)
        with pytest.raises(KeyError, match="the trial was deleted"):
            len(trials[0].intermediate_values)


def in_memory(trials: Iterable[FrozenTrial]) -> int:
    """How many values of curves are in memory."""
    curves = [cast(lazy_curve.Curve, trial.intermediate_values) for trial in trials]
    return sum(len(curve) for curve in curves if curve.is_in_memory)


def test_curves_that_were_looked_at_leave_the_memory_and_are_read_again(url: str) -> None:
    with stored_study(url) as storage:
        storage._curves._limit = 100
        study_id = storage.get_study_id_from_name("s")
        trials = storage.get_all_trials(study_id, deepcopy=False)
        theirs = RDBStorage(url).get_all_trials(study_id)
        for _ in range(2):
            for ours, expected in zip(trials, theirs, strict=True):
                assert ours.intermediate_values == lazy_curve.Curve.of(expected.intermediate_values)
            assert 0 < in_memory(trials) <= 100
        assert sum(len(each.intermediate_values) for each in theirs) > 200


def test_curves_of_trials_that_ended_here_leave_the_memory_once_they_are_written(url: str) -> None:
    with closing(open_database(url)) as database:
        storage = database.storage
        storage._curves._limit = 20
        study = optuna.create_study(study_name="s", storage=storage)
        expected = {}
        for number in range(14):
            trial = study.ask()
            for step in range(5):
                trial.report(number + step / 10, step)
            expected[number] = {step: number + step / 10 for step in range(5)}
            study.tell(trial, 1.0)
        trials = study.get_trials(deepcopy=False)
        waiting = len(storage._pending.curves)
        assert in_memory(trials) == 70
        assert waiting
        storage.flush()
        assert in_memory(trials) == 35
        for trial in trials:
            assert trial.intermediate_values == expected[trial.number]
        assert in_memory(trials) <= 40


def test_curves_of_trials_that_ended_in_memory_alone_stay_there(url: str) -> None:
    with closing(open_database(url)) as database:
        storage = database.storage
        storage._curves._limit = 20
        study = optuna.create_study(study_name="s", storage=storage)
        storage.stay_in_memory()
        for _ in range(14):
            trial = study.ask()
            for step in range(5):
                trial.report(step, step)
            study.tell(trial, 1.0)
        storage.take_pending()
        storage.forget_taken()
        assert in_memory(study.get_trials(deepcopy=False)) == 70


PRUNERS: dict[str, Callable[[], BasePruner]] = {
    "median": lambda: MedianPruner(n_startup_trials=2),
    "percentile": lambda: PercentilePruner(40.0, n_startup_trials=2, interval_steps=2),
    "halving": SuccessiveHalvingPruner,
    "hyperband": lambda: HyperbandPruner(min_resource=1, max_resource=8),
    "patient": lambda: PatientPruner(MedianPruner(n_startup_trials=1), patience=1),
    "threshold": lambda: ThresholdPruner(upper=0.8),
    "wilcoxon": lambda: WilcoxonPruner(p_threshold=0.4, n_startup_steps=1),
}
SAMPLERS: dict[str, Callable[[], BaseSampler]] = {
    "random": lambda: RandomSampler(seed=0),
    "tpe": lambda: TPESampler(seed=0, multivariate=True, n_startup_trials=3),
    "bounded": lambda: bounded(TPESampler(seed=0, n_startup_trials=3), seed=0),
    "cmaes": lambda: CmaEsSampler(seed=0, n_startup_trials=3, consider_pruned_trials=True),
}


def decisions(study: optuna.Study) -> list[tuple[float, list[bool]]]:
    """What the sampler suggests and what the pruner says in the next trials."""
    random, made = Random(1), []
    for number, level in enumerate((0.1, 0.9, 0.3, 0.05, 0.7, 0.4)):
        trial = study.ask({"x": X})
        verdicts: list[bool] = []
        for step in range(1, 9):
            value = level + random.random() / 10
            trial.report(math.nan if (number, step) == (2, 3) else value, step)
            verdicts.append(trial.should_prune())
        study.tell(trial, state=TrialState.PRUNED) if any(verdicts) else study.tell(trial, 0.5)
        made.append((trial.params["x"], verdicts))
    return made


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    ("sampler", "pruner"),
    [
        *(("random", pruner) for pruner in PRUNERS),
        *((sampler, "median") for sampler in SAMPLERS if sampler != "random"),
    ],
)
def test_decisions_are_those_over_optunas_own_storage(
    tmp_path: object, sampler: str, pruner: str
) -> None:
    url = f"sqlite:///{tmp_path}/study.db"
    theirs = optuna.create_study(
        study_name="s", sampler=SAMPLERS[sampler](), pruner=PRUNERS[pruner]()
    )
    theirs.add_trials(ended_trials())
    open_database(url).close()
    with stored_study(url) as storage:
        ours = optuna.load_study(
            study_name="s", storage=storage, sampler=SAMPLERS[sampler](), pruner=PRUNERS[pruner]()
        )
        expected = decisions(theirs)
        assert decisions(ours) == expected
    verdicts = {verdict for _, several in expected for verdict in several}
    assert verdicts == {False, True}


def test_curves_are_read_ahead_while_nothing_else_happens(url: str) -> None:
    with stored_study(url) as storage:
        search = StudySearch(
            storage,
            "s",
            objectives={"value": Direction.MINIMIZE},
            space=None,
            sampler=RandomSampler(),
            pruner=MedianPruner(),
        )
        with statements(storage, of="trial_intermediate_values") as sent:
            while search.scheduler.read_ahead():
                assert sent, "a part was read"
            n_read = len(sent)
            asked = search.ask()
            assert asked is not None
            search.report(asked.trial_id, 1, {"value": 1.0})
            assert len(sent) == n_read, "the pruner had all that it looked at"
