"""A sampler that raises errors: random suggestions take its place, up to a point."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import optuna
import pytest
from optuna.distributions import FloatDistribution
from optuna.samplers import RandomSampler

from tests.integration.dispatcher.world import World, completes
from tuner.search.samplers.failure_guard import MOST_IN_A_ROW, SamplerGuard

MakeWorld = Callable[..., World]


class Failing(RandomSampler):
    """A sampler of another package, with a mistake in it.

    Args:
        where: The method that fails.
        every: It fails for one trial in so many.
    """

    def __init__(self, where: str, every: int = 1) -> None:
        super().__init__(seed=0)
        self._where, self._every = where, every

    def _fail(self, where: str, number: int) -> None:
        if where == self._where and number % self._every == 0:
            raise ZeroDivisionError("a mistake")

    def before_trial(self, study: Any, trial: Any) -> None:
        self._fail("before_trial", trial.number)

    def infer_relative_search_space(self, study: Any, trial: Any) -> Any:
        self._fail("infer_relative_search_space", trial.number)
        return super().infer_relative_search_space(study, trial)

    def sample_relative(self, study: Any, trial: Any, search_space: Any) -> Any:
        self._fail("sample_relative", trial.number)
        return super().sample_relative(study, trial, search_space)

    def sample_independent(self, study: Any, trial: Any, name: str, distribution: Any) -> Any:
        self._fail("sample_independent", trial.number)
        return super().sample_independent(study, trial, name, distribution)

    def after_trial(self, study: Any, trial: Any, state: Any, values: Any) -> None:
        self._fail("after_trial", trial.number)


SUGGESTING = (
    "before_trial",
    "infer_relative_search_space",
    "sample_relative",
    "sample_independent",
)


@pytest.mark.parametrize("where", SUGGESTING)
def test_one_that_fails_now_and_then_does_not_end_the_study(
    make_world: MakeWorld, where: str
) -> None:
    n_trials = 3 * MOST_IN_A_ROW
    world = make_world(completes, n_trials=n_trials, sampler=Failing(where, every=2))
    result = world.run()
    assert (result.n_completed, result.is_hopeless) == (n_trials, False)
    told = [said for said in world.said if "Failing raised ZeroDivisionError: a mistake" in said]
    assert len(told) == 1


@pytest.mark.parametrize("where", SUGGESTING)
def test_one_that_always_fails_ends_the_study_once_its_trials_are_finished(
    make_world: MakeWorld, where: str
) -> None:
    world = make_world(completes, n_trials=100, sampler=Failing(where))
    result = world.run()
    assert result.is_hopeless
    assert "the sampler Failing failed for 10 trials in a row" in result.reason
    assert "ZeroDivisionError: a mistake" in result.reason
    assert result.n_completed == MOST_IN_A_ROW
    assert set(world.stored_states()) == {"COMPLETE"}


def test_one_that_fails_after_its_trials_goes_on(make_world: MakeWorld) -> None:
    world = make_world(completes, n_trials=2 * MOST_IN_A_ROW, sampler=Failing("after_trial"))
    assert world.run().n_completed == 2 * MOST_IN_A_ROW


def suggestions(where: str) -> list[float]:
    sampler = Failing(where)
    SamplerGuard(sampler, lambda: None)
    study = optuna.create_study(sampler=sampler)
    return [study.ask({"x": FloatDistribution(0, 1)}).params["x"] for _ in range(6)]


@pytest.mark.parametrize("where", SUGGESTING)
def test_random_suggestions_in_its_place_are_the_same_again(where: str) -> None:
    assert suggestions(where) == suggestions(where)
    assert len(set(suggestions(where))) == 6
