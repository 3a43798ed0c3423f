"""The end of a budget of time where most trials are pruned early."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.integration.dispatcher.search.test_pausing import saving
from tests.integration.dispatcher.world import World
from tuner.domain.budget import Budget
from tuner.search.pruners.asha import AshaPruner
from tuner.store.schema.models import AttemptRow

LIMIT_S = 90.0
#: Of nine steps, a second each, and what a start takes.
WHOLE_S = 10.0
#: A trial that is pruned after its first step.
PRUNED_S = 1.5


def stopping(folder: Path, limit_s: float) -> World:
    """Each fifth trial is the best so far and is trained to its end, the others are pruned."""
    pruner = AshaPruner(min_resource=1, reduction_factor=3, mode="stop")
    budget = Budget(time_s=limit_s)
    program = saving(lambda number: float(number if number % 5 == 0 else -number))
    return World(folder, program, pruner=pruner, n_devices=1, budget=budget)


@pytest.fixture
def ended(tmp_path: Path) -> tuple[World, float]:
    """A study that has spent its time, and when it began."""
    world = stopping(tmp_path, LIMIT_S)
    start_s = world.now_s
    result = world.run()
    assert result.n_completed >= 3, "it is known how long a training takes"
    assert result.n_pruned > result.n_completed
    return world, start_s


def test_trials_that_may_be_pruned_begin_until_little_is_left(
    ended: tuple[World, float],
) -> None:
    world, start_s = ended
    begun_at = [row.leased_at for row in world.rows(AttemptRow)]
    left_s = LIMIT_S - (max(begun_at) - min(begun_at)).total_seconds()
    assert PRUNED_S <= left_s < WHOLE_S, "a whole training would not have fit"
    assert world.now_s - start_s <= LIMIT_S + WHOLE_S, "nothing begins after the limit"


def test_a_later_start_knows_how_long_pruned_trials_take(
    ended: tuple[World, float], tmp_path: Path
) -> None:
    world, start_s = ended
    spent_s = world.now_s - start_s
    again = stopping(tmp_path, spent_s + PRUNED_S + 2.0)
    again.run()
    assert again.workers, "a whole training would not have fit, a pruned one does"
    later = stopping(tmp_path, spent_s)
    later.run()
    assert later.workers == []
