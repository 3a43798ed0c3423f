"""Early values that mislead: with a checked order a study still finds the best trials."""

from __future__ import annotations

import math
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

import pytest
from optuna.trial import FrozenTrial, TrialState

from tests.contract.search.halving_study import N_STEPS, MakePruner, Player, quality_of, searches
from tests.databases import new_database
from tuner.domain.messages import Action
from tuner.queries.locate import StoredStudy
from tuner.queries.results.rung_trust import read_rung_trust, read_witness_step
from tuner.queries.status import read_status
from tuner.search.pruners.asha import AshaPruner
from tuner.search.rungs.order.stored_trust import (
    TRUST_KEY,
    StoredTrust,
    last_open_step,
    trust_text,
)
from tuner.search.rungs.order.watch import WITNESS_KEY
from tuner.search.study import StudySearch
from tuner.store.connection.database import open_database
from tuner.terminal.studies import status_text
from tuner.terminal.why import explain

N_TRIALS = 40
MODES = ("stop", "promote")


def reversed_until(last: int, number: int, step: int) -> float:
    """Until a step the best looks worst."""
    return quality_of(number, step) if step > last else 1.0 - quality_of(number, step) / 100


def checked(mode: str, *, check_order: bool = True) -> MakePruner:
    return partial(AshaPruner, min_resource=1, mode=mode, check_order=check_order)


def play(
    url: str, make_pruner: MakePruner, last: int, n_views: int = 1, n_steps: int = N_STEPS
) -> list[FrozenTrial]:
    """A study whose early order is reversed until a step; gives its trials."""
    player = Player(n_trials=N_TRIALS, n_steps=n_steps, quality=partial(reversed_until, last))
    with searches(url, make_pruner, n_views) as views:
        player.play(views)
        return player.end(views[0])


def trust_in(url: str) -> StoredTrust:
    database = open_database(url)
    with database.engine.connect() as connection:
        found = read_rung_trust(connection, 1)
    database.close()
    assert found is not None
    return found


def best_completed(trials: list[FrozenTrial]) -> float:
    return max(each.values[0] for each in trials if each.state is TrialState.COMPLETE)


@pytest.fixture
def url(tmp_path: Path) -> str:
    return new_database(tmp_path)


@pytest.mark.parametrize("mode", MODES)
def test_what_a_liar_hides_is_found(mode: str, tmp_path: Path) -> None:
    found = []
    for name, is_checked in (("plain", False), ("checked", True)):
        (tmp_path / name).mkdir()
        url = new_database(tmp_path / name)
        found.append(best_completed(play(url, checked(mode, check_order=is_checked), last=2)))
    assert found[0] < found[1]
    # Of 31 different qualities one of the best three.
    assert found[1] >= 28


@pytest.mark.parametrize("mode", MODES)
def test_a_study_says_which_rung_cannot_be_trusted(mode: str, url: str) -> None:
    play(url, checked(mode), last=2)
    trust = trust_in(url)
    assert [each.step for each in trust.rungs if each.trust.is_open] == [1]
    text = trust_text(trust)
    assert text.startswith("the order of trials at step 1 agrees with the order ")
    assert text.endswith(": the first rung is now step 3")


def test_an_order_that_holds_opens_nothing(url: str) -> None:
    trials = play(url, checked("stop"), last=0)
    trust = trust_in(url)
    assert not any(each.trust.is_open for each in trust.rungs)
    assert "agrees with the order at the end in 100% of pairs" in trust_text(trust)
    n_completed = sum(each.state is TrialState.COMPLETE for each in trials)
    n_witnesses = sum(WITNESS_KEY in each.system_attrs for each in trials)
    assert n_witnesses == 2, "one after the other: one of the first trials, and one of ten"
    assert n_completed < N_TRIALS / 2


def test_a_witness_is_trained_halfway_to_the_next_rung_and_says_so(url: str) -> None:
    trials = play(url, checked("stop"), last=0)
    witnesses = [each for each in trials if WITNESS_KEY in each.system_attrs]
    assert {(each.state, max(each.intermediate_values)) for each in witnesses} == {
        (TrialState.PRUNED, 2)
    }
    database = open_database(url)
    with database.engine.connect() as connection:
        assert read_witness_step(connection, witnesses[0]._trial_id) == 1
    database.close()


def test_a_witness_is_trained_to_its_end_where_the_order_is_reversed_until_late(url: str) -> None:
    trials = play(url, checked("stop"), last=12, n_steps=30)
    witnesses = [each for each in trials if WITNESS_KEY in each.system_attrs]
    first, *others = (each.state for each in witnesses)
    assert first is TrialState.PRUNED, "no trial has relapsed yet"
    assert TrialState.COMPLETE in others
    assert best_completed(trials) >= 28


@pytest.mark.slow
@pytest.mark.parametrize("mode", MODES)
def test_a_start_anew_at_each_turn_keeps_what_was_found(mode: str, url: str) -> None:
    player, goes_on = Player(n_trials=N_TRIALS, quality=partial(reversed_until, 2)), True
    while goes_on:
        with searches(url, checked(mode)) as views:
            goes_on = player.turn(views[0])
    assert best_completed_in(url, checked(mode), player) >= 28
    assert trust_in(url).rungs[0].trust.is_open


def best_completed_in(url: str, make_pruner: MakePruner, player: Player) -> float:
    with searches(url, make_pruner) as views:
        return best_completed(player.end(views[0]))


def test_two_dispatchers_share_what_they_find(url: str) -> None:
    player = Player(n_trials=N_TRIALS, quality=partial(reversed_until, 2))
    with searches(url, checked("stop"), 2) as views:
        player.play(views)
        tables = [view.scheduler.brackets.tables for view in views]  # type: ignore[attr-defined]
        assert [next(iter(each)).open_rungs for each in tables] == [{0}, {0}]


def test_users_are_told_when_a_rung_opens(url: str) -> None:
    player = Player(n_trials=N_TRIALS, quality=partial(reversed_until, 2))
    with searches(url, checked("stop")) as views:
        player.play(views)
        messages = views[0].scheduler.take_notes()
    assert messages
    assert messages[0].startswith("The order of trials at step 1 agrees with the order at ")
    assert messages[0].endswith(": the first rung is now step 3.")


def test_a_rung_opens_before_any_trial_has_ended(url: str) -> None:
    """Four trials pass the first rung, each as the best, and reach the next in reverse order."""
    with searches(url, checked("stop")) as (search,):
        ids = [trial.trial_id for _ in range(5) if (trial := search.ask()) is not None]
        for step, values in ((1, (0.1, 0.2, 0.3, 0.4)), (3, (0.4, 0.3, 0.2, 0.1))):
            assert not search.scheduler.take_notes()
            for trial_id, value in zip(ids, values, strict=False):
                search.report(trial_id, step, {"accuracy": value})
        (message,) = search.scheduler.take_notes()
        assert message.endswith(": the first rung is now step 3.")
        assert search.report(ids[4], 1, {"accuracy": 0.0}).action is Action.CONTINUE


def test_a_rung_opens_halfway_to_the_end(url: str) -> None:
    """The last rung is reversed, too: between it and the end it shows first at step 16."""
    with searches(url, checked("stop")) as (search,):
        ids = [trial.trial_id for _ in range(3) if (trial := search.ask()) is not None]
        for step in (1, 3, 9, 15):
            for trial_id, value in zip(ids, (0.1, 0.2, 0.3), strict=True):
                assert search.report(trial_id, step, {"accuracy": value}).action is Action.CONTINUE
        assert not search.scheduler.take_notes()
        for trial_id, value in zip(ids, (0.6, 0.5, math.nan), strict=True):
            search.report(trial_id, 16, {"accuracy": value})
        assert not search.scheduler.take_notes(), "a value that is not a number says nothing"
        search.report(ids[2], 17, {"accuracy": 0.4})
        search.report(ids[2], 18, {"accuracy": 0.9})
        (message,) = search.scheduler.take_notes()
        assert message == (
            "The order of trials at step 9 agrees with the order at step 16 in 0% of pairs "
            "(3 trials): every trial continues at each rung."
        )
        trial = search.ask()
        assert trial is not None
        assert search.report(trial.trial_id, 1, {"accuracy": 0.0}).action is Action.CONTINUE
        search.complete(ids[0], {"accuracy": 0.6})
        search.study._storage.flush()  # type: ignore[attr-defined]
        trials = search.study.get_trials()
    assert last_open_step(trials) == 9, "where the sampler begins to listen"
    stored = trials[0].system_attrs[TRUST_KEY]
    trust = StoredTrust.from_json(stored)
    assert [each.later_step for each in trust.rungs] == [16, 16, 16]
    assert [each.trust.later for each in trust.rungs] == [2.5, 2.5, 2.5]
    assert trust.as_json() == stored


def test_an_order_that_says_nothing_of_the_next_is_told(url: str) -> None:
    """Six trials pass the second rung; their order there has no relation to that at the third."""
    with searches(url, checked("stop")) as (search,):
        for number, later in enumerate((2, 5, 0, 3, 4, 1)):
            assert not search.scheduler.take_notes()
            trial = search.ask()
            assert trial is not None
            for step, value in ((1, number), (3, number), (9, later)):
                search.report(trial.trial_id, step, {"accuracy": 0.1 * value})
        (message,) = search.scheduler.take_notes()
    assert message == (
        "The order of trials at step 3 agrees with the order at step 9 in 47% of pairs "
        "(6 trials): the first rung is now step 9."
    )


def test_feasible_trials_count_whoever_completed_them(url: str) -> None:
    with searches(url, checked("stop"), 2) as (ours, theirs):
        completed = (theirs, 0.7, 0.0), (theirs, 0.8, 1.0), (ours, 0.85, 1.0), (ours, 0.9, 0.0)
        for search, value, violation in completed:
            search.sync()
            trial = search.ask()
            assert trial is not None
            for step in (1, 2):
                search.report(trial.trial_id, step, {"accuracy": value + 0.01 * step})
            search.set_constraint(trial.trial_id, "memory", violation)
            search.complete(trial.trial_id, {"accuracy": value + 0.02})
            search.study._storage.flush()  # type: ignore[attr-defined]
        trust = StoredTrust.from_json(ours.study.get_trials()[3].system_attrs[TRUST_KEY])
    assert trust.n_ended == 2
    assert trust.rungs[0].trust.agreement.n_concordant == 1


# -- what people read --------------------------------------------------------------------------


def test_status_and_why_say_it(url: str) -> None:
    trials = play(url, checked("stop"), last=2)
    witness = next(each for each in trials if WITNESS_KEY in each.system_attrs)
    now = datetime.now(UTC)
    database = open_database(url)
    with database.engine.connect() as connection:
        study = StoredStudy(id=1, name="study")
        status = status_text(read_status(connection, study, None, now), now)
        why = explain(connection, study, witness.number, now)
    database.close()
    assert f"early stopping: {trust_text(trust_in(url))}" in status
    assert "weak at step 1, and trained on to check whether the order of trials there" in why


@pytest.mark.parametrize(("is_lost", "then"), [(False, Action.CONTINUE), (True, Action.PRUNE)])
def test_a_witness_that_fails_makes_room_for_another_one(
    is_lost: bool, then: Action, url: str
) -> None:
    """A witness that was lost is run again and makes room for no other."""
    with searches(url, checked("stop")) as (search,):

        def report(value: float) -> tuple[int, Action]:
            trial = search.ask()
            assert trial is not None
            decision = search.report(trial.trial_id, 1, {"accuracy": value})
            return trial.trial_id, decision.action

        assert report(0.9)[1] is Action.CONTINUE, "the best passes"
        witness, action = report(0.5)
        assert action is Action.CONTINUE
        others = [report(0.4 - 0.01 * number)[1] for number in range(4)]
        assert set(others) == {Action.PRUNE}, "one witness of the first ten"
        (search.put_back if is_lost else search.fail)(witness)
        if is_lost:
            again = search.ask()
            assert again is not None
            assert again.trial_id == witness
        assert report(0.1)[1] is then


def test_a_slow_trial_is_no_witness(url: str) -> None:
    with searches(url, checked("stop")) as (search,):

        def is_spared(value: float, held_s: float) -> bool:
            trial = search.ask()
            assert trial is not None
            search.report(trial.trial_id, 0, {"accuracy": value}, held_s=held_s / 2)
            decision = search.report(trial.trial_id, 1, {"accuracy": value}, held_s=held_s)
            return decision.action is Action.CONTINUE

        assert is_spared(0.9, 60.0), "the best passes"
        assert not is_spared(0.5, 3600.0)
        assert is_spared(0.4, 50.0)
        assert not is_spared(0.3, 90.0)


def test_paused_trials_do_not_train(url: str) -> None:
    """One trial trains after the other, so durations are not compared: a slow one is a witness."""
    with searches(url, checked("promote")) as (search,):

        def is_spared(value: float, held_s: float) -> bool:
            trial = search.ask()
            assert trial is not None
            verdict = search.report(trial.trial_id, 1, {"accuracy": value}, held_s=held_s)
            if verdict.action is Action.PAUSE:
                search.pause(trial.trial_id)
            else:
                search.report(trial.trial_id, N_STEPS, {"accuracy": value}, held_s=held_s)
                search.complete(trial.trial_id, {"accuracy": value})
            return verdict.action is Action.CONTINUE

        assert is_spared(0.9, 1.0), "one of the first trials"
        assert not any(is_spared(0.5 - 0.01 * number, 1.0) for number in range(8))
        assert is_spared(0.3, 3600.0), "one of ten"


def test_there_are_three_witnesses_once_a_leader_has_relapsed(url: str) -> None:
    with searches(url, checked("stop")) as (search,):

        def is_spared(value: float) -> bool:
            trial = search.ask()
            assert trial is not None
            ids.append(trial.trial_id)
            return search.report(ids[-1], 1, {"accuracy": value}).action is Action.CONTINUE

        ids: list[int] = []
        assert is_spared(0.9), "the best passes"
        assert [is_spared(value) for value in (0.5, 0.4, 0.3)] == [True, False, False]
        search.report(ids[0], 2, {"accuracy": 0.45})
        assert [is_spared(value) for value in (0.2, 0.2, 0.2)] == [True, True, False]


# -- what others know --------------------------------------------------------------------------


def begin(search: StudySearch, value: float) -> tuple[int, Action]:
    """A new trial reports at the first rung; gives its id and the action."""
    trial = search.ask()
    assert trial is not None
    return trial.trial_id, report_at(search, trial.trial_id, 1, value)


def report_at(search: StudySearch, trial_id: int, step: int, value: float) -> Action:
    action = search.report(trial_id, step, {"accuracy": value}).action
    if action is Action.PRUNE:
        search.prune(trial_id)
    return action


def lead(search: StudySearch) -> int:
    """The best trial passes each rung."""
    trial_id, action = begin(search, 0.9)
    assert action is Action.CONTINUE
    for step, value in ((3, 0.91), (9, 0.92)):
        assert report_at(search, trial_id, step, value) is Action.CONTINUE
    return trial_id


def flush(search: StudySearch) -> None:
    search.study._storage.flush()  # type: ignore[attr-defined]


def spared(search: StudySearch) -> list[bool]:
    """Which of three new trials, weaker than all others, are witnesses."""
    return [begin(search, 0.1 - 0.01 * n)[1] is Action.CONTINUE for n in range(3)]


@pytest.mark.parametrize("becomes_worse", [False, True])
def test_a_later_start_knows_what_witnesses_have_told(becomes_worse: bool, url: str) -> None:
    """One that left at a further rung is not replaced, and that it became worse is no relapse."""
    with searches(url, checked("stop")) as (search,):
        leader = lead(search)
        for value in (0.4, 0.3, 0.2):
            trial_id, action = begin(search, value)
            if value == 0.4:
                witness = trial_id
                assert action is Action.CONTINUE
        later = 0.15 if becomes_worse else 0.5
        assert report_at(search, witness, 3, later) is Action.PRUNE
        search.complete(leader, {"accuracy": 0.92})
        flush(search)
    with searches(url, checked("stop")) as (search,):
        search.sync()
        assert not any(spared(search))


def test_a_later_start_knows_of_a_relapse(url: str) -> None:
    """Also where the first trials met no others at the rung, and between rungs."""
    with searches(url, checked("stop")) as (search,):
        leader = lead(search)
        for value in (0.5, 0.4, 0.3):
            begin(search, value)
        report_at(search, leader, 10, 0.25)
        search.complete(leader, {"accuracy": 0.25})
        flush(search)
    with searches(url, checked("stop")) as (search,):
        search.sync()
        assert spared(search)[:2] == [True, True]


def test_another_dispatcher_knows_of_a_relapse_between_two_rungs(url: str) -> None:
    with searches(url, checked("stop"), 2) as (one, other):
        leader = lead(one)
        late, action = begin(one, 0.95)
        assert action is Action.CONTINUE
        for value in (0.5, 0.4, 0.3):
            begin(one, value)
        assert report_at(one, late, 2, 0.25) is Action.CONTINUE
        report_at(one, leader, 9, 0.92)
        flush(one)
        other.sync()
        assert spared(other)[:2] == [True, True]
        flush(other)
        other.sync()
        one.sync()
        assert not any(spared(one)), "three in all"


@pytest.mark.parametrize("is_later_start", [False, True])
def test_a_later_start_does_not_take_one_of_many_for_all(is_later_start: bool, url: str) -> None:
    """Values between rungs are not stored: those that came on had not relapsed there."""

    def relapses(search: StudySearch) -> list[bool]:
        trial_id, action = begin(search, 0.31)
        assert action is Action.CONTINUE
        report_at(search, trial_id, 2, 0.01)
        return spared(search)

    with searches(url, checked("stop")) as (search,):
        for number in range(12):
            trial = search.ask()
            assert trial is not None
            for step in (1, 2, 3, 9):
                value = 0.1 + 0.01 * number + 0.01 * step
                assert report_at(search, trial.trial_id, step, value) is Action.CONTINUE
            search.complete(trial.trial_id, {"accuracy": 0.5 + 0.01 * number})
        flush(search)
        if not is_later_start:
            assert sum(relapses(search)) == 2, "one of the first, and one of ten"
    if is_later_start:
        with searches(url, checked("stop")) as (search,):
            search.sync()
            assert sum(relapses(search)) == 2


def test_a_later_start_replaces_a_witness_that_failed_before_the_next_rung(url: str) -> None:
    with searches(url, checked("stop")) as (search,):
        lead(search)
        witness, _ = begin(search, 0.95)
        assert report_at(search, witness, 3, 0.5) is Action.CONTINUE, "weak at the second rung"
        search.fail(witness)
        flush(search)
    with searches(url, checked("stop")) as (search,):
        search.sync()
        assert spared(search) == [True, False, False]


def test_a_relapse_that_another_dispatcher_reads_twice_counts_once(url: str) -> None:
    with searches(url, checked("stop"), 2) as (one, other):
        begun = [begin(one, 0.5 + 0.01 * number) for number in range(5)]
        assert {action for _, action in begun} == {Action.CONTINUE}
        flush(one)
        other.sync()
        *steady, relapsing = (trial_id for trial_id, _ in begun)
        for number, trial_id in enumerate(steady):
            report_at(one, trial_id, 3, 0.9 + 0.01 * number)
        report_at(one, relapsing, 2, 0.1)
        flush(one)
        other.sync()
        report_at(one, relapsing, 3, 0.95)
        flush(one)
        other.sync()
        assert not all(spared(other)), "one of five"


@pytest.mark.parametrize(("n_others", "n_witnesses"), [(0, 1), (8, 2), (24, 4)])
def test_trials_that_train_elsewhere_count_among_those_at_the_same_time(
    n_others: int, n_witnesses: int, url: str
) -> None:
    with searches(url, checked("stop"), 2) as (one, other):
        for _ in range(n_others):
            assert other.ask() is not None
        flush(other)
        one.sync()
        asked = [trial for _ in range(8) if (trial := one.ask()) is not None]
        actions = [
            report_at(one, trial.trial_id, 1, 0.9 - 0.1 * index)
            for index, trial in enumerate(asked)
        ]
        assert actions.pop(0) is Action.CONTINUE, "the best passes"
        assert actions.count(Action.CONTINUE) == n_witnesses
