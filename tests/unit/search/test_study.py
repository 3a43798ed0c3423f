"""The study as the dispatcher sees it: asking, judging, and the same study again."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path

import optuna
import pytest
from optuna.trial import TrialState

from tests.databases import new_database
from tuner.config import Direction
from tuner.domain.messages import Action
from tuner.errors import StudyMismatch
from tuner.search.samplers.resumable import GridSampler
from tuner.search.study import StudySearch
from tuner.search_spaces import AnySpace, parse_space
from tuner.store.connection.database import Database, open_database

X = {"x": {"type": "float", "low": 0.0, "high": 1.0}}
SPACE = parse_space({**X, "epochs": 20})
ACCURACY = {"accuracy": Direction.MAXIMIZE}
TWO = {"accuracy": Direction.MAXIMIZE, "latency_ms": Direction.MINIMIZE}


@pytest.fixture
def database(tmp_path: Path) -> Iterator[Database]:
    database = open_database(new_database(tmp_path))
    yield database
    database.close()


def a_search(
    database: Database,
    *,
    objectives: dict[str, Direction] = ACCURACY,
    space: AnySpace | None = SPACE,
    sampler: optuna.samplers.BaseSampler | None = None,
    pruner: optuna.pruners.BasePruner | None = None,
) -> StudySearch:
    return StudySearch(
        database.storage,
        "s",
        objectives=objectives,
        space=space,
        sampler=sampler or optuna.samplers.RandomSampler(0),
        pruner=pruner or optuna.pruners.NopPruner(),
    )


@pytest.fixture
def search(database: Database) -> StudySearch:
    return a_search(database)


# -- asking ------------------------------------------------------------------------------------


def test_ask_gives_numbers_params_and_constants(search: StudySearch):
    first, second = search.ask(), search.ask()
    assert (first.number, second.number, first.is_new) == (0, 1, True)
    assert first.params["epochs"] == 20
    assert 0 <= first.params["x"] <= 1
    assert first.params["x"] != second.params["x"]
    assert search.counts.by_state()[TrialState.RUNNING] == 2


def test_again_gives_the_same_params(search: StudySearch):
    asked = search.ask()
    again = search.again(asked.trial_id)
    assert (again.params, again.number, again.is_new) == (asked.params, asked.number, False)


def test_put_back_trial_is_asked_before_a_new_one(search: StudySearch):
    first, second = search.ask(), search.ask()
    search.put_back(first.trial_id)
    assert search.counts.by_state()[TrialState.WAITING] == 1
    again = search.ask()
    assert (again.number, again.params, again.is_new) == (0, first.params, False)
    assert search.ask().number == second.number + 1


def test_enqueued_trial_is_no_attempt_yet(search: StudySearch):
    search.study.enqueue_trial({"x": 0.125})
    asked = search.ask()
    assert (asked.params["x"], asked.number) == (0.125, 0)


# -- the best ----------------------------------------------------------------------------------


def test_best_follows_the_direction(database: Database):
    search = a_search(database)
    assert search.best is None
    for value in (0.5, 0.9, 0.7, math.inf, -math.inf):
        search.complete(search.ask().trial_id, {"accuracy": value})
    assert search.best is not None
    assert search.best.number == 1  # An infinite value is the best of nothing.
    assert set(search.best.params) == {"x", "epochs"}


def test_best_of_a_minimized_objective(database: Database):
    search = a_search(database, objectives={"loss": Direction.MINIMIZE})
    for value in (0.5, 0.1, 0.7):
        search.complete(search.ask().trial_id, {"loss": value})
    assert search.best is not None
    assert (search.best.number, search.best.values) == (1, {"loss": 0.1})


def test_of_equal_trials_the_best_is_that_of_optuna(search: StudySearch):
    asked = [search.ask() for _ in range(3)]
    for each in (asked[1], asked[2], asked[0]):
        search.complete(each.trial_id, {"accuracy": 0.5})
    assert search.best is not None
    assert search.best.number == search.study.best_trial.number == 0


def test_trial_that_violates_a_constraint_is_never_the_best(search: StudySearch):
    bad, good = search.ask(), search.ask()
    search.set_constraint(bad.trial_id, "memory", 1.0)
    search.set_constraint(good.trial_id, "memory", 0.0)
    search.complete(bad.trial_id, {"accuracy": 0.9})
    assert search.best is None
    search.complete(good.trial_id, {"accuracy": 0.1})
    assert search.best is not None
    assert search.best.number == good.number


def test_pruned_and_failed_trials_are_never_the_best(search: StudySearch):
    pruned, failed = search.ask(), search.ask()
    search.report(pruned.trial_id, 1, {"accuracy": 0.9})
    search.prune(pruned.trial_id)
    search.fail(failed.trial_id)
    assert search.best is None
    assert +search.counts.by_state() == {TrialState.PRUNED: 1, TrialState.FAIL: 1}


def test_best_of_several_objectives_is_the_newest_on_the_front(database: Database):
    search = a_search(database, objectives=TWO)
    for accuracy, latency_ms in ((0.5, 5.0), (0.9, 9.0), (0.4, 9.0)):
        values = {"latency_ms": latency_ms, "accuracy": accuracy}
        search.complete(search.ask().trial_id, values)
    assert search.best is not None
    assert (search.best.number, search.best.values) == (1, {"accuracy": 0.9, "latency_ms": 9.0})


def test_best_is_known_after_a_new_start(database: Database, search: StudySearch):
    search.complete(search.ask().trial_id, {"accuracy": 0.5})
    assert a_search(database).best == search.best


# -- reports -----------------------------------------------------------------------------------


def test_report_prunes_with_a_reason(database: Database):
    search = a_search(database, pruner=optuna.pruners.ThresholdPruner(lower=0.5))
    asked = search.ask()
    assert search.report(asked.trial_id, 1, {"accuracy": 0.6}).action is Action.CONTINUE
    decision = search.report(asked.trial_id, 2, {"accuracy": 0.25})
    assert decision.action is Action.PRUNE
    assert decision.reason == "Threshold pruned it at step 2 (accuracy 0.25)"


def test_first_report_of_a_step_counts_as_in_optuna(search: StudySearch):
    asked = search.ask()
    for value in (0.1, 0.9):
        search.report(asked.trial_id, 1, {"accuracy": value})
    assert search.study.trials[0].intermediate_values == {1: 0.1}


def test_several_objectives_are_never_pruned_nor_kept_as_a_curve(database: Database):
    search = a_search(database, objectives=TWO, pruner=optuna.pruners.ThresholdPruner(lower=0.5))
    asked = search.ask()
    values = {"accuracy": 0.0, "latency_ms": 1.0}
    assert search.report(asked.trial_id, 1, values).action is Action.CONTINUE
    assert search.study.trials[0].intermediate_values == {}


def test_forget_curve_drops_the_given_step_and_later(search: StudySearch):
    asked = search.ask()
    for step in (1, 2, 3):
        search.report(asked.trial_id, step, {"accuracy": 0.5})
    search.forget_curve_from(asked.trial_id, 2)
    assert search.study.trials[0].intermediate_values == {1: 0.5}


# -- grids -------------------------------------------------------------------------------------


def test_grid_is_exhausted_once_each_point_was_asked_for(database: Database):
    grid = {"k": [1, 2, 3]}
    space = parse_space({"k": {"type": "categorical", "choices": [1, 2, 3]}})
    search = a_search(database, space=space, sampler=GridSampler(grid, seed=0))
    assert search.suggestions.limit == 3
    asked = []
    while not search.is_exhausted:
        asked.append(search.ask())
    assert sorted(each.params["k"] for each in asked) == [1, 2, 3]
    search.put_back(asked[1].trial_id)
    assert not search.is_exhausted
    assert search.ask().params == asked[1].params
    assert search.is_exhausted


def test_other_samplers_are_never_exhausted(search: StudySearch):
    search.ask()
    assert search.suggestions.limit is None
    assert not search.is_exhausted


# -- the same study again ----------------------------------------------------------------------


def test_same_study_continues(database: Database, search: StudySearch):
    search.ask()
    again = a_search(database)
    assert again.study_id == search.study_id
    assert sum(again.counts.by_state().values()) == 1


CHANGES = {
    "bounds": (ACCURACY, {"x": {"type": "float", "low": 0.0, "high": 2.0}, "epochs": 20}, "x"),
    "constant": (ACCURACY, {**X, "epochs": 30}, "epochs"),
    "parameter gone": (ACCURACY, {"epochs": 20}, "x"),
    "parameter added": (ACCURACY, {**X, "epochs": 20, "new": 1}, "new"),
}


@pytest.mark.parametrize("case", CHANGES)
def test_changed_space_is_refused_with_the_difference(database: Database, search, case: str):
    objectives, space, name = CHANGES[case]
    with pytest.raises(StudyMismatch) as caught:
        a_search(database, objectives=objectives, space=parse_space(space))
    text = str(caught.value)
    assert text.startswith("Study 's' exists in this storage, and it is another one:\n  - ")
    assert name in text
    assert "--study NEW_NAME" in text


@pytest.mark.parametrize(
    ("objectives", "words"),
    [
        (
            {"accuracy": Direction.MINIMIZE},
            "objectives were {accuracy: maximize}, are now {accuracy: minimize}",
        ),
        ({"loss": Direction.MAXIMIZE}, "are now {loss: maximize}"),
        (TWO, "are now {accuracy: maximize, latency_ms: minimize}"),
    ],
)
def test_changed_objectives_are_refused_with_the_difference(
    database: Database, search, objectives, words
):
    with pytest.raises(StudyMismatch) as caught:
        a_search(database, objectives=objectives)
    assert words in str(caught.value)


def test_study_that_optuna_made_is_adopted(database: Database):
    optuna.create_study(storage=database.storage, study_name="s", direction="maximize")
    a_search(database)
    with pytest.raises(StudyMismatch):
        a_search(database, space=parse_space(X))


def test_study_of_optuna_with_another_direction_is_refused(database: Database):
    optuna.create_study(storage=database.storage, study_name="s", direction="minimize")
    with pytest.raises(StudyMismatch, match="minimize"):
        a_search(database)


# -- configurations that cannot work -----------------------------------------------------------


def asked_beyond_half(database: Database, *, is_marked: bool) -> int:
    """How often TPE asks for what runs out of memory, of the last 30, where more is better."""
    search = a_search(database, sampler=optuna.samplers.TPESampler(seed=1))
    n_beyond = 0
    for number in range(60):
        asked = search.ask()
        x = float(asked.params["x"])
        if x <= 0.5:
            search.complete(asked.trial_id, {"accuracy": x})
        elif is_marked:
            search.mark_infeasible(asked.trial_id, "device_memory")
        else:
            search.fail(asked.trial_id)
        n_beyond += number >= 30 and x > 0.5
    return n_beyond


def test_sampler_stays_away_from_what_is_marked(tmp_path: Path):
    counts = []
    for is_marked in (True, False):
        folder = tmp_path / str(is_marked)
        folder.mkdir()
        database = open_database(new_database(folder))
        counts.append(asked_beyond_half(database, is_marked=is_marked))
        database.close()
    assert counts[0] < counts[1] / 2, counts


@pytest.mark.parametrize("objectives", [ACCURACY, TWO])
def test_marked_trial_is_pruned_infeasible_and_counted(database: Database, objectives):
    search = a_search(database, objectives=objectives)
    asked = search.ask()
    assert not search.counts.has_ended_well
    search.mark_infeasible(asked.trial_id, "not_a_number")
    assert (search.counts.n_infeasible, search.counts.has_ended_well) == (1, False)
    database.storage.flush()
    (trial,) = optuna.load_study(study_name="s", storage=str(database.engine.url)).get_trials()
    assert (trial.state, trial.constraints) == (TrialState.PRUNED, {"tuner:not_a_number": 1.0})
    assert a_search(database, objectives=objectives).counts.n_infeasible == 1


def test_constraints_of_the_program_are_no_marks(database: Database, search: StudySearch):
    asked = search.ask()
    search.set_constraint(asked.trial_id, "weight", 2.0)
    search.prune(asked.trial_id)
    assert (search.counts.n_infeasible, search.counts.has_ended_well) == (0, True)
