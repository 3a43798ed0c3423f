"""What each pruner with rungs of ours promises, whether its trials pause or end there."""

from __future__ import annotations

import math
import random
import warnings
from collections.abc import Callable
from functools import partial
from pathlib import Path

import optuna
import pytest
from optuna.pruners import BasePruner
from optuna.trial import TrialState

from tests.contract.search.halving_study import (
    N_STEPS,
    MakePruner,
    Player,
    ended,
    quality_of,
    searches,
)
from tests.databases import new_database
from tuner.config import Direction
from tuner.domain.messages import Action
from tuner.search.pruners.asha import AshaPruner
from tuner.search.pruners.freeze_thaw import FreezeThawPruner
from tuner.search.pruners.hyperband import AsyncHyperbandPruner

PROMOTING: dict[str, MakePruner] = {
    "asha": partial(AshaPruner, min_resource=1, reduction_factor=3),
    "hyperband": partial(AsyncHyperbandPruner, max_resource=N_STEPS),
    "hyperband-auto": AsyncHyperbandPruner,
    "freeze_thaw": FreezeThawPruner,
    "freeze_thaw-length": partial(FreezeThawPruner, max_resource=N_STEPS),
}
STOPPING: dict[str, MakePruner] = {
    "asha": partial(AshaPruner, min_resource=1, mode="stop"),
    "hyperband": partial(AsyncHyperbandPruner, max_resource=N_STEPS, mode="stop"),
    "hyperband-auto": partial(AsyncHyperbandPruner, mode="stop"),
}
ALL = {
    **{f"{name}, promote": each for name, each in PROMOTING.items()},
    **{f"{name}, stop": each for name, each in STOPPING.items()},
}

#: Those whose decisions follow from what is stored alone: a model is fitted when it is due, and
#: anew by whoever starts.
REPEATED = {name: each for name, each in ALL.items() if not name.startswith("freeze_thaw")}


def each_of(pruners: dict[str, MakePruner]) -> pytest.MarkDecorator:
    """`make check` tries the default alone; freeze-thaw fits a model hundreds of times."""
    cases = [pytest.param(each, id=name, marks=_marks(name)) for name, each in pruners.items()]
    return pytest.mark.parametrize("make_pruner", cases)


def _marks(name: str) -> list[pytest.MarkDecorator]:
    if name.startswith("freeze_thaw-length"):
        return [pytest.mark.nightly]  # By day: `freeze_thaw`, which learns the length.
    return [] if name.startswith("asha") else [pytest.mark.slow]


promoting = each_of(PROMOTING)
whichever = each_of(ALL)


@pytest.fixture
def url(tmp_path: Path) -> str:
    return new_database(tmp_path)


def best_of(n_trials: int) -> int:
    return max(range(n_trials), key=lambda number: quality_of(number, N_STEPS))


# -- who goes on -------------------------------------------------------------------------------


@promoting
def test_the_best_completes_and_nobody_repeats_a_step(make_pruner: MakePruner, url: str) -> None:
    player = Player(n_trials=30)
    with searches(url, make_pruner) as views:
        player.play(views)
        trials = player.end(views[0])
    assert ended(trials)
    assert len(player.seen) == len(set(player.seen)), "a step was done twice"
    assert len(player.seen) < 30 * N_STEPS / 2, "weak trials were trained to their ends"
    assert trials[best_of(30)].state is TrialState.COMPLETE
    assert player.paused


@whichever
def test_the_same_study_is_decided_the_same(make_pruner: MakePruner, tmp_path: Path) -> None:
    seen = []
    for name in ("first", "again"):
        (tmp_path / name).mkdir()
        player = Player(n_trials=20)
        with searches(new_database(tmp_path / name), make_pruner) as views:
            player.play(views)
        seen.append(player.seen)
    assert seen[0] == seen[1]


@pytest.mark.slow
@each_of(REPEATED)
def test_a_dispatcher_that_starts_anew_at_each_turn_decides_the_same(
    make_pruner: MakePruner, tmp_path: Path
) -> None:
    seen = []
    for name in ("one start", "many"):
        (tmp_path / name).mkdir()
        url, player, goes_on = new_database(tmp_path / name), Player(n_trials=14), True
        if name == "one start":
            with searches(url, make_pruner) as views:
                player.play(views)
        while name == "many" and goes_on:
            with searches(url, make_pruner) as views:
                goes_on = player.turn(views[0])
        seen.append(player.seen)
    assert seen[0] == seen[1]


@pytest.mark.slow
@promoting
def test_a_dispatcher_that_starts_anew_at_each_turn_loses_nothing(
    make_pruner: MakePruner, url: str
) -> None:
    player, goes_on = Player(n_trials=14), True
    while goes_on:
        with searches(url, make_pruner) as views:
            goes_on = player.turn(views[0])
    with searches(url, make_pruner) as views:
        trials = player.end(views[0])
    assert ended(trials)
    assert len(player.seen) == len(set(player.seen))
    assert TrialState.COMPLETE in {each.state for each in trials}


@pytest.mark.slow
@whichever
def test_three_dispatchers_take_no_trial_twice(make_pruner: MakePruner, url: str) -> None:
    player = Player(n_trials=30)
    with searches(url, make_pruner, n=3) as views:
        player.play(views)
        for each in views:
            each.sync()
        assert len({each.counts.n_paused for each in views}) == 1
        trials = player.end(views[0])
    assert ended(trials)
    assert len(player.seen) == len(set(player.seen))
    assert trials[best_of(30)].state is TrialState.COMPLETE


@whichever
@pytest.mark.parametrize("direction", list(Direction))
def test_the_direction_counts(make_pruner: MakePruner, url: str, direction: Direction) -> None:
    sign = 1.0 if direction is Direction.MAXIMIZE else -1.0
    player = Player(n_trials=30, quality=lambda number, step: sign * quality_of(number, step))
    with searches(url, make_pruner, direction=direction) as views:
        player.play(views)
        trials = player.end(views[0])
    assert trials[best_of(30)].state is TrialState.COMPLETE
    assert TrialState.PRUNED in {each.state for each in trials}


@promoting
def test_a_study_of_two_trials_has_a_winner(make_pruner: MakePruner, url: str) -> None:
    player = Player(n_trials=2)
    with searches(url, make_pruner) as views:
        player.play(views)
        trials = player.end(views[0])
    completed = [each.number for each in trials if each.state is TrialState.COMPLETE]
    assert completed
    assert max(map(player.paused.count, completed)) <= 1, "then it goes on to its end"


@pytest.mark.slow
@pytest.mark.parametrize("direction", list(Direction))
@pytest.mark.parametrize(
    "arguments",
    [
        {"min_resource": 1, "reduction_factor": 2},
        {"min_resource": 2, "reduction_factor": 3},
        {"min_resource": 1, "reduction_factor": 3, "min_early_stopping_rate": 1},
        {"min_resource": 1, "reduction_factor": 2, "bootstrap_count": 4},
    ],
    ids=lambda each: " ".join(map(str, each.values())),
)
def test_stopping_decides_like_optunas_pruner(
    arguments: dict[str, int], direction: Direction, url: str
) -> None:
    """Trials in turns, which skip steps, and report equal values now and then."""
    draw = random.Random(0)
    theirs = optuna.create_study(
        direction=direction.value, pruner=optuna.pruners.SuccessiveHalvingPruner(**arguments)
    )
    n_pruned = 0
    with searches(url, partial(AshaPruner, mode="stop", **arguments), direction=direction) as views:
        running: dict[int, tuple[optuna.Trial, int]] = {}
        for _ in range(400):
            if len(running) < 4:
                asked = views[0].ask()
                assert asked is not None
                running[asked.trial_id] = (theirs.ask(), 0)
            trial_id = draw.choice(list(running))
            expected, step = running[trial_id]
            step, value = step + draw.choice([1, 1, 1, 2, 5]), draw.randrange(20) / 20
            running[trial_id] = (expected, step)
            expected.report(value, step)
            is_pruned = views[0].report(trial_id, step, {"accuracy": value}).action is Action.PRUNE
            assert is_pruned == expected.should_prune(), (expected.number, step, value)
            if is_pruned:
                n_pruned += 1
                views[0].prune(trial_id)
                theirs.tell(expected, state=TrialState.PRUNED)
                del running[trial_id]
    assert n_pruned > 30


# -- what programs do --------------------------------------------------------------------------


@whichever
def test_a_value_that_is_no_number_stops_nobody_but_its_trial(
    make_pruner: MakePruner, url: str
) -> None:
    def quality(number: int, step: int) -> float:
        return math.nan if number % 4 == 0 and step >= 2 else quality_of(number, step)

    player = Player(n_trials=30, quality=quality)
    with searches(url, make_pruner) as views, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        player.play(views)
        trials = player.end(views[0])
    assert ended(trials)
    good = [each for each in range(30) if each % 4]
    best = max(good, key=lambda number: quality_of(number, N_STEPS))
    assert trials[best].state is TrialState.COMPLETE
    compared = [each for each in trials if each.system_attrs.get("tuner:first_rung") != 0]
    bad = [each for each in compared if each.number % 4 == 0]
    assert TrialState.COMPLETE not in {each.state for each in bad}


@whichever
def test_without_a_report_nothing_is_pruned(make_pruner: MakePruner) -> None:
    study = optuna.create_study(pruner=make_pruner())
    assert not study.ask().should_prune()


@whichever
def test_optuna_by_itself_runs_it(make_pruner: Callable[[], BasePruner]) -> None:
    """Nobody pauses there: who does not pass a rung is pruned."""
    study = optuna.create_study(
        direction="maximize", pruner=make_pruner(), sampler=optuna.samplers.RandomSampler(0)
    )

    def objective(trial: optuna.Trial) -> float:
        for step in range(1, N_STEPS + 1):
            trial.report(quality_of(trial.number, step), step)
            if trial.should_prune():
                raise optuna.TrialPruned
        return quality_of(trial.number, N_STEPS)

    study.optimize(objective, n_trials=31)
    states = [each.state for each in study.trials]
    assert TrialState.PRUNED in states
    assert states[best_of(31)] is TrialState.COMPLETE
    assert TrialState.FAIL not in states


@promoting
def test_without_checkpoints_trials_are_stopped(make_pruner: MakePruner, url: str) -> None:
    player = Player(n_trials=30)
    with searches(url, make_pruner) as views:
        assert views[0].stop_instead_of_pausing()
        player.play(views)
        trials = player.end(views[0])
    assert ended(trials)
    assert not player.paused
    assert trials[best_of(30)].state is TrialState.COMPLETE
