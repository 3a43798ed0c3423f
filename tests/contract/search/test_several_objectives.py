"""Trials of several objectives are compared at rungs by Pareto rank, and pause or end there."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest
from optuna.samplers import RandomSampler
from optuna.trial import TrialState

from tests.contract.search.halving_study import MakePruner
from tests.databases import new_database
from tuner.config import Direction
from tuner.domain.messages import Action
from tuner.search.asked_trial import AskedTrial
from tuner.search.pruners.asha import AshaPruner
from tuner.search.pruners.hyperband import AsyncHyperbandPruner
from tuner.search.study import StudySearch
from tuner.search.trial_attributes.vector_curve import LAST_STEP_KEY
from tuner.store.connection.database import open_database
from tuner.store.optuna_tables.pauses import PAUSED_KEY

OBJECTIVES = {"accuracy": Direction.MAXIMIZE, "latency_ms": Direction.MINIMIZE}
N_TRIALS, N_STEPS = 24, 9
PROMOTING: dict[str, MakePruner] = {
    "asha": AshaPruner,
    "hyperband": lambda: AsyncHyperbandPruner(max_resource=N_STEPS),
}
STOPPING: dict[str, MakePruner] = {
    "asha": lambda: AshaPruner(mode="stop"),
    "hyperband": lambda: AsyncHyperbandPruner(max_resource=N_STEPS, mode="stop"),
}
promoting = pytest.mark.parametrize("make_pruner", PROMOTING.values(), ids=PROMOTING)
stopping = pytest.mark.parametrize("make_pruner", STOPPING.values(), ids=STOPPING)


def values_of(number: int) -> dict[str, float]:
    """The first of three is on the front, the second behind it, the third far behind."""
    step, behind = divmod(number, 3)
    return {"accuracy": step / 10 - behind, "latency_ms": step + 20.0 * behind}


@contextmanager
def searching(url: str, make_pruner: MakePruner) -> Iterator[StudySearch]:
    database = open_database(url)
    yield StudySearch(
        database.storage,
        "study",
        objectives=OBJECTIVES,
        space=None,
        sampler=RandomSampler(0),
        pruner=make_pruner(),
    )
    database.storage.flush()
    database.close()


class Trainer:
    """Trains trials one after the other, and knows how far each has come.

    Args:
        saves: Whether programs save checkpoints; if not, that is found out as the dispatcher does.
    """

    def __init__(self, *, saves: bool = True) -> None:
        self.saves = saves
        self.done: dict[int, int] = {}
        self.reasons: dict[int, str] = {}
        self.n_steps = 0

    def turn(self, search: StudySearch) -> bool:
        asked = search.resume()
        if asked is None and search.counts.n_begun < N_TRIALS:
            asked = search.ask()
        if asked is None:
            asked = search.resume(is_last=True)
        if asked is not None:
            self._train(search, asked)
        return asked is not None

    def _train(self, search: StudySearch, asked: AskedTrial) -> None:
        values = values_of(asked.number)
        for step in range(self.done.get(asked.number, 0) + 1, N_STEPS + 1):
            self.done[asked.number] = step
            self.n_steps += 1
            decision = search.report(asked.trial_id, step, values)
            if decision.action is Action.CONTINUE:
                continue
            self.reasons[asked.number] = decision.reason
            if decision.action is Action.PAUSE and self.saves:
                search.pause(asked.trial_id)
            elif decision.action is Action.PAUSE:
                search.stop_instead_of_pausing()
                search.prune(asked.trial_id)
            else:
                search.prune(asked.trial_id)
            return
        search.complete(asked.trial_id, values)


def ended(search: StudySearch) -> Sequence[TrialState]:
    search.end_paused()
    return [trial.state for trial in search.study.get_trials()]


@pytest.fixture
def url(tmp_path: Path) -> str:
    return new_database(tmp_path)


@pytest.mark.slow
@promoting
@pytest.mark.parametrize("is_restarted", [False, True], ids=["one start", "many"])
def test_trials_of_the_front_are_resumed(
    make_pruner: MakePruner, url: str, *, is_restarted: bool
) -> None:
    trainer, goes_on = Trainer(), True
    while goes_on:
        with searching(url, make_pruner) as search:
            goes_on = trainer.turn(search)
            while goes_on and not is_restarted:
                goes_on = trainer.turn(search)
    with searching(url, make_pruner) as search:
        states = ended(search)
    assert set(states) == {TrialState.COMPLETE, TrialState.PRUNED}
    completed = [number for number, state in enumerate(states) if state is TrialState.COMPLETE]
    assert any(number % 3 == 0 for number in completed)
    assert trainer.n_steps < N_TRIALS * N_STEPS * 0.7
    assert max(trainer.done.values()) == N_STEPS


@stopping
def test_trials_behind_the_front_are_stopped(make_pruner: MakePruner, url: str) -> None:
    trainer = Trainer()
    with searching(url, make_pruner) as search:
        while trainer.turn(search):
            pass
        assert search.counts.n_paused == 0
        states = ended(search)
    assert states[0] is TrialState.COMPLETE, "the first of all passes"
    assert TrialState.PRUNED in states
    assert set(states) == {TrialState.COMPLETE, TrialState.PRUNED}


@promoting
def test_without_checkpoints_they_are_stopped_too(make_pruner: MakePruner, url: str) -> None:
    trainer = Trainer()
    with searching(url, make_pruner) as search:
        assert search.stop_instead_of_pausing()
        while trainer.turn(search):
            pass
        assert search.counts.n_paused == 0
        assert set(ended(search)) == {TrialState.COMPLETE, TrialState.PRUNED}


@promoting
def test_until_one_was_paused_a_trial_is_judged_as_if_it_could_not_wait(
    make_pruner: MakePruner, url: str
) -> None:
    """Programs that save no checkpoint are found out when the first trial has ended."""
    trainer = Trainer(saves=False)
    with searching(url, make_pruner) as search:
        while trainer.turn(search):
            pass
        states = ended(search)
    assert states[0] is TrialState.COMPLETE, "the best of those that came to a rung goes on"
    lost = [number for number in trainer.reasons if "no trial continues" in trainer.reasons[number]]
    assert not lost, "nobody ends unjudged"


def test_once_one_was_paused_the_next_may_wait(url: str) -> None:
    with searching(url, AshaPruner) as search:
        asked = [search.ask() for _ in range(3)]
        ids = [each.trial_id for each in asked if each is not None]
        assert search.report(ids[0], 1, values_of(0)).action is Action.CONTINUE
        assert search.report(ids[1], 1, values_of(1)).action is Action.PAUSE
        search.pause(ids[1])
        decision = search.report(ids[0], 3, values_of(0))
        assert decision.action is Action.PAUSE
        assert decision.reason.endswith("no trial continues before 3 trials reached this rung")
    with searching(url, AshaPruner) as search:  # A later start knows it, too.
        assert search.report(ids[2], 1, values_of(4)).action is Action.PAUSE


@pytest.mark.parametrize("make_pruner", [*PROMOTING.values(), *STOPPING.values()])
def test_at_its_last_step_no_trial_is_ended(make_pruner: MakePruner, url: str) -> None:
    with searching(url, make_pruner) as search:
        trials = [search.ask() for _ in range(9)]
        ids = [each.trial_id for each in trials if each is not None]
        for step in range(1, N_STEPS + 1):
            search.report(ids[0], step, values_of(0))
        search.complete(ids[0], values_of(0))
        # Far worse, but they have nothing left to do.
        last = [search.report(trial_id, N_STEPS, values_of(2)).action for trial_id in ids[1:]]
        assert set(last) == {Action.CONTINUE}


def reported(search: StudySearch, *values: float) -> tuple[Action, str]:
    asked = search.ask()
    assert asked is not None
    named = dict(zip(OBJECTIVES, values, strict=True))
    decision = search.report(asked.trial_id, 1, named)
    return decision.action, decision.reason


def test_people_hear_what_a_trial_was_compared_with(url: str) -> None:
    with searching(url, AshaPruner) as search:
        assert reported(search, 0.9, 5.0)[0] is Action.CONTINUE
        assert reported(search, 0.8, 6.0) == (
            Action.PAUSE,
            "at rung 0 (step 1), accuracy 0.8, latency_ms 6: on Pareto front 2 and not "
            "among the best 1 in 3 of the 2 trials at this rung",
        )


def test_a_value_that_is_no_number_ends_the_trial(url: str) -> None:
    with searching(url, AshaPruner) as search:
        action, reason = reported(search, 0.9, math.nan)
        assert action is Action.PRUNE
        assert reason.startswith("at rung 0 (step 1), accuracy 0.9, latency_ms nan")


def test_a_report_of_some_objectives_alone_is_not_judged(url: str) -> None:
    with searching(url, AshaPruner) as search:
        asked = search.ask()
        assert asked is not None
        decision = search.report(asked.trial_id, 1, {"accuracy": 0.1})
        assert decision.action is Action.CONTINUE


def test_no_other_pruner_is_asked(url: str) -> None:
    from optuna.pruners import NopPruner

    with searching(url, NopPruner) as search:
        assert reported(search, 0.9, 1.0)[0] is Action.CONTINUE


def test_the_last_step_is_kept_where_no_curve_has_it(url: str) -> None:
    """Optuna stores no report of several objectives: where a trial waits, or ended, is noted."""
    with searching(url, AshaPruner) as search:
        ends = []
        for number, last_step in enumerate((3, 5, 2)):
            asked = search.ask()
            assert asked is not None
            for step in range(1, last_step + 1):
                decision = search.report(asked.trial_id, step, values_of(0))
            ends.append((asked.trial_id, decision.action, number))
        search.pause(ends[0][0])
        search.complete(ends[1][0], values_of(0))
        search.prune(ends[2][0])
        stored = [each.system_attrs for each in search.study.get_trials()]
    assert stored[0][PAUSED_KEY] == 3
    assert [each.get(LAST_STEP_KEY) for each in stored] == [None, 5, None]
