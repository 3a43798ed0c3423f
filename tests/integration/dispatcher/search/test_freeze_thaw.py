"""Trials in slices, on a virtual clock: a curve model decides who goes on."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path

import pytest
from optuna.trial import TrialState

from tests.integration.dispatcher.killing import Place, killed_at, places
from tests.integration.dispatcher.search.test_pausing import (
    LAST_STEP,
    assert_one_of_two_gets_what_waits,
    outcomes,
    quality_of,
    saving,
)
from tests.integration.dispatcher.world import Program, World
from tuner.domain.attempt import Outcome
from tuner.domain.messages import Action
from tuner.search.pruners.freeze_thaw import FreezeThawPruner
from tuner.search.rungs.promotion import Promotion
from tuner.store.records.recorder import Recorder

_PACE = "tuner:pace"


@pytest.fixture
def slicing(tmp_path: Path) -> Callable[..., World]:
    def make(program: Program, min_resource: int = 1, **terms: object) -> World:
        pruner = FreezeThawPruner(min_resource)
        return World(tmp_path, program, pruner=pruner, **{"n_trials": 12, **terms})  # type: ignore[arg-type]

    return make


def test_the_best_completes_and_a_pause_tells_its_numbers(slicing: Callable[..., World]) -> None:
    seen: list[tuple[int, int]] = []
    world = slicing(saving(seen=seen), n_devices=2)
    result = world.run()
    assert result.n_completed + result.n_pruned == 12
    assert len(seen) == len(set(seen)), "a step was done twice"
    assert len(seen) < 12 * LAST_STEP
    best = max(range(12), key=quality_of)
    assert world.stored_trials()[best].state is TrialState.COMPLETE
    verdicts = [each for worker in world.workers for each in worker.verdicts]
    reasons = [each.reason for each in verdicts if each.action is Action.PAUSE]
    assert all("at the end of its slice (step " in reason for reason in reasons)
    assert any("continuing is expected to better the best" in reason for reason in reasons)


def test_seconds_of_steps_are_measured_and_known_to_a_later_start(
    slicing: Callable[..., World],
) -> None:
    world = slicing(saving(), n_devices=1)
    world.turn_until(lambda: any(_PACE in each.system_attrs for each in world.stored_trials()))
    world.interrupt()
    assert world.run().is_interrupted
    known = [
        each.system_attrs[_PACE] for each in world.stored_trials() if _PACE in each.system_attrs
    ]
    # A step of the program takes a second of its clock.
    assert [of_step for of_step, _ in known] == pytest.approx([1.0] * len(known), abs=0.2)
    world.close()
    again = slicing(saving(), n_devices=1)
    promotion = again.search.scheduler
    assert promotion._pace.of_step(None) == pytest.approx(1.0, abs=0.2)
    assert promotion._pace.unit == "second"
    again.close()


def test_without_checkpoints_weak_trials_are_stopped_and_people_hear_once(
    slicing: Callable[..., World],
) -> None:
    world = slicing(saving(saves=False))
    result = world.run()
    assert Outcome.PAUSED.value not in outcomes(world)
    assert result.n_completed >= 1
    assert result.n_completed + result.n_pruned == 12
    assert sum("cannot be paused" in text for text in world.said) == 1


def test_a_program_that_is_shorter_than_a_slice_is_told_of_once(
    slicing: Callable[..., World],
) -> None:
    world = slicing(saving(), LAST_STEP + 1, n_trials=4)
    assert world.run().n_completed == 4
    told = [text for text in world.said if "not compared with others" in text]
    assert len(told) == 1
    assert "before the first rung at step 10" in told[0]


def test_nan_ends_its_trial_alone(slicing: Callable[..., World]) -> None:
    world = slicing(saving(lambda number: math.nan if number % 3 == 1 else number))
    result = world.run()
    assert result.n_completed + result.n_pruned == 12
    states = [each.state for each in world.stored_trials()]
    assert {states[number] for number in (1, 4, 7, 10)} == {TrialState.PRUNED}
    assert states[11] is TrialState.COMPLETE


def test_of_two_dispatchers_one_gets_a_trial_that_waits(slicing: Callable[..., World]) -> None:
    assert_one_of_two_gets_what_waits(slicing(saving(), n_trials=6, n_devices=1))


KILLED_AT = places(
    (Promotion, "pause", 2),
    (Promotion, "pause", 5),
    (Promotion, "take", 1),
    (Promotion, "take", 2),
    (Recorder, "lease", 4),
)


@pytest.mark.parametrize("where", KILLED_AT.values(), ids=KILLED_AT)
def test_killed_between_a_pause_and_its_end_nothing_is_lost(
    slicing: Callable[..., World], monkeypatch: pytest.MonkeyPatch, where: Place
) -> None:
    seen: list[tuple[int, int]] = []
    world = slicing(saving(seen=seen), n_devices=2)
    with killed_at(monkeypatch, *where):
        world.run()
    world.close()
    again = slicing(saving(seen=seen), n_devices=2)
    result = again.run()
    assert result.n_completed + result.n_pruned == 12
    assert result.n_completed >= 1
    # What is saved is not done again.
    assert len(seen) == len(set(seen))
    for trial in again.stored_trials():
        values = {trial.value, *trial.intermediate_values.values()}
        assert values == {quality_of(trial.number)}
