"""A population: weak members end, copies of strong ones go on from their checkpoints."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from optuna.trial import TrialState

from tests.integration.dispatcher.climbers import (
    INTERVAL,
    LAST_STEP,
    check_states,
    climbing,
    pbt,
    write_state,
)
from tests.integration.dispatcher.killing import killed_at, places
from tests.integration.dispatcher.world import FakeWorker, World
from tests.populations import check_books, origins
from tuner.checkpoints.hand_over import StateCopies
from tuner.checkpoints.layout import IDENTITY_NAME
from tuner.checkpoints.retention import RetentionRule
from tuner.domain.messages import StatesDamaged
from tuner.search.population.population import Population
from tuner.store.optuna_tables.storage import BufferedStorage
from tuner.store.records.recorder import Recorder


def test_weak_members_are_replaced_by_copies_that_go_on(populated: Callable[..., World]) -> None:
    world = populated()
    result = world.run()
    trials = world.stored_trials()
    check_books(trials, population=4)
    check_states(trials)
    assert origins(trials), "somebody was replaced"
    assert result.reason == "the population has come to its end"
    completed = [each.value for each in trials if each.state is TrialState.COMPLETE]
    best_alone = max(each.params["x"] for each in trials[:4]) * LAST_STEP
    assert max(completed) >= best_alone * (1 - 1e-9)


def test_the_reason_says_what_takes_whose_place(populated: Callable[..., World]) -> None:
    world = populated()
    world.run()
    copies = origins(world.stored_trials())
    told = [each for each in world.ended if "takes its place" in each.ending.detail]
    assert sorted(each.attempt.trial_number for each in told) == sorted(
        origin.replaces for origin in copies.values()
    )
    first = told[0]
    (origin,) = [o for o in copies.values() if o.replaces == first.attempt.trial_number]
    assert f"a copy of trial {origin.parent} at step {origin.step} takes its place, with x " in (
        first.ending.detail
    )
    assert "is among the weakest 0.25 of 4 members" in first.ending.detail


@pytest.mark.parametrize("n_devices", [1, 3])
def test_with_fewer_devices_members_take_turns(
    populated: Callable[..., World], n_devices: int
) -> None:
    seen: list[tuple[int, int]] = []
    world = populated(climbing(seen=seen), n_devices=n_devices)
    world.run()
    trials = world.stored_trials()
    check_books(trials, population=4)
    check_states(trials)
    assert len(seen) == len(set(seen)), "a step was done twice"
    assert origins(trials)
    # Nobody is at its third comparison while somebody has not been at its first.
    first = {number: seen.index((number, INTERVAL)) for number in range(4)}
    assert max(first.values()) < seen.index(next(e for e in seen if e[1] == 2 * INTERVAL + 1))


def test_nobody_knows_the_length_before_one_has_completed(populated: Callable[..., World]) -> None:
    world = populated(pruner=pbt(max_resource="auto"), n_devices=1)
    world.run()
    trials = world.stored_trials()
    check_states(trials)
    assert trials[0].state is TrialState.COMPLETE
    assert max(trials[0].intermediate_values) == LAST_STEP


def test_programs_that_save_nothing_go_on_and_people_hear_once(
    populated: Callable[..., World],
) -> None:
    world = populated(climbing(saves=False))
    world.run()
    trials = world.stored_trials()
    assert [each.state for each in trials] == [TrialState.COMPLETE] * 4
    (text,) = [text for text in world.said if "pbt needs" in text]
    assert "no top trial has a checkpoint" in text


def test_programs_that_do_not_go_on_from_a_copy_spoil_no_curve(
    populated: Callable[..., World],
) -> None:
    world = populated(climbing(counts_on=False))
    world.run()
    trials = world.stored_trials()
    copies = origins(trials)
    assert copies
    assert len([text for text in world.said if "is a copy and reports step 1" in text]) == 1
    for number, origin in copies.items():
        assert not origin.is_sure
        assert not trials[number].intermediate_values
    assert {each.state for each in trials} == {TrialState.COMPLETE, TrialState.PRUNED}


def test_a_copy_that_finds_its_checkpoint_damaged_is_right_to_start_again(
    populated: Callable[..., World],
) -> None:
    inner = climbing(counts_on=False)

    def program(worker: FakeWorker) -> None:
        inner(worker)
        if worker.trial_number >= 4:
            found = StatesDamaged(attempt_id=worker.id, paths=("step-3.pt",), resumed_from=None)
            worker.later(0.2, lambda: worker.say(found))

    world = populated(program)
    world.run()
    copies = origins(world.stored_trials())
    assert copies
    assert not any("is a copy and reports" in text for text in world.said)
    assert all(origin.step == 0 and origin.is_sure for origin in copies.values())


def test_a_copy_whose_checkpoint_is_gone_begins_anew_and_says_so(
    populated: Callable[..., World],
) -> None:
    world = populated(n_devices=3)
    copies = StateCopies(world.files)
    world.turn_until(lambda: bool(list(world.files.root.glob("trial-*/checkpoints.handed-on"))))
    for number in range(4):
        copies.drop(number)
    world.run()
    trials = world.stored_trials()
    check_states(trials)
    anew = [number for number, origin in origins(trials).items() if not origin.step]
    assert anew
    for number in anew:
        assert min(trials[number].intermediate_values) == 1
        told = [text for text in world.said if text.startswith(f"Trial {number} starts from the")]
        assert len(told) == 1


def test_states_of_older_trials_of_the_same_numbers_are_neither_copied_nor_removed(
    populated: Callable[..., World],
) -> None:
    """The database was restored from a backup, and the members have run on another host."""
    world = populated(n_devices=4)

    def are_of_others() -> None:
        for file in world.files.root.glob(f"trial-*/{IDENTITY_NAME}"):
            content = json.loads(file.read_text())
            begun_at = "2020-01-01T00:00:00.000000"
            file.write_text(json.dumps({**content, "begun_at": begun_at}))

    copies_at = "trial-*/checkpoints.handed-on"
    world.turn_until(lambda: len(list(world.files.root.glob("trial-*/checkpoints/*"))) >= 4)
    assert not list(world.files.root.glob(copies_at))
    are_of_others()
    world.run()
    trials = world.stored_trials()
    assert not [each for each in origins(trials).values() if each.parent in range(4) and each.step]
    assert not list(world.files.root.glob(copies_at))


def test_the_budget_of_trials_bounds_the_copies(populated: Callable[..., World]) -> None:
    world = populated(n_trials=5, budget=None)
    world.run()
    trials = world.stored_trials()
    check_books(trials, population=4)
    assert len(trials) == 5


def test_a_value_that_is_no_number_is_the_weakest(populated: Callable[..., World]) -> None:
    """Nobody copies it, either."""

    def program(worker: FakeWorker) -> None:
        if worker.trial_number != 1:
            return climbing()(worker)
        report = worker.report
        worker.report = lambda step, value: report(step, float("nan"))  # type: ignore[method-assign]
        return climbing()(worker)

    world = populated(program)
    world.run()
    trials = world.stored_trials()
    copies = origins(trials)
    assert trials[1].state is TrialState.PRUNED
    assert 1 in {origin.replaces for origin in copies.values()}
    assert 1 not in {origin.parent for origin in copies.values()}


def test_checkpoints_of_those_that_ended_may_be_removed(populated: Callable[..., World]) -> None:
    """What a copy is to begin from is not among them."""
    world = populated(pruner=pbt(quantile=0.5), retention=RetentionRule(n_best=1))
    world.run()
    world.dispatcher.keep_house()
    trials = world.stored_trials()
    assert origins(trials)
    check_books(trials, population=4)
    check_states(trials)
    kept = [number for number in range(len(trials)) if world.files.has_checkpoint(number)]
    assert world.search.best is not None
    assert kept == [world.search.best.number]


def test_what_is_enqueued_is_of_the_population(populated: Callable[..., World]) -> None:
    world = populated()
    for x in (0.25, 0.75):
        world.search.study.enqueue_trial({"x": x})
    world.run()
    trials = world.stored_trials()
    check_books(trials, population=4)
    assert [trials[number].params["x"] for number in range(2)] == [0.25, 0.75]


def test_a_copy_that_fails_goes_on_from_its_own_checkpoint(populated: Callable[..., World]) -> None:
    failed: list[int] = []

    def program(worker: FakeWorker) -> None:
        is_copy = worker.trial_number >= 4
        if not is_copy or worker.trial_number in failed:
            return climbing()(worker)
        failed.append(worker.trial_number)
        report = worker.report

        def report_or_fail(step: int, value: float) -> None:
            report(step, value)
            if step % 2 == 0:
                worker.report = lambda *_: None  # type: ignore[method-assign]
                worker.fail()

        worker.report = report_or_fail  # type: ignore[method-assign, assignment]
        return climbing()(worker)

    world = populated(program, retries=1)
    world.run()
    trials = world.stored_trials()
    assert failed
    check_books(trials, population=4)
    check_states(trials)


def test_a_member_that_completes_in_place_of_ending_is_not_replaced(
    populated: Callable[..., World],
) -> None:
    """Some programs do not ask whether they should end."""

    def program(worker: FakeWorker) -> None:
        folder = Path(worker.request.assign.checkpoint_dir)
        x = float(worker.request.assign.params["x"])

        def step(number: int) -> None:
            if number > LAST_STEP:
                worker.complete(x * LAST_STEP)
                return
            write_state(folder, number, x * number)
            worker.report(number, x * number)
            worker.later(1.0, lambda: step(number + 1))

        worker.later(0.1, worker.hello)
        worker.later(0.5, lambda: step(1))

    world = populated(program)
    world.run()
    trials = world.stored_trials()
    assert [each.state for each in trials] == [TrialState.COMPLETE] * 4
    assert not list(world.files.root.glob("trial-*/checkpoints.handed-on*"))


# -- accidents ---------------------------------------------------------------------------------


def test_ctrl_c_leaves_the_population_to_the_next_start(
    populated: Callable[..., World],
) -> None:
    seen: list[tuple[int, int]] = []
    world = populated(climbing(seen=seen), n_devices=2)
    world.turn(9.0)
    world.interrupt()
    assert world.run().is_interrupted
    world.close()
    again = populated(climbing(seen=seen), n_devices=2)
    again.run()
    trials = again.stored_trials()
    check_books(trials, population=4)
    check_states(trials)
    assert len(seen) == len(set(seen)), "a step was done twice"


#: Where it is killed: what is called, for which time, and whether it was still done.
KILLED_AT = places(
    (StateCopies, "take", 1),
    (StateCopies, "take", 2),
    (Population, "_close_doom", 1),
    (BufferedStorage, "begin_trial", 5),
    (BufferedStorage, "begin_trial", 6),
    (StateCopies, "give", 1),
    (StateCopies, "give", 2),
    (Recorder, "lease", 5),
)


@pytest.mark.parametrize("where", KILLED_AT.values(), ids=KILLED_AT)
def test_killed_anywhere_nothing_is_lost_and_nobody_replaced_twice(
    populated: Callable[..., World],
    monkeypatch: pytest.MonkeyPatch,
    where: tuple[type, str, int, bool],
) -> None:
    world = populated(pruner=pbt(quantile=0.5))
    with killed_at(monkeypatch, *where):
        world.run()
    world.close()
    again = populated(pruner=pbt(quantile=0.5))
    again.run()
    trials = again.stored_trials()
    assert origins(trials)
    check_books(trials, population=4)
    check_states(trials)
    assert not list(again.files.root.glob("trial-*/checkpoints.handed-on*"))
