"""How attempts end, what the study is told, and when what people hear is true."""

from __future__ import annotations

import math

import optuna
import pytest

from tests.fakes import RecordingView
from tests.integration.dispatcher.database_faults import DiskFull
from tests.integration.dispatcher.world import (
    GRACE_S,
    FakeWorker,
    completes,
    is_prune,
    sleeps,
)
from tuner.dispatch.notices import Ended, Notice
from tuner.domain.attempt import Cause, Outcome
from tuner.domain.messages import (
    Action,
    Assign,
    Decided,
    Finished,
    Report,
    SetAttribute,
    SetConstraint,
    Suggest,
    Suggested,
)
from tuner.store.schema.models import AttemptRow, MetricRow


def fails(worker: FakeWorker) -> None:
    worker.later(0.1, worker.hello)
    worker.later(1.0, worker.fail)


def crashes(worker: FakeWorker) -> None:
    worker.later(0.1, worker.hello)
    worker.later(1.0, lambda: worker.exit(-11))


def never_says_hello(worker: FakeWorker) -> None: ...


def dies_at_once(worker: FakeWorker) -> None:
    worker.exit(1)


def prunes_itself(worker: FakeWorker) -> None:
    done = Finished(attempt_id=worker.id, outcome=Outcome.PRUNED, cause=Cause.PROGRAM)
    worker.later(0.1, worker.hello)
    worker.later(0.5, lambda: worker.report(1))
    worker.later(1.0, lambda: (worker.say(done), worker.exit(0)))


def gives_no_value(worker: FakeWorker) -> None:
    done = Finished(attempt_id=worker.id, outcome=Outcome.COMPLETED)
    worker.later(0.1, worker.hello)
    worker.later(1.0, lambda: (worker.say(done), worker.exit(0)))


def gives_another_value(worker: FakeWorker) -> None:
    done = Finished(attempt_id=worker.id, outcome=Outcome.COMPLETED, values={"other": 1.0})
    worker.later(0.1, worker.hello)
    worker.later(1.0, lambda: (worker.say(done), worker.exit(0)))


def writes_bytes_nobody_can_store(worker: FakeWorker) -> None:
    worker.later(0.1, worker.hello)
    worker.later(1.0, lambda: worker.fail("no file \udcff\0" + "x" * 100_000))


@pytest.mark.parametrize(
    ("program", "outcome", "cause", "state"),
    [
        (completes, "completed", None, "COMPLETE"),
        (prunes_itself, "pruned", "program", "PRUNED"),
        (fails, "failed", "exception", "FAIL"),
        (crashes, "failed", "signal", "FAIL"),
        (gives_no_value, "failed", "no_result", "FAIL"),
        (gives_another_value, "failed", "no_result", "FAIL"),
        (sleeps, "timed_out", "timeout", "FAIL"),
        (never_says_hello, "failed_to_start", "launch", "FAIL"),
        (dies_at_once, "failed_to_start", "launch", "FAIL"),
        (writes_bytes_nobody_can_store, "failed", "exception", "FAIL"),
    ],
)
def test_outcome_and_state_in_optuna(make_world, program, outcome, cause, state):
    world = make_world(program, n_devices=1, n_trials=1, timeout_s=60.0)
    world.run()
    (row,) = world.rows(AttemptRow)
    assert (row.outcome.value, row.cause and row.cause.value) == (outcome, cause)
    assert row.state.value == "finished"
    assert world.stored_states() == [state]
    assert world.endings == [("0.1", outcome)]


def test_launch_that_fails_is_an_outcome(make_world):
    world = make_world(n_devices=1, n_trials=2)
    world.launcher.problem = "The process could not be started: no memory"
    result = world.run()
    assert result.n_failed == 2
    assert [e.ending.detail for e in world.ended] == [world.launcher.problem] * 2


def test_completed_message_that_was_not_read_before_the_exit_counts(make_world):
    world = make_world(sleeps, n_devices=1, n_trials=1)
    world.turn(1.0)
    (worker,) = world.workers
    worker.exit(0)
    worker.say(Finished(attempt_id=worker.id, outcome=Outcome.COMPLETED, values={"accuracy": 0.9}))
    world.turn()
    assert world.endings == [("0.1", "completed")]


def test_timeout_sends_term_at_the_limit_and_kill_after_the_grace(make_world):
    world = make_world(sleeps, n_devices=1, n_trials=1, timeout_s=60.0)
    world.turn(0.25)
    world.launcher.stubborn.add(world.workers[0].id)
    world.turn(59.5)
    assert world.launcher.signals == []
    world.turn(1.0)
    assert [s.name for _, s in world.launcher.signals] == ["SIGTERM"]
    world.turn(GRACE_S - 1.5)
    assert len(world.launcher.signals) == 1
    world.turn(1.0)
    assert [s.name for _, s in world.launcher.signals] == ["SIGTERM", "SIGKILL"]
    world.turn()
    assert world.endings == [("0.1", "timed_out")]
    assert world.ended[0].ending.detail == "It did not end within 60 s."


def test_launch_timeout_names_itself(make_world):
    world = make_world(never_says_hello, n_devices=1, n_trials=1)
    world.run()
    assert world.ended[0].ending.detail == "Its process did not say hello within 30 s."


def test_process_that_stays_after_its_last_word_is_ended(make_world):
    world = make_world(sleeps, n_devices=1, n_trials=1)
    world.turn(1.0)
    (worker,) = world.workers
    world.launcher.stubborn.add(worker.id)
    worker.say(Finished(attempt_id=worker.id, outcome=Outcome.COMPLETED, values={"accuracy": 0.9}))
    world.turn(GRACE_S - 1)
    assert world.launcher.signals == []
    world.turn(GRACE_S + 2)
    assert [s.name for _, s in world.launcher.signals] == ["SIGTERM", "SIGKILL"]
    assert world.endings == [("0.1", "completed")]


def test_retry_is_the_same_trial_with_the_same_params_and_another_seed(make_world):
    world = make_world(fails, n_devices=1, n_trials=1, retries=2)
    result = world.run()
    assert [worker.id for worker in world.workers] == ["0.1", "0.2", "0.3"]
    assigned = [worker.request.assign for worker in world.workers]
    assert len({a.params["x"] for a in assigned}) == 1
    assert len({a.seed for a in assigned}) == 3
    assert [e.will_retry for e in world.ended] == [True, True, False]
    assert (result.n_failed, world.stored_states()) == (1, ["FAIL"])


def test_retry_that_works_completes_the_trial(make_world):
    def program(worker: FakeWorker) -> None:
        (completes if worker.id.endswith(".2") else fails)(worker)

    world = make_world(program, n_devices=2, n_trials=3, retries=1)
    assert world.run().n_completed == 3
    assert len(world.workers) == 6
    assert world.stored_states() == ["COMPLETE"] * 3


def test_trial_that_ran_out_of_its_time_is_not_tried_again(make_world):
    world = make_world(sleeps, n_devices=1, n_trials=1, retries=3, timeout_s=5.0)
    world.run()
    assert len(world.workers) == 1


def test_curve_of_a_retry_replaces_what_it_reports_again(make_world):
    def program(worker: FakeWorker) -> None:
        worker.later(0.1, worker.hello)
        is_first = worker.id == "0.1"
        for step in (1, 2, 3) if is_first else (2, 3, 4):
            value = 0.1 if is_first else 0.9
            worker.later(step * 1.0, lambda s=step, v=value: worker.report(s, v))
        worker.later(5.0, worker.fail if is_first else worker.complete)

    world = make_world(program, n_devices=1, n_trials=1, retries=1)
    world.run()
    (trial,) = world.stored_trials()
    assert trial.intermediate_values == {1: 0.1, 2: 0.9, 3: 0.9, 4: 0.9}


# -- reports -----------------------------------------------------------------------------------


def test_each_report_is_answered_with_its_step(make_world):
    world = make_world(sleeps, n_devices=1)
    world.turn(1.0)
    (worker,) = world.workers
    for step in (1, 2, 3):
        worker.report(step)
    world.turn()
    assert [(v.step, v.action) for v in worker.verdicts] == [
        (step, Action.CONTINUE) for step in (1, 2, 3)
    ]


def deaf(worker: FakeWorker) -> None:
    """It never asks whether it should end."""
    worker.later(0.1, worker.hello)
    for step in range(1, 5):
        worker.later(0.2 * step, lambda step=step: worker.report(step, 0.1))
    worker.later(1.0, worker.complete)


def test_program_that_does_not_ask_whether_to_end_is_named_once(make_world):
    pruner = optuna.pruners.ThresholdPruner(lower=0.5)
    world = make_world(deaf, n_devices=1, n_trials=8, pruner=pruner)
    assert world.run().n_completed == 8
    (said,) = world.said
    assert said.startswith("3 trials were to end early and went on to their end")
    assert "call trial.should_prune() after each trial.report(...)" in said


def test_program_that_sometimes_ends_early_is_not_named(make_world):
    """Some trials are at their last step when the verdict arrives."""

    def program(worker: FakeWorker) -> None:
        if worker.trial_number != 1:
            deaf(worker)
            return
        worker.later(0.1, worker.hello)
        worker.later(0.2, lambda: worker.report(1, 0.1))
        worker.later(0.6, lambda: worker.finish(Outcome.PRUNED, cause=Cause.PRUNER))
        worker.later(0.7, lambda: worker.exit(0))

    pruner = optuna.pruners.ThresholdPruner(lower=0.5)
    world = make_world(program, n_devices=1, n_trials=8, pruner=pruner)
    result = world.run()
    assert (result.n_completed, result.n_pruned) == (7, 1)
    assert not world.said


def test_program_whose_trials_are_all_good_is_not_named(make_world):
    world = make_world(deaf, n_devices=1, n_trials=8, pruner=optuna.pruners.NopPruner())
    assert world.run().n_completed == 8
    assert not world.said


def test_pruner_gives_up_and_says_why(make_world):
    pruner = optuna.pruners.ThresholdPruner(lower=0.5)
    world = make_world(sleeps, n_devices=1, n_trials=1, pruner=pruner)
    world.turn(1.0)
    (worker,) = world.workers
    worker.report(1, 0.9)
    worker.report(2, 0.1)
    world.turn()
    assert [is_prune(verdict) for verdict in worker.verdicts] == [False, True]
    assert worker.verdicts[-1].reason == "Threshold pruned it at step 2 (accuracy 0.1)"
    worker.report(3, 0.9)  # Its verdict stays until the program asks for it.
    world.turn()
    assert [is_prune(verdict) for verdict in worker.verdicts] == [False, True, True]
    assert worker.verdicts[-1].reason == "Threshold pruned it at step 2 (accuracy 0.1)"
    worker.say(Decided(attempt_id=worker.id, count=0, step=3, action=Action.PRUNE))
    worker.exit(1)  # As a script may that takes the verdict in its own way.
    world.run()
    assert world.endings == [("0.1", "pruned")]
    assert world.stored_states() == ["PRUNED"]


def test_failure_of_a_program_that_never_asked_is_no_pruning(make_world):
    pruner = optuna.pruners.ThresholdPruner(lower=0.5)
    world = make_world(sleeps, n_devices=1, n_trials=1, pruner=pruner)
    world.turn(1.0)
    (worker,) = world.workers
    worker.report(1, 0.1)
    worker.report(2, 0.9)
    worker.fail()
    world.run()
    assert world.endings == [("0.1", "failed")]


def test_verdict_does_not_wait_for_the_database(make_world):
    pruner = optuna.pruners.ThresholdPruner(lower=0.5)
    world = make_world(sleeps, n_devices=1, pruner=pruner)
    world.turn(1.0)
    (worker,) = world.workers
    worker.report(1, 0.1)
    with DiskFull(world.database) as disk:
        world.turn(1.0)
    assert disk.n_refused
    assert [is_prune(verdict) for verdict in worker.verdicts] == [True]


def test_reports_are_committed_soon(make_world):
    world = make_world(sleeps, n_devices=1)
    world.turn(1.0)
    world.workers[0].report(1, 0.7)
    world.turn(0.75)
    assert world.stored_trials()[0].intermediate_values == {1: 0.7}


def test_report_of_nan_does_not_disturb(make_world):
    world = make_world(sleeps, n_devices=1, n_trials=1, pruner=optuna.pruners.MedianPruner())
    world.turn(1.0)
    world.workers[0].report(1, math.nan, loss=math.inf)
    world.workers[0].complete()
    world.run()
    assert world.endings == [("0.1", "completed")]


def test_report_without_the_objective_costs_its_own_trial_only(make_world):
    world = make_world(sleeps, n_devices=1, n_trials=1)
    world.turn(1.0)
    (worker,) = world.workers
    worker.say(Report(attempt_id=worker.id, step=1, values={"other": 0.5}))
    worker.complete()
    world.run()
    assert world.endings == [("0.1", "completed")]


def test_script_below_a_worker_is_assigned_the_trial(make_world):
    world = make_world(sleeps, n_devices=1)
    world.turn(1.0)
    (worker,) = world.workers
    script = FakeWorker(world, worker.request)
    script.hello(is_worker=False)
    world.turn()
    (assign,) = script.heard
    assert isinstance(assign, Assign)
    assert assign == worker.request.assign


def test_questions_and_attributes_of_a_define_by_run_objective(make_world):
    world = make_world(sleeps, n_devices=1, n_trials=1, space=None)
    world.turn(1.0)
    (worker,) = world.workers
    uniform = optuna.distributions.distribution_to_json(
        optuna.distributions.FloatDistribution(0.0, 1.0)
    )
    other = optuna.distributions.distribution_to_json(
        optuna.distributions.CategoricalDistribution(["a"])
    )
    worker.say(Suggest(attempt_id=worker.id, name="lr", distribution=uniform))
    worker.say(Suggest(attempt_id=worker.id, name="lr", distribution=other))
    worker.say(SetAttribute(attempt_id=worker.id, key="note", value={"a": [1]}))
    worker.say(SetConstraint(attempt_id=worker.id, key="c", value=0.5))
    world.turn()
    first, second = worker.heard
    assert isinstance(first, Suggested)
    assert isinstance(second, Suggested)
    assert 0 <= first.value <= 1
    assert second.error
    worker.complete()
    world.run()
    (trial,) = world.stored_trials()
    assert trial.params == {"lr": first.value}
    assert trial.user_attrs["note"] == {"a": [1]}
    assert trial.constraints == {"c": 0.5}


@pytest.mark.parametrize("distribution", ["", "{}", '{"name": "Nothing", "attributes": {}}'])
def test_question_that_makes_no_sense_is_answered_with_an_error(make_world, distribution):
    world = make_world(sleeps, n_devices=1, space=None)
    world.turn(1.0)
    (worker,) = world.workers
    worker.say(Suggest(attempt_id=worker.id, name="lr", distribution=distribution))
    world.turn()
    (answer,) = worker.heard
    assert isinstance(answer, Suggested)
    assert answer.error


# -- what people and the database know ---------------------------------------------------------


def test_notices_are_shown_only_after_the_commit(make_world):
    known = []

    class LookingView(RecordingView):
        def show(self, notice: Notice) -> None:
            if isinstance(notice, Ended):
                known.append(world.stored_states()[notice.attempt.trial_number])

    world = make_world(n_devices=1, n_trials=2, view=LookingView())
    world.run()
    assert known == ["COMPLETE", "COMPLETE"]


def test_best_is_marked_and_shown(make_world):
    values = iter((0.5, 0.9, 0.7))

    def program(worker: FakeWorker) -> None:
        worker.later(0.1, worker.hello)
        worker.later(1.0, lambda: worker.complete(next(values)))

    world = make_world(program, n_devices=1, n_trials=3)
    world.run()
    assert [e.is_best for e in world.ended] == [True, True, False]
    best = world.view.snapshots[-1].best
    assert best is not None
    assert (best.number, best.values) == (1, {"accuracy": 0.9})


def test_snapshot_says_how_the_study_stands(make_world):
    world = make_world(sleeps, n_devices=3, n_trials=2)
    world.turn(1.0)
    world.workers[0].report(4, 0.25)
    world.turn(1.0)
    snapshot = world.view.snapshots[-1]
    assert (snapshot.n_begun, snapshot.n_trials, snapshot.fraction) == (2, 2, 0.0)
    assert snapshot.idle_devices == ("GPU 2",)
    first = snapshot.running[0]
    assert (first.step, first.values, first.state) == (4, {"accuracy": 0.25}, "running")
    assert (first.devices, first.params) == (("GPU 0",), world.workers[0].request.assign.params)


def test_instants_of_an_attempt_are_its_workers_own(make_world):
    """However late the loop comes round to what they say, as with 256 slots."""
    world = make_world(lambda worker: None, n_devices=1, n_trials=1)
    world.turn(0.1)
    (worker,) = world.workers
    began_s = world.clock.since_boot_s + 0.25
    world.clock.advance(3.0)
    worker.hello(since_boot_s=began_s)
    worker.finish(Outcome.COMPLETED, values={world.objective: 0.5}, since_boot_s=began_s + 1.0)
    worker.exit(0)
    world.run()
    (row,) = world.rows(AttemptRow)
    assert (row.started_at - row.leased_at).total_seconds() == pytest.approx(0.35, abs=0.2)
    assert (row.ended_at - row.started_at).total_seconds() == 1.0


def test_instants_that_cannot_be_are_not_taken(make_world):
    world = make_world(lambda worker: None, n_devices=1, n_trials=1)
    world.turn(1.0)
    (worker,) = world.workers
    worker.hello(since_boot_s=-1e9)
    worker.finish(Outcome.COMPLETED, values={world.objective: 0.5}, since_boot_s=1e300)
    worker.exit(0)
    world.run()
    (row,) = world.rows(AttemptRow)
    assert row.leased_at <= row.started_at <= row.ended_at <= row.finished_at


@pytest.mark.parametrize("name", ["n" * 513, "a\0b"], ids=["long", "nul"])
def test_names_that_no_database_holds_are_left_out(make_world, name: str):
    def program(worker: FakeWorker) -> None:
        worker.later(0.1, worker.hello)
        worker.later(0.2, lambda: worker.report(1, **{name: 0.1, "loss": 0.2}))
        for kind in (SetAttribute, SetConstraint):
            for key in (name, "good"):
                sent = kind(attempt_id=worker.id, key=key, value=1.0)
                worker.later(0.3, lambda sent=sent: worker.say(sent))
        worker.later(1.0, worker.complete)

    world = make_world(program, n_devices=1, n_trials=1)
    assert world.run().n_completed == 1
    (trial,) = world.stored_trials()
    assert trial.user_attrs == {"good": 1.0}
    assert [row.name for row in world.rows(MetricRow)] == ["loss"]
    (told,) = world.said
    assert told.startswith("Trial 0 sent what is left out: the name")
