"""Members of a population that fail for good: something takes their place, and not for ever."""

from __future__ import annotations

import signal
from collections.abc import Callable
from typing import Any

import pytest
from optuna.trial import TrialState

from tests.integration.dispatcher.climbers import LAST_STEP, check_states, climbing, pbt
from tests.integration.dispatcher.killing import Place, killed_at, places
from tests.integration.dispatcher.world import FakeWorker, Program, World
from tests.populations import check_books, origins
from tuner.checkpoints.hand_over import StateCopies
from tuner.domain.attempt import Cause, Outcome
from tuner.search.population.population import N_FAILURES, Population
from tuner.search.population.replacement import Replacer
from tuner.store.optuna_tables.storage import BufferedStorage
from tuner.store.records.population_rows import Replacement
from tuner.store.records.recorder import Recorder


def failing(
    is_bad: Callable[[int], bool],
    after: int = 0,
    outcome: Outcome = Outcome.FAILED,
    cause: Cause = Cause.EXCEPTION,
) -> Program:
    """Climbs; trials with certain numbers fail after so many reports of an attempt."""

    def program(worker: FakeWorker) -> None:
        if not is_bad(worker.trial_number):
            return climbing()(worker)
        # Never twice in the same words: it is not known that the next one fails too.
        words = f"ValueError: {chr(ord('a') + worker.trial_number)}"

        def fail() -> None:
            worker.fail(words, outcome, cause)

        if not after:
            worker.later(0.1, worker.hello)
            worker.later(0.2, fail)
            return None
        report, n_reports = worker.report, 0

        def report_or_fail(step: int, value: float) -> None:
            nonlocal n_reports
            n_reports += 1
            if n_reports <= after:
                report(step, value)
            if n_reports == after:
                fail()

        worker.report = report_or_fail  # type: ignore[method-assign, assignment]
        return climbing()(worker)

    return program


def replacement_of(world: World, number: int) -> int:
    (found,) = [
        n for n, origin in origins(world.stored_trials()).items() if origin.replaces == number
    ]
    return found


def test_a_copy_of_a_good_member_takes_the_place(populated: Callable[..., World]) -> None:
    world = populated(failing(lambda number: number == 1, after=5))
    world.run()
    trials = world.stored_trials()
    check_books(trials, population=4)
    check_states(trials)
    assert trials[1].state is TrialState.FAIL
    copy = replacement_of(world, 1)
    origin = origins(trials)[copy]
    assert origin.parent not in (None, 1)
    assert origin.step > 0
    told = (
        f"Trial 1 has failed for good: a copy of trial {origin.parent} at step {origin.step} takes"
    )
    assert len([text for text in world.said if text.startswith(told)]) == 1


def test_before_anything_is_saved_it_is_a_new_configuration(
    populated: Callable[..., World],
) -> None:
    world = populated(failing(lambda number: number == 1))
    world.run()
    trials = world.stored_trials()
    check_books(trials, population=4)
    check_states(trials)
    new = replacement_of(world, 1)
    assert (origins(trials)[new].parent, origins(trials)[new].step) == (None, 0)
    assert trials[new].params["x"] not in {trials[number].params["x"] for number in range(4)}
    assert min(trials[new].intermediate_values) == 1
    (told,) = [text for text in world.said if text.startswith("Trial 1 has failed for good")]
    assert "a new configuration takes its place" in told


def test_retries_come_first(populated: Callable[..., World]) -> None:
    world = populated(failing(lambda number: number == 1, after=4), retries=2)
    world.run()
    ends = [outcome for attempt, outcome in world.endings if attempt.startswith("1.")]
    assert ends == ["failed"] * 3
    check_books(world.stored_trials(), population=4)


def test_what_cannot_work_is_replaced_too(populated: Callable[..., World]) -> None:
    out_of_memory = (Outcome.OUT_OF_MEMORY, Cause.DEVICE_MEMORY)
    world = populated(failing(lambda number: number == 2, 4, *out_of_memory))
    world.run()
    trials = world.stored_trials()
    assert trials[2].constraints
    check_books(trials, population=4)
    assert origins(trials)[replacement_of(world, 2)].parent is not None


def test_a_member_that_was_given_up_and_fails_instead_is_replaced_once(
    populated: Callable[..., World],
) -> None:
    told_to_end: list[int] = []

    def program(worker: FakeWorker) -> None:
        climbing()(worker)
        finish, leave = worker.finish, worker.exit

        def die_instead(outcome: Outcome, **fields: Any) -> None:
            if outcome is Outcome.PRUNED and not told_to_end:
                told_to_end.append(worker.trial_number)
                worker.exit = lambda _: leave(-signal.SIGSEGV)  # type: ignore[method-assign, misc, assignment]
                return
            finish(outcome, **fields)

        worker.finish = die_instead  # type: ignore[method-assign]

    world = populated(program)
    world.run()
    trials = world.stored_trials()
    (number,) = told_to_end
    assert trials[number].state is TrialState.FAIL
    check_books(trials, population=4)
    check_states(trials)
    assert not list(world.files.root.glob("trial-*/checkpoints.handed-on*"))


@pytest.mark.parametrize("after", [0, 2])
def test_a_place_where_all_fail_stays_empty(populated: Callable[..., World], after: int) -> None:
    """Those in the other places end as ever."""
    world = populated(failing(lambda number: number not in (0, 2, 3), after))
    world.run()
    trials = world.stored_trials()
    failed = [each for each in trials if each.state is TrialState.FAIL]
    assert len(failed) == N_FAILURES
    check_books(trials, population=4, n_empty=1)
    (told,) = [text for text in world.said if "no other trial takes it" in text]
    assert told.startswith(f"Trial {failed[-1].number} has failed for good, as the 2 before it")


@pytest.mark.parametrize("after", [0, 4])
def test_a_program_that_always_fails_ends_without_a_budget(
    populated: Callable[..., World], after: int
) -> None:
    world = populated(failing(lambda number: True, after))
    result = world.run()
    assert (result.n_completed, result.n_failed) == (0, 4 * N_FAILURES)
    assert result.reason == "the population has come to its end"


def test_a_program_that_fails_alike_costs_three_attempts(populated: Callable[..., World]) -> None:
    def program(worker: FakeWorker) -> None:
        worker.later(0.1, worker.hello)
        worker.later(0.2 + worker.trial_number / 10, lambda: worker.fail("ValueError: boom"))

    world = populated(program)
    result = world.run()
    assert (result.is_hopeless, result.n_failed) == (True, 3)
    world.close()
    corrected = populated()
    corrected.run()
    trials = corrected.stored_trials()
    assert [each.state for each in trials].count(TrialState.FAIL) == 3
    check_books(trials, population=4)


def test_the_budget_of_trials_bounds_them_too(populated: Callable[..., World]) -> None:
    world = populated(failing(lambda number: number == 1, after=5), n_trials=4, budget=None)
    world.run()
    trials = world.stored_trials()
    assert len(trials) == 4
    assert trials[1].state is TrialState.FAIL


def test_once_copies_are_not_understood_nobody_is_replaced(
    populated: Callable[..., World],
) -> None:
    program = failing(lambda number: number == 1, after=LAST_STEP - 1)
    world = populated(program)
    world.turn_until(lambda: world.search.counts.by_state()[TrialState.RUNNING] == 4)
    world.search.stop_instead_of_pausing()
    world.run()
    states = world.stored_states()
    assert sorted(states) == ["COMPLETE"] * 3 + ["FAIL"]


KILLED_AT = places(
    (Population, "_replace_failed", 1),
    (Replacer, "find_for_failed", 1),
    (StateCopies, "take", 1),
    (BufferedStorage, "begin_trial", 5),
    (StateCopies, "give", 1),
    (Recorder, "lease", 5),
)


@pytest.mark.parametrize("where", KILLED_AT.values(), ids=KILLED_AT)
def test_killed_anywhere_a_failed_member_is_replaced_once(
    populated: Callable[..., World], monkeypatch: pytest.MonkeyPatch, where: Place
) -> None:
    program = failing(lambda number: number == 1, after=4)
    world = populated(program)
    with killed_at(monkeypatch, *where):
        world.run()
    world.close()
    again = populated(program)
    again.run()
    trials = again.stored_trials()
    assert trials[1].state is TrialState.FAIL
    check_books(trials, population=4)
    check_states(trials)
    assert replacement_of(again, 1)
    assert not list(again.files.root.glob("trial-*/checkpoints.handed-on*"))


@pytest.mark.parametrize("n_devices", [1, 2])
def test_a_paused_member_that_is_weak_by_then_is_not_started_again(
    populated: Callable[..., World], n_devices: int
) -> None:
    seen: list[tuple[int, int]] = []
    world = populated(climbing(seen=seen), n_devices=n_devices, pruner=pbt(quantile=0.5))
    world.run()
    trials = world.stored_trials()
    check_books(trials, population=4)
    check_states(trials)
    at_once = [text for text in world.said if "does not continue: at step" in text]
    assert at_once
    for text in at_once:
        number, step = int(text.split()[1]), int(text.split("at step ")[1].split(",")[0])
        assert max(trials[number].intermediate_values) == step
        noted = Replacement.of(trials[number].system_attrs)
        assert noted is not None
        assert text.endswith(f"{noted.why.removeprefix('it was paused, and did not continue: ')}.")
        last = [each for each in world.ended if each.attempt.trial_number == number][-1]
        assert last.ending.outcome is Outcome.PAUSED
