"""What a population promises, however many dispatchers share it, without any of their loops."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import optuna
import pytest
from optuna.trial import FrozenTrial, TrialState

from tests.contract.search.halving_study import searches
from tests.databases import new_database
from tests.populations import check_books, origins
from tests.unit.checkpoints.test_scan import save
from tuner.checkpoints.layout import newest_whole, step_of
from tuner.checkpoints.paths import StudyFiles
from tuner.config import Direction
from tuner.domain.messages import Action
from tuner.search.population.pbt import PbtPruner
from tuner.search.study import StudySearch

N_STEPS, INTERVAL, POPULATION = 12, 3, 6

Quality = Callable[[int, int], float]


def pbt() -> PbtPruner:
    return PbtPruner(population=POPULATION, interval=INTERVAL, quantile=0.34, max_resource=N_STEPS)


def by_number(number: int, step: int) -> float:
    """In no order, and ever better."""
    return number * 7 % 31 + step / 100


class Trainer:
    """Trains what it is given, a turn of one view after the other, with real files.

    Args:
        folder: Of the files.
        quality: Of a trial, by its number and step.
        fails_at: By number: the step that a trial never comes to.
    """

    def __init__(
        self,
        folder: Path,
        quality: Quality = by_number,
        fails_at: Mapping[int, int] | None = None,
    ) -> None:
        self.files = StudyFiles(folder=folder, study="study")
        self._quality = quality
        self._fails_at = fails_at or {}
        #: Trial and step, in order.
        self.seen: list[tuple[int, int]] = []

    def play(self, views: Sequence[StudySearch]) -> list[FrozenTrial]:
        for view in views:
            view.copy_states(self.files)
        while any([self.turn(view) for view in views]):
            pass
        views[0].sync()
        return views[0].study.get_trials()

    def turn(self, view: StudySearch) -> bool:
        """Begins or resumes a member and trains it as far as it may; False where none is left."""
        view.sync()
        asked = view.resume()
        if asked is None and not view.is_exhausted:
            asked = view.ask()
        if asked is None:
            return False
        assert not view.scheduler.hand_over(asked.trial_id)
        folder = self.files.checkpoints(asked.number)
        newest = newest_whole(folder)
        begun_at = 0 if newest is None else step_of(newest)
        for step in range(begun_at + 1, N_STEPS + 1):
            if step == self._fails_at.get(asked.number):
                view.fail(asked.trial_id)
                break
            self.seen.append((asked.number, step))
            folder.mkdir(parents=True, exist_ok=True)
            save(folder, step, at_s=1000.0 + len(self.seen))
            values = {"accuracy": self._quality(asked.number, step)}
            match view.report(asked.trial_id, step, values).action:
                case Action.PAUSE:
                    view.pause(asked.trial_id)
                    break
                case Action.PRUNE:
                    view.prune(asked.trial_id)
                    break
        else:
            view.complete(asked.trial_id, {"accuracy": self._quality(asked.number, N_STEPS)})
        view.study._storage.flush()  # type: ignore[attr-defined]
        return True


@pytest.mark.parametrize("n_dispatchers", [1, 3])
def test_each_weak_member_has_one_copy(tmp_path: Path, n_dispatchers: int) -> None:
    trainer = Trainer(tmp_path)
    with searches(new_database(tmp_path), pbt, n=n_dispatchers) as views:
        trials = trainer.play(views)
    check_books(trials, population=POPULATION)
    assert origins(trials)
    assert len(trainer.seen) == len(set(trainer.seen)), "a step was done twice"


@pytest.mark.parametrize("n_dispatchers", [1, 3])
def test_what_fails_for_good_is_replaced_once(tmp_path: Path, n_dispatchers: int) -> None:
    # One has saved nothing, and nobody before it; the others come to their first comparison.
    trainer = Trainer(tmp_path, fails_at={0: 1, 2: INTERVAL + 1, 4: INTERVAL + 2})
    with searches(new_database(tmp_path), pbt, n=n_dispatchers) as views:
        trials = trainer.play(views)
    check_books(trials, population=POPULATION)
    failed = [each.number for each in trials if each.state is TrialState.FAIL]
    assert 0 in failed
    assert len(failed) > 1
    parents = {origin.replaces: origin.parent for origin in origins(trials).values()}
    assert parents[0] is None
    assert all(parents[number] is not None for number in failed[1:])


def test_a_paused_member_that_is_weak_trains_no_step_more(tmp_path: Path) -> None:
    trainer = Trainer(tmp_path)
    with searches(new_database(tmp_path), pbt) as views:
        trials = trainer.play(views)
    weak = [each for each in trials if each.state is TrialState.PRUNED]
    assert weak
    assert all(max(each.intermediate_values) % INTERVAL == 0 for each in weak)


@pytest.mark.parametrize("direction", list(Direction))
def test_copies_are_of_the_better_ones(tmp_path: Path, direction: Direction) -> None:
    sign = 1.0 if direction is Direction.MAXIMIZE else -1.0
    trainer = Trainer(tmp_path, lambda number, step: sign * by_number(number, step))
    with searches(new_database(tmp_path), pbt, direction=direction) as views:
        trials = trainer.play(views)
    assert origins(trials)
    for origin in origins(trials).values():
        assert origin.parent is not None
        assert by_number(origin.parent, 0) > by_number(origin.replaces, 0)


@pytest.mark.slow
def test_a_dispatcher_that_starts_anew_at_each_turn_decides_the_same(tmp_path: Path) -> None:
    seen = []
    for name in ("one start", "many"):
        (tmp_path / name).mkdir()
        url, trainer = new_database(tmp_path / name), Trainer(tmp_path / name)
        goes_on = name == "many"
        while goes_on:
            with searches(url, pbt) as (view,):
                view.copy_states(trainer.files)
                goes_on = trainer.turn(view)
        if name == "one start":
            with searches(url, pbt) as views:
                trainer.play(views)
        seen.append(trainer.seen)
    assert seen[0] == seen[1]


def test_optuna_by_itself_prunes_nobody() -> None:
    study = optuna.create_study(pruner=pbt(), sampler=optuna.samplers.RandomSampler(0))

    def objective(trial: optuna.Trial) -> float:
        for step in range(1, N_STEPS + 1):
            trial.report(by_number(trial.number, step), step)
            if trial.should_prune():
                raise optuna.TrialPruned
        return by_number(trial.number, N_STEPS)

    study.optimize(objective, n_trials=8)
    assert {each.state for each in study.trials} == {TrialState.COMPLETE}
