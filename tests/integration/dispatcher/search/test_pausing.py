"""Trials that pause at a rung: their devices go to others, and the best of them go on."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path

import optuna
import pytest
from optuna.trial import TrialState

from tests.integration.dispatcher.world import FakeWorker, Program, World
from tests.unit.checkpoints.test_scan import save
from tuner.checkpoints.layout import file_of, newest_whole, step_of
from tuner.dispatch.notices import Said, Started
from tuner.domain.attempt import Cause, Outcome
from tuner.domain.budget import Budget
from tuner.domain.messages import Action, StatesDamaged
from tuner.search.pruners.asha import AshaPruner
from tuner.search.pruners.freeze_thaw import FreezeThawPruner
from tuner.search.pruners.hyperband import AsyncHyperbandPruner
from tuner.store.optuna_tables.pauses import PAUSED_KEY
from tuner.store.schema.models import AttemptRow

LAST_STEP = 9


def quality_of(number: int) -> float:
    """In no order."""
    return float(number * 5 % 12)


def saving(
    quality: Callable[[int], float] = quality_of,
    *,
    saves: bool = True,
    reports_every: int = 1,
    seen: list[tuple[int, int]] | None = None,
) -> Program:
    """A program of nine steps that saves each, and goes on after the last one that it saved."""

    def program(worker: FakeWorker) -> None:
        folder = Path(worker.request.assign.checkpoint_dir)
        saved = [int(path.stem.removeprefix("step-")) for path in folder.glob("step-*.pt")]
        done = max(saved, default=0)

        def step(number: int) -> None:
            told = {verdict.action for verdict in worker.verdicts} - {Action.CONTINUE}
            if told:
                is_stopped = told == {Action.STOP}
                outcome = Outcome.CANCELLED if is_stopped else Outcome.PRUNED
                cause = Cause.INTERRUPTED if is_stopped else Cause.PRUNER
                worker.finish(outcome, cause=cause, detail="told")
                worker.exit(0)
                return
            if number > LAST_STEP:
                worker.complete(quality(worker.trial_number))
                return
            if saves:
                folder.mkdir(parents=True, exist_ok=True)
                file_of(folder, number).write_bytes(b"state")
            if seen is not None:
                seen.append((worker.trial_number, number))
            if number % reports_every == 0:
                worker.report(number, quality(worker.trial_number))
            worker.later(1.0, lambda: step(number + 1))

        worker.later(0.1, worker.hello)
        worker.later(0.5, lambda: step(done + 1))

    return program


def saving_whole(
    seen: list[tuple[int, int]],
    quality: Callable[[int], float],
    *,
    counts_on: bool = True,
) -> Program:
    """The same with files that have an end, of which torn ones are left aside."""

    def program(worker: FakeWorker) -> None:
        folder = Path(worker.request.assign.checkpoint_dir)
        newest = newest_whole(folder)
        done = step_of(newest) if newest is not None and counts_on else 0

        def step(number: int) -> None:
            if {verdict.action for verdict in worker.verdicts} - {Action.CONTINUE}:
                worker.finish(Outcome.PRUNED, cause=Cause.PRUNER, detail="told")
                worker.exit(0)
            elif number > LAST_STEP:
                worker.complete(quality(worker.trial_number))
            else:
                folder.mkdir(parents=True, exist_ok=True)
                seen.append((worker.trial_number, number))
                save(folder, number, at_s=1000.0 + len(seen))
                worker.report(number, quality(worker.trial_number))
                worker.later(1.0, lambda: step(number + 1))

        worker.later(0.1, worker.hello)
        worker.later(0.5, lambda: step(done + 1))

    return program


@pytest.fixture
def pausing(tmp_path: Path) -> Callable[..., World]:
    def make(program: Program, **terms: object) -> World:
        pruner = AshaPruner(min_resource=1, reduction_factor=3)
        return World(tmp_path, program, pruner=pruner, **terms)  # type: ignore[arg-type]

    return make


def outcomes(world: World) -> list[str]:
    return [row.outcome.value for row in world.rows(AttemptRow)]


def test_the_best_go_on_and_nobody_repeats_a_step(pausing: Callable[..., World]) -> None:
    seen: list[tuple[int, int]] = []
    world = pausing(saving(seen=seen), n_trials=12, n_devices=2)
    result = world.run()
    assert len(seen) == len(set(seen)), "a step was done twice"
    assert 1 <= result.n_completed <= 12 // 3
    assert result.n_completed + result.n_pruned == 12
    assert outcomes(world).count("paused") >= 12 - result.n_completed
    best = max(range(12), key=quality_of)
    assert world.search.best is not None
    assert world.search.best.number == best
    assert [step for number, step in seen if number == best] == list(range(1, LAST_STEP + 1))
    attempts = [row.number for row in world.rows(AttemptRow) if row.outcome.value == "completed"]
    assert attempts != [1], "the winner was resumed"


def test_what_is_left_at_the_end_is_pruned_at_its_last_step(pausing: Callable[..., World]) -> None:
    world = pausing(saving(), n_trials=12)
    world.run()
    trials = world.stored_trials()
    assert {trial.state for trial in trials} == {TrialState.COMPLETE, TrialState.PRUNED}
    for trial in trials:
        last = max(trial.intermediate_values)
        if trial.state is TrialState.PRUNED:
            assert trial.value == trial.intermediate_values[last]
            assert last < LAST_STEP
        assert trial.system_attrs.get(PAUSED_KEY) is None


def test_a_study_of_few_trials_has_a_winner_too(pausing: Callable[..., World]) -> None:
    world = pausing(saving(), n_trials=2)
    assert world.run().n_completed == 1


def test_other_tools_see_a_paused_trial_wait(pausing: Callable[..., World]) -> None:
    world = pausing(saving(), n_trials=6, n_devices=1)
    world.turn_until(lambda: world.search.counts.n_paused == 2)
    waiting = [trial for trial in world.stored_trials() if trial.state is TrialState.WAITING]
    assert [trial.system_attrs[PAUSED_KEY] for trial in waiting] == [1, 1]
    assert world.search.counts.by_state()[TrialState.WAITING] == 0
    assert world.search.counts.n_begun == len(world.stored_trials())


def test_trials_without_checkpoints_are_stopped_and_people_hear_once(
    pausing: Callable[..., World],
) -> None:
    world = pausing(saving(saves=False), n_trials=12)
    world.run()
    assert "paused" not in outcomes(world)
    assert "pruned" in outcomes(world)
    assert sum("cannot be paused" in text for text in world.said) == 1


def test_ctrl_c_leaves_paused_trials_to_the_next_start(
    pausing: Callable[..., World], tmp_path: Path
) -> None:
    seen: list[tuple[int, int]] = []
    world = pausing(saving(seen=seen), n_trials=12, n_devices=1)
    world.turn_until(lambda: world.search.counts.n_paused >= 3)
    n_paused = world.search.counts.n_paused
    world.interrupt()
    stopped = world.run()
    assert stopped.is_interrupted
    assert stopped.n_paused == world.search.counts.n_paused >= n_paused - 1
    world.close()
    again = World(
        tmp_path,
        saving(seen=seen),
        pruner=AshaPruner(min_resource=1, reduction_factor=3),
        n_trials=12,
    )
    assert again.search.counts.n_paused == world.search.counts.n_paused
    result = again.run()
    assert (result.n_completed + result.n_pruned, result.n_paused) == (12, 0)
    assert result.n_completed >= 1
    assert len(seen) == len(set(seen))


def test_one_that_was_told_to_pause_when_ctrl_c_came_waits_too(
    pausing: Callable[..., World],
) -> None:
    def is_told(world: World) -> bool:
        return any(each.action is Action.PAUSE for w in world.workers for each in w.verdicts)

    world = pausing(saving(), n_trials=12, n_devices=1)
    world.turn_until(lambda: is_told(world))
    world.interrupt()
    result = world.run()
    assert world.endings[-1][1] == "paused"
    assert world.search.counts.n_paused == 1
    assert result.n_pruned == 0


@pytest.mark.parametrize(
    "make_pruner",
    [
        lambda: AsyncHyperbandPruner(max_resource=LAST_STEP),
        AsyncHyperbandPruner,
        FreezeThawPruner,
    ],
    ids=["hyperband", "hyperband-auto", "freeze_thaw"],
)
def test_other_pruners_pause_and_survive_a_stop_too(
    make_pruner: Callable[[], optuna.pruners.BasePruner], tmp_path: Path
) -> None:
    seen: list[tuple[int, int]] = []
    world = World(tmp_path, saving(seen=seen), pruner=make_pruner(), n_trials=12, n_devices=2)
    world.turn_until(lambda: world.search.counts.n_paused >= 2)
    world.interrupt()
    assert world.run().is_interrupted
    n_paused = world.search.counts.n_paused
    world.close()
    again = World(tmp_path, saving(seen=seen), pruner=make_pruner(), n_trials=12)
    assert again.search.counts.n_paused == n_paused
    result = again.run()
    assert result.n_completed + result.n_pruned == 12
    assert len(seen) == len(set(seen)), "a step was done twice"
    assert again.search.best is not None
    assert again.search.best.number == max(range(12), key=quality_of)


def test_another_pruner_lets_paused_trials_simply_go_on(
    pausing: Callable[..., World], tmp_path: Path
) -> None:
    world = pausing(saving(), n_trials=4, n_devices=1)
    world.turn_until(lambda: world.search.counts.n_paused == 2)
    world.interrupt()
    world.run()
    world.close()
    again = World(tmp_path, saving(), pruner=optuna.pruners.NopPruner(), n_trials=4)
    assert again.run().n_completed == 4


def test_a_value_that_is_no_number_is_not_paused(pausing: Callable[..., World]) -> None:
    world = pausing(saving(lambda number: float("nan") if number == 0 else number), n_trials=6)
    world.run()
    assert outcomes(world)[0] == "pruned"


def test_a_budget_of_time_ends_the_study_with_its_paused_trials(
    pausing: Callable[..., World],
) -> None:
    world = pausing(saving(), budget=Budget(time_s=30.0))
    result = world.run()
    states = world.stored_states()
    assert "WAITING" not in states
    assert "RUNNING" not in states
    assert result.n_pruned > 0


def assert_one_of_two_gets_what_waits(world: World) -> None:
    """Of a study of one device, two of whose trials are going to wait."""
    world.turn_until(lambda: world.search.counts.n_paused == 2)
    number = min(world.search.study.paused())
    trial = world.stored_trials()[number]
    # The other one was quicker: it has it already.
    study = optuna.load_study(study_name="study", storage=world.url)
    assert study._storage.set_trial_state_values(trial._trial_id, TrialState.RUNNING)
    promotion = world.search.scheduler
    assert promotion.take(number) is None
    assert number not in promotion.paused


def test_of_two_dispatchers_one_gets_a_promoted_trial(pausing: Callable[..., World]) -> None:
    assert_one_of_two_gets_what_waits(pausing(saving(), n_trials=6, n_devices=1))


def test_what_is_left_of_the_time_goes_to_the_leaders(pausing: Callable[..., World]) -> None:
    # Better ones come all the time, so that nobody paused has earned to go on at the end.
    world = pausing(saving(lambda number: -float(number)), n_devices=2, budget=Budget(time_s=160.0))
    start_s = world.now_s
    result = world.run()
    assert result.n_completed >= 3, "it is known how long a training takes"
    notices = world.view.notices
    texts = [each.text if isinstance(each, Said) else "" for each in notices]
    (place,) = [i for i, text in enumerate(texts) if text.startswith("No new trial starts: ")]
    later = [each for each in notices[place:] if isinstance(each, Started)]
    assert later, "somebody went on"
    assert all(each.attempt.number > 1 for each in later), "nobody began"
    assert world.now_s - start_s <= 160.0 + LAST_STEP, "what was begun had its end in sight"


# -- programs and disks that misbehave ---------------------------------------------------------


def attempts_of(world: World, number: int) -> list[FakeWorker]:
    return [worker for worker in world.workers if worker.trial_number == number]


def test_a_program_that_counts_anew_after_a_resume_spoils_no_curve(
    pausing: Callable[..., World],
) -> None:
    """Its second count is of other states than the first: its steps mean nothing."""

    def quality(number: int) -> float:
        return quality_of(number) + 100.0 * sum(number == each for each, step in seen if step == 1)

    seen: list[tuple[int, int]] = []
    program = saving_whole(seen, quality, counts_on=False)
    world = pausing(program, n_trials=12, n_devices=1)
    result = world.run()
    assert result.n_completed + result.n_pruned == 12
    assert sum("reports step 1 again" in text for text in world.said) == 1
    again = next(number for number in range(12) if len(attempts_of(world, number)) > 2)
    trial = world.stored_trials()[again]
    # Step 1 alone tells nothing: some programs report the step again that they had saved.
    assert set(trial.intermediate_values) == {1, 2, 3}
    assert "paused" not in outcomes(world)[len(world.workers) - 3 :]


def test_a_program_that_finds_its_states_damaged_is_right_to_start_again(
    pausing: Callable[..., World],
) -> None:
    """Their ends are there, so that the dispatcher takes them for whole."""
    seen: list[tuple[int, int]] = []
    inner = saving_whole(seen, quality_of, counts_on=False)

    def program(worker: FakeWorker) -> None:
        inner(worker)
        if worker.request.assign.attempt_number > 1:
            paths = ("step-1.pt",)
            found = StatesDamaged(attempt_id=worker.id, paths=paths, resumed_from=None)
            worker.later(0.2, lambda: worker.say(found))

    world = pausing(program, n_trials=12, n_devices=1)
    result = world.run()
    assert result.n_completed + result.n_pruned == 12
    assert not any("reports step 1 again" in text for text in world.said)
    assert any("starts from the beginning" in text for text in world.said)
    assert "paused" in outcomes(world)[len(world.workers) - 6 :]
    for trial in world.stored_trials():
        if trial.state is TrialState.COMPLETE:
            assert set(trial.intermediate_values) == set(range(1, LAST_STEP + 1))


@pytest.mark.parametrize("is_torn", [False, True], ids=["gone", "torn"])
def test_a_winner_without_its_state_starts_again_with_right_steps(
    pausing: Callable[..., World], *, is_torn: bool
) -> None:
    seen: list[tuple[int, int]] = []
    # The first is the best, which is seen once two worse ones came.
    program = saving_whole(seen, lambda number: -float(number))
    world = pausing(program, n_trials=6, n_devices=1)
    world.turn_until(lambda: world.search.counts.n_paused == 2)
    for path in world.files.root.glob("trial-*/checkpoints/*"):
        path.write_bytes(b"cut off") if is_torn else path.unlink()
    n_before = len(seen)
    result = world.run()
    assert result.n_completed + result.n_pruned == 6
    for trial in world.stored_trials():
        reported = list(trial.intermediate_values)
        assert reported == list(range(1, len(reported) + 1))
        assert set(trial.intermediate_values.values()) == {-float(trial.number)}
    assert len(attempts_of(world, 0)) > 1
    assert (0, 1) in seen[n_before:]
    assert not any("reports step" in text for text in world.said)


def test_reports_that_skip_the_rungs_are_judged_at_the_next_one(
    pausing: Callable[..., World],
) -> None:
    world = pausing(saving(reports_every=2), n_trials=12, n_devices=2)
    result = world.run()
    assert result.n_completed + result.n_pruned == 12
    assert result.n_pruned > 0
    for trial in world.stored_trials():
        rungs = {key for key in trial.system_attrs if key.startswith("completed_rung_")}
        n_passed = sum(max(trial.intermediate_values) >= step for step in (1, 3))
        assert len(rungs) >= n_passed
        assert set(trial.intermediate_values) <= {2, 4, 6, 8}


def test_rungs_beyond_the_programs_last_step_are_told_once(tmp_path: Path) -> None:
    pruner = AshaPruner(min_resource=LAST_STEP + 1)
    world = World(tmp_path, saving(), pruner=pruner, n_trials=4)
    assert world.run().n_completed == 4
    told = [text for text in world.said if "not compared with others" in text]
    assert len(told) == 1
    assert "completed at step 9, before the first rung at step 10, so it" in told[0]
    assert "Set a smaller min_resource (pruner)." in told[0]


def test_a_program_that_reports_once_is_not_sent_to_the_rungs(tmp_path: Path) -> None:
    pruner = AshaPruner(min_resource=LAST_STEP + 1)
    world = World(tmp_path, saving(reports_every=LAST_STEP), pruner=pruner, n_trials=4)
    assert world.run().n_completed == 4
    assert all(len(trial.intermediate_values) == 1 for trial in world.stored_trials())
    told = [text for text in world.said if "not compared with others" in text]
    assert len(told) == 1
    assert "reported at a single step, " in told[0]
    assert "report after each epoch, with a step that counts up; otherwise write" in told[0]
    assert "min_resource" not in told[0]


def test_nan_in_the_middle_ends_its_trial_alone(pausing: Callable[..., World]) -> None:
    world = pausing(saving(lambda number: math.nan if number % 3 == 1 else number), n_trials=9)
    result = world.run()
    assert result.n_completed + result.n_pruned == 9
    states = [trial.state for trial in world.stored_trials()]
    assert {states[number] for number in (1, 4, 7)} == {TrialState.PRUNED}
    assert states[8] is TrialState.COMPLETE
