"""What people and the dispatcher hear of a study of one objective whose trials wait at rungs."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from optuna.trial import create_trial

from tests.contract.search.halving_study import MakePruner, searches
from tests.databases import new_database
from tuner.config import Direction
from tuner.domain.messages import Action
from tuner.search.asked_trial import AskedTrial
from tuner.search.pruners.asha import AshaPruner
from tuner.search.pruners.freeze_thaw import FreezeThawPruner
from tuner.search.pruners.hyperband import FIRST_RUNG_KEY, AsyncHyperbandPruner
from tuner.search.rungs.freeze_thaw_table import SliceTable
from tuner.search.rungs.table import RUNG_KEY, rung_key
from tuner.search.study import StudySearch
from tuner.search.trial_attributes.vector_curve import LAST_STEP_KEY


@contextmanager
def searching(
    tmp_path: Path, make_pruner: MakePruner, direction: Direction = Direction.MAXIMIZE
) -> Iterator[StudySearch]:
    with searches(new_database(tmp_path), make_pruner, direction=direction) as (search,):
        yield search


def asked(search: StudySearch) -> AskedTrial:
    found = search.ask()
    assert found is not None
    return found


def reported(search: StudySearch, value: float, step: int = 1) -> tuple[Action, str]:
    """The answer to a report of a new trial, which ends if it is to."""
    trial_id = asked(search).trial_id
    decision = search.report(trial_id, step, {"accuracy": value})
    if decision.action is Action.PRUNE:
        search.prune(trial_id)
    return decision.action, decision.reason


def paused(search: StudySearch, value: float) -> int:
    """The number of a trial that waits at the first rung."""
    trial = asked(search)
    decision = search.report(trial.trial_id, 1, {"accuracy": value})
    assert decision.action is Action.PAUSE
    search.pause(trial.trial_id)
    return trial.number


@pytest.mark.parametrize(
    ("direction", "values", "worse"),
    [
        (Direction.MAXIMIZE, (0.9, 0.5, 0.4), "0.4 is below 0.9"),
        (Direction.MINIMIZE, (0.1, 0.5, 0.6), "0.6 is above 0.1"),
    ],
)
def test_a_reason_names_the_rung_and_what_the_others_have(
    tmp_path: Path, direction: Direction, values: tuple[float, ...], worse: str
) -> None:
    with searching(tmp_path, AshaPruner, direction) as search:
        first, second, third = (reported(search, each) for each in values)
    few = "no trial continues before 3 trials reached this rung"
    assert first == (Action.PAUSE, f"at rung 0 (step 1), accuracy {values[0]:g}: {few}")
    assert second == (Action.PAUSE, f"at rung 0 (step 1), accuracy {values[1]:g}: {few}")
    best = "the limit of the best 1 in 3 of the 3 trials at this rung"
    assert third == (Action.PAUSE, f"at rung 0 (step 1), accuracy {worse}, {best}")


def test_a_reason_where_trials_end_counts_those_of_the_beginning(tmp_path: Path) -> None:
    with searching(tmp_path, lambda: AshaPruner(1, mode="stop", bootstrap_count=2)) as search:
        few = "no trial continues before 3 trials reached this rung"
        assert reported(search, 0.9) == (Action.PRUNE, f"at rung 0 (step 1), accuracy 0.9: {few}")
        assert reported(search, 0.8) == (Action.PRUNE, f"at rung 0 (step 1), accuracy 0.8: {few}")
        action, reason = reported(search, 0.7)
        assert (action, "0.7 is below 0.9" in reason) == (Action.PRUNE, True)


def test_a_reason_names_the_bracket(tmp_path: Path) -> None:
    with searching(tmp_path, lambda: AsyncHyperbandPruner(max_resource=9)) as search:
        reasons = [reported(search, 0.5, step=9 - 1)[1] for _ in range(4)]
    assert any(" of the bracket from step " in each for each in reasons), reasons


def test_a_value_that_is_no_number_ends_its_trial_alone(tmp_path: Path) -> None:
    with searching(tmp_path, AshaPruner) as search:
        assert reported(search, math.nan)[0] is Action.PRUNE
        paused(search, 0.5)
        paused(search, 0.4)
        assert reported(search, math.nan) == (Action.PRUNE, "at rung 0 (step 1), accuracy nan")


def test_a_study_lacks_a_winner_while_all_wait(tmp_path: Path) -> None:
    with searching(tmp_path, AshaPruner) as search:
        assert not search.lacks_a_winner
        first = asked(search)
        search.report(first.trial_id, 1, {"accuracy": 0.5})
        assert not search.lacks_a_winner  # It runs.
        search.pause(first.trial_id)
        assert search.lacks_a_winner
        assert search.resume() is None  # Nobody has earned it.
        last = search.resume(is_last=True)
        assert last is not None
        assert last.number == first.number
        assert not search.lacks_a_winner
        # It goes on to its end, whatever the others have.
        for step in range(2, 10):
            decision = search.report(last.trial_id, step, {"accuracy": 0.0})
            assert decision.action is Action.CONTINUE
        search.complete(last.trial_id, {"accuracy": 0.0})
        paused(search, 0.1)
        assert not search.lacks_a_winner  # One has completed.


def test_trials_of_optunas_own_pruner_are_compared_with(tmp_path: Path) -> None:
    """They have values at rungs, and no bracket."""
    with searching(tmp_path, AshaPruner) as search:
        for _ in range(3):
            of_optuna = create_trial(value=0.9, system_attrs={rung_key(0): 0.9})
            search.study.add_trial(of_optuna)
        flush(search)
    with searching(tmp_path, AshaPruner) as search:
        assert reported(search, 0.4)[1].endswith("of the 4 trials at this rung")


def test_who_stops_pausing_has_nobody_to_resume(tmp_path: Path) -> None:
    with searching(tmp_path, AshaPruner) as search:
        paused(search, 0.9)
        paused(search, 0.5)
        assert search.scheduler.paused == {0, 1}
        assert search.stop_instead_of_pausing()
        assert search.resume(is_last=True) is None
        assert search.scheduler.leader_share_left is None
        assert not search.lacks_a_winner
        assert reported(search, 0.4)[0] is Action.PRUNE


def test_the_longest_completed_trial_says_how_many_steps_there_are(tmp_path: Path) -> None:
    with searching(tmp_path, AshaPruner) as search:
        search.complete(asked(search).trial_id, {"accuracy": 0.5})
        assert search.scheduler.n_steps is None
        for n_steps in (4, 6, 5):
            trial = asked(search)
            for step in range(1, n_steps + 1):
                search.report(trial.trial_id, step, {"accuracy": 0.5})
            search.complete(trial.trial_id, {"accuracy": 0.5})
        assert search.scheduler.n_steps == 6
        # Curves have it.
        assert not any(LAST_STEP_KEY in each.system_attrs for each in search.study.get_trials())
        # Nobody waits at the last step.
        assert reported(search, 0.0, step=6)[0] is Action.CONTINUE
        assert reported(search, 0.0, step=5)[0] is Action.PAUSE
        paused(search, 0.1)
        assert search.scheduler.leader_share_left == pytest.approx(5 / 6)


def test_a_trial_that_others_have_taken_further_waits_at_its_new_rung(tmp_path: Path) -> None:
    """A dispatcher that still has it at the rung below takes it, and puts it back."""
    with searches(new_database(tmp_path), AshaPruner, n=2) as (ours, theirs):
        for value in (0.9, 0.5, 0.4):
            paused(theirs, value)
        flush(theirs)
        ours.sync()
        resumed = theirs.resume()
        assert resumed is not None
        assert resumed.number == 0
        decision = theirs.report(resumed.trial_id, 3, {"accuracy": 0.9})
        assert decision.action is Action.PAUSE
        theirs.pause(resumed.trial_id)
        flush(theirs)
        assert ours.resume() is None, "it is alone at its new rung"
        assert ours.scheduler.paused == {0, 1, 2}
        flush(ours)
        theirs.sync()
        assert theirs.scheduler.paused == {0, 1, 2}


def test_a_trial_that_others_were_quicker_to_resume_is_left_to_them(tmp_path: Path) -> None:
    with searches(new_database(tmp_path), AshaPruner, n=2) as (ours, theirs):
        for value in (0.9, 0.8, 0.5, 0.4, 0.3, 0.2):
            paused(theirs, value)
        flush(theirs)
        ours.sync()
        resumed = theirs.resume()
        flush(theirs)
        assert resumed is not None
        second = ours.resume()
        assert second is not None
        assert second.number == 1
        assert ours.resume() is None
        assert ours.scheduler.paused == {2, 3, 4, 5}


def test_where_others_took_a_trial_it_waits_no_more(tmp_path: Path) -> None:
    with searches(new_database(tmp_path), AshaPruner, n=2) as (ours, theirs):
        for value in (0.9, 0.5, 0.4):
            paused(theirs, value)
        flush(theirs)
        ours.sync()
        assert ours.scheduler.paused == {0, 1, 2}
        theirs.resume()
        flush(theirs)
        ours.sync()
        assert ours.scheduler.paused == {1, 2}


def test_a_trial_that_was_resumed_waits_for_a_device_once_its_dispatcher_is_lost(
    tmp_path: Path,
) -> None:
    with searches(new_database(tmp_path), AshaPruner, n=2) as (ours, theirs):
        for value in (0.9, 0.5, 0.4):
            paused(theirs, value)
        resumed = theirs.resume()
        assert resumed is not None
        theirs.put_back(resumed.trial_id)
        flush(theirs)
        ours.sync()
        assert ours.scheduler.paused == {1, 2}
        again = asked(ours)
        assert again.number == resumed.number


def test_a_study_lacks_no_winner_while_one_trains(tmp_path: Path) -> None:
    with searching(tmp_path, AshaPruner) as search:
        paused(search, 0.5)
        running = asked(search)
        assert not search.lacks_a_winner
        search.prune(running.trial_id)
        assert search.lacks_a_winner


def test_who_stops_pausing_lets_the_best_of_few_pass(tmp_path: Path) -> None:
    """Where trials end at rungs, none waits for two others."""
    with searching(tmp_path, AshaPruner) as search:
        assert reported(search, 0.5)[0] is Action.PAUSE
        search.stop_instead_of_pausing()
        assert reported(search, 0.6) == (Action.CONTINUE, "")
        limit = "the limit of the best 1 in 3 of the 3 trials at this rung"
        reason = f"at rung 0 (step 1), accuracy 0.4 is below 0.6, {limit}"
        assert reported(search, 0.4) == (Action.PRUNE, reason)


@pytest.mark.parametrize("check_order", [True, False])
def test_of_many_that_learn_nothing_some_pass(tmp_path: Path, check_order: bool) -> None:
    """With `check_order` a third passes; else all that equal the limit, as in Optuna."""

    def make_pruner() -> AshaPruner:
        return AshaPruner(1, mode="stop", check_order=check_order)

    with searching(tmp_path, make_pruner) as search:
        # One in ten learns, the first one after four others.
        found = [reported(search, 0.5 if each % 10 == 4 else 0.1) for each in range(60)]
    passing = [each for each, (action, _) in enumerate(found) if action is Action.CONTINUE]
    assert {4, 14, 24, 34, 44, 54} < set(passing)
    if not check_order:
        assert len(passing) == 60
        return
    # Four passed before another had learned, and some are trained on to check the order.
    assert 20 <= len(passing) <= 26
    limit = "the limit of the best 1 in 3 of the 60 trials at this rung"
    why = f"at rung 0 (step 1), accuracy 0.1 equals {limit}, and only some with this value continue"
    assert found[59] == (Action.PRUNE, why)


@pytest.mark.parametrize(
    ("mode", "check_order", "action", "where", "rungs"),
    [
        ("stop", False, Action.PRUNE, "rung 0 (step 1)", [0]),
        ("stop", True, Action.PRUNE, "rung 1 (step 3)", [0, 1]),
        ("promote", False, Action.PAUSE, "rung 1 (step 3)", [0, 1]),
    ],
)
def test_a_first_report_beyond_two_rungs(
    tmp_path: Path, mode: str, check_order: bool, action: Action, where: str, rungs: list[int]
) -> None:
    """Without `check_order`, a trial that may end is judged at each, as by Optuna's pruner."""

    def make_pruner() -> AshaPruner:
        return AshaPruner(1, mode=mode, check_order=check_order)

    with searching(tmp_path, make_pruner) as search:
        for value in (0.9, 0.8, 0.7, 0.6):
            first = asked(search)
            search.report(first.trial_id, 3, {"accuracy": value})
        late = asked(search)
        decision = search.report(late.trial_id, 4, {"accuracy": 0.1})
        assert decision.action is action
        assert where in decision.reason
        stored = [each.system_attrs for each in search.study.get_trials()]
    entered = [[int(key[-1]) for key in each if key.startswith(RUNG_KEY)] for each in stored]
    assert sorted(entered[late.number]) == rungs
    assert sorted(entered[0]) == [0, 1]


def test_a_program_that_reports_rarely_loses_two_of_three_trials_per_report(tmp_path: Path) -> None:
    """Its first report, at step 250, passes the rungs at steps 2, 6, 18, 54 and 162 at once."""

    def make_pruner() -> AshaPruner:
        return AshaPruner(2, mode="stop", check_order=True)

    ends = []
    with searching(tmp_path, make_pruner) as search:
        for number in range(90):
            trial = asked(search)
            value = {"accuracy": (number * 37 % 90) / 90}
            ends.append(search.report(trial.trial_id, 250, value).action is Action.PRUNE)
    assert 20 <= ends.count(False) <= 50  # Not one in 243.


def test_brackets_are_drawn_once_a_trial_has_completed(tmp_path: Path) -> None:
    """Until then nobody knows where the last one begins: the first trial trains to its end."""
    with searching(tmp_path, lambda: AsyncHyperbandPruner(mode="stop")) as search:
        first = asked(search)
        for step in range(1, 10):
            assert search.report(first.trial_id, step, {"accuracy": 0.5}).action is Action.CONTINUE
        begun = asked(search)
        search.report(begun.trial_id, 1, {"accuracy": 0.5})
        search.complete(first.trial_id, {"accuracy": 0.5})
        search.report(begun.trial_id, 2, {"accuracy": 0.5})
        for _ in range(30):
            trial = asked(search)
            search.report(trial.trial_id, 1, {"accuracy": 0.5})
        firsts = [each.system_attrs[FIRST_RUNG_KEY] for each in search.study.get_trials()]
    assert firsts[:2] == [0, 1]
    # 9 steps: brackets from steps 1 and 3, and one whose trials are compared at no rung.
    assert set(firsts[2:]) == {0, 1, 3}


def test_a_bracket_of_another_pruner_is_drawn_anew(tmp_path: Path) -> None:
    """A study that goes on with other settings compares its trials at the new rungs alone."""
    url = new_database(tmp_path)
    with searches(url, lambda: AsyncHyperbandPruner(2, 16, 2)) as (search,):
        trials = [asked(search) for _ in range(12)]
        for trial in trials:
            search.report(trial.trial_id, 2, {"accuracy": 0.5})
        flush(search)
        assert brackets_of(search) >= {2, 4}
    with searches(url, lambda: AsyncHyperbandPruner(3, 27, 3)) as (search,):
        for trial in trials:
            decision = search.report(trial.trial_id, 3, {"accuracy": 0.4})
            assert decision.action is Action.CONTINUE or "from step 3, " in decision.reason
        assert {3, 9} <= brackets_of(search) <= {0, 3, 9}


def brackets_of(search: StudySearch) -> set[int]:
    """The steps where they begin."""
    return {each.system_attrs[FIRST_RUNG_KEY] for each in search.study.get_trials()}


def flush(search: StudySearch) -> None:
    search.study._storage.flush()  # type: ignore[attr-defined]


# -- slices ------------------------------------------------------------------------------------


class Slices(FreezeThawPruner):
    """With too few results to fit a model to, whose import takes seconds."""

    @staticmethod
    def load_model() -> None:
        pass


def slices_of(search: StudySearch) -> SliceTable:
    (table,) = search.scheduler.brackets.tables  # type: ignore[attr-defined]
    assert isinstance(table, SliceTable)
    return table


def test_the_pace_of_each_attempt_is_measured_and_stored(tmp_path: Path) -> None:
    url, values = new_database(tmp_path), {"accuracy": 0.5}
    with searches(url, lambda: Slices(2)) as (search,):
        trial_id = asked(search).trial_id
        search.report(trial_id, 1, values, held_s=5.0)
        decision = search.report(trial_id, 2, values, held_s=6.0)
        assert decision.action is Action.PAUSE
        assert decision.reason.startswith("at the end of its slice (step 2), accuracy 0.5: ")
        assert stored_pace(search) == [1.0, 4.0]  # Seconds a step, and of the start.
        search.pause(trial_id)
        assert search.resume(is_last=True) is not None
        for step, held_s in ((3, 10.0), (4, 12.0)):
            search.report(trial_id, step, values, held_s=held_s)
        assert stored_pace(search) == [2.0, 8.0]
        assert slices_of(search).pace.of_step(0) == 2.0
        untimed = asked(search)
        for step in (1, 2):
            search.report(untimed.trial_id, step, values)
        flush(search)
    with searches(url, lambda: Slices(2)) as (search,):
        pace = slices_of(search).pace
        assert (pace.of_step(0), pace.of_start, pace.unit) == (2.0, 8.0, "second")


def stored_pace(search: StudySearch) -> object:
    return search.study.get_trials()[0].system_attrs["tuner:pace"]


def test_slices_know_the_ends_of_feasible_trainings(tmp_path: Path) -> None:
    url, expected = new_database(tmp_path), {0: (4, -0.8), 2: (3, -0.6), 3: (0, -0.5)}
    with searches(url, lambda: Slices(8)) as (search,):
        for value, last in ((0.8, 4), (0.9, 5), (0.6, 3), (0.5, 0)):
            trial = asked(search)
            for step in range(1, last + 1):
                search.report(trial.trial_id, step, {"accuracy": value})
            search.set_constraint(trial.trial_id, "memory", float(value == 0.9))
            search.complete(trial.trial_id, {"accuracy": value})
        weak = asked(search)
        search.report(weak.trial_id, 1, {"accuracy": 0.1})
        search.prune(weak.trial_id)
        assert slices_of(search).ends == expected
        flush(search)
    with searches(url, lambda: Slices(8)) as (search,):
        assert slices_of(search).ends == expected
