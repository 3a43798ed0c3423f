"""Trials on several devices: started together, ended together, one verdict for all ranks."""

from __future__ import annotations

import signal

import optuna
import pytest
import sqlalchemy as sa

from tests.fakes import a_gpu
from tests.integration.dispatcher.world import FakeWorker, World, sleeps
from tuner.devices.allocation.width import Devices, FixedWidth, Share, WidthByParameter, parts_of
from tuner.domain.attempt import Cause, Outcome
from tuner.domain.messages import Action, Decided
from tuner.errors import DeviceError
from tuner.search_spaces import parse_space
from tuner.store.schema.models import AttemptRow, LeaseRow

TWO = Devices(n_devices=2)
WIDTHS = parse_space({"w": {"type": "categorical", "choices": [1, 2, 4]}})


@pytest.fixture
def make_ddp(make_world):
    def make(program=sleeps, *, n_devices: int = 2, n_ranks: int = 2, **keywords) -> World:
        width = Devices(n_devices=n_ranks)
        wide = {"rule": FixedWidth(width=width), "widths": (width,), "is_ddp": True}
        return make_world(program, n_devices=n_devices, **wide, **keywords)

    return make


def completes_together(worker: FakeWorker) -> None:
    worker.later(0.1, worker.hello)
    if worker.rank == 0:
        worker.later(0.5, lambda: worker.report(1))
        worker.later(1.0, worker.complete)
    else:
        worker.later(1.0, lambda: worker.finish(Outcome.COMPLETED))
        worker.later(1.1, lambda: worker.exit(0))


def ending(world: World):
    (ended,) = world.ended
    return ended.ending


def test_each_trial_gets_all_its_devices_or_none(make_ddp):
    world = make_ddp(completes_together, n_devices=5, n_trials=6)
    result = world.run()
    assert result.n_completed == 6
    assert world.n_running_at_most == 2, "the fifth device is of no use to trials of two"
    leases = world.rows(LeaseRow)
    assert len(leases) == 12
    assert {lease.share for lease in leases} == {1.0}


def test_ranks_differ_in_their_place_and_meet_at_one_port(make_ddp):
    world = make_ddp(n_devices=4, n_trials=2)
    world.turn()
    first, second = ([w for w in world.workers if w.trial_number == n] for n in (0, 1))
    assert [worker.request.environment["RANK"] for worker in first] == ["0", "1"]
    visible = {worker.request.environment["CUDA_VISIBLE_DEVICES"] for worker in first}
    assert visible == {f"{a_gpu(0).id},{a_gpu(1).id}"}
    ports = [{w.request.environment["MASTER_PORT"] for w in group} for group in (first, second)]
    assert [len(each) for each in ports] == [1, 1]
    assert ports[0] != ports[1]


def test_attempt_runs_once_every_rank_said_hello(make_ddp):
    world = make_ddp()
    world.program = lambda worker: None
    world.turn()
    zero, one = world.workers
    zero.hello()
    world.turn()
    assert world.rows(AttemptRow)[0].state.value == "leased"
    one.hello()
    world.turn(1.0)
    assert world.rows(AttemptRow)[0].state.value == "running"


def test_rank_that_never_says_hello_ends_the_launch(make_ddp):
    world = make_ddp(n_trials=1)
    world.program = lambda worker: worker.later(0.1, worker.hello) if worker.rank == 0 else None
    world.run()
    assert ending(world).outcome is Outcome.FAILED_TO_START
    assert "did not say hello" in ending(world).detail


def test_what_rank_0_decided_reaches_the_others(make_ddp):
    world = make_ddp()
    world.turn(1.0)
    zero, one = world.workers
    decided = Decided(attempt_id=zero.id, count=1, step=3, action=Action.PRUNE, reason="why")
    zero.say(decided)
    world.turn()
    assert decided in one.heard


def test_rank_that_comes_late_hears_the_last_decision(make_ddp):
    world = make_ddp()
    world.program = lambda worker: None
    world.turn()
    zero, one = world.workers
    zero.hello()
    for count in (1, 2):
        zero.say(Decided(attempt_id=zero.id, count=count, step=count, action=Action.CONTINUE))
    world.turn()
    one.hello()
    world.turn()
    assert [message.count for message in one.heard if isinstance(message, Decided)] == [2]


def test_verdict_to_end_reaches_commands_of_every_rank(make_ddp):
    world = make_ddp(pruner=optuna.pruners.ThresholdPruner(lower=0.9))
    world.turn(1.0)
    zero, one = world.workers
    zero.report(1, 0.1)
    world.turn()
    assert [worker.verdicts[-1].action for worker in (zero, one)] == [Action.PRUNE] * 2


def test_first_rank_that_fails_ends_the_group_and_is_the_cause(make_ddp):
    world = make_ddp(n_trials=1)
    world.turn(1.0)
    zero, one = world.workers
    one.fail("ValueError: mine")
    zero.fail("RuntimeError: Connection closed by peer")
    world.run()
    assert ending(world).detail == "Rank 1: ValueError: mine"
    assert world.ended[0].log_path.endswith("attempt-1.rank-1.log")
    assert world.launcher.signals == []


LOST = "RuntimeError: Connection closed by peer"
TIMED_OUT = "RuntimeError: Timed out waiting 6000ms for recv operation to complete"


def test_rank_that_left_is_named_and_not_the_one_that_waited_for_it(make_ddp):
    world = make_ddp(n_trials=1)
    world.turn(1.0)
    zero, one = world.workers
    zero.fail(LOST)
    one.finish(Outcome.COMPLETED)
    one.exit(0)
    world.run()
    told = ending(world)
    assert (told.outcome, told.cause) == (Outcome.FAILED, Cause.RANKS)
    assert told.detail.startswith("Rank 1 left while rank 0 waited in a collective.")
    assert told.detail.endswith(f"Rank 0, which waited: {LOST}")
    assert world.ended[0].log_path.endswith("attempt-1.rank-1.log")


@pytest.mark.parametrize("is_stubborn", [True, False])
def test_rank_that_hung_is_named_and_not_the_one_that_waited_for_it(make_ddp, is_stubborn):
    world = make_ddp(n_trials=1)
    world.turn(1.0)
    if is_stubborn:
        world.launcher.stubborn.add(world.workers[0].id)
    world.workers[0].fail(TIMED_OUT)
    world.run()
    assert ending(world).cause is Cause.RANKS
    assert ending(world).detail.startswith("Rank 1 hung: rank 0 waited in a collective until")


def test_rank_that_fails_on_a_connection_of_its_own_blames_no_other(make_ddp):
    world = make_ddp(n_trials=1)
    world.turn(1.0)
    world.workers[0].fail("ConnectionRefusedError: [Errno 111] Connection refused")
    world.run()
    assert ending(world).detail.startswith("Rank 0: ConnectionRefusedError")


def test_rank_that_waits_for_one_that_failed_is_ended_soon(make_ddp):
    world = make_ddp(n_trials=1)
    world.turn(1.0)
    world.launcher.stubborn.add(world.workers[0].id)
    world.workers[1].fail("ValueError: mine")
    began_s = world.now_s
    world.run()
    assert [number for _, number in world.launcher.signals] == [signal.SIGTERM, signal.SIGKILL]
    assert world.now_s - began_s < 6
    assert ending(world).detail == "Rank 1: ValueError: mine"


def test_rank_that_hangs_when_the_others_have_ended_is_ended_and_costs_no_result(make_ddp):
    world = make_ddp(n_trials=1)
    world.turn(1.0)
    world.workers[0].complete(0.7)
    result = world.run()
    assert result.n_completed == 1
    assert "rank 1 had not ended 10 s after rank 0" in ending(world).detail
    assert world.stored_trials()[0].value == 0.7


def test_rank_0_that_hangs_when_the_others_have_ended_fails(make_ddp):
    world = make_ddp(n_trials=1)
    world.turn(1.0)
    world.workers[1].finish(Outcome.COMPLETED)
    world.workers[1].exit(0)
    world.run()
    assert (ending(world).outcome, ending(world).cause) == (Outcome.FAILED, Cause.RANKS)
    assert "rank 0 had not ended 10 s after rank 1" in ending(world).detail


def test_ctrl_c_and_timeout_end_every_rank(make_ddp):
    world = make_ddp(n_trials=1, timeout_s=60.0)
    world.run()
    assert ending(world).outcome is Outcome.TIMED_OUT
    again = make_ddp(n_trials=2)
    again.turn(1.0)
    again.interrupt()
    assert again.run().is_interrupted
    assert [e.ending.outcome for e in again.ended] == [Outcome.CANCELLED]


def test_devices_are_free_again_only_when_every_rank_is_gone(make_ddp):
    world = make_ddp(n_trials=2)
    world.turn(1.0)
    zero, one = world.workers
    zero.complete()
    world.turn()
    assert len(world.workers) == 2
    one.finish(Outcome.COMPLETED)
    one.exit(0)
    world.turn()
    assert len(world.workers) == 4


def test_port_that_was_taken_costs_no_retry(make_ddp):
    world = make_ddp(n_trials=1, retries=0)
    detail = "OSError: [Errno 98] Address already in use"
    world.program = lambda worker: (
        (worker.later(0.1, worker.hello), worker.later(0.2, lambda: worker.fail(detail)))
        if worker.request.assign.attempt_number < 3
        else completes_together(worker)
    )
    result = world.run()
    assert result.n_completed == 1
    ports = [w.request.environment["MASTER_PORT"] for w in world.workers if w.rank == 0]
    assert len(set(ports)) == len(ports) == 3


def test_port_that_is_always_taken_fails_in_the_end(make_ddp):
    world = make_ddp(n_trials=1)
    world.program = lambda worker: (
        worker.later(0.1, worker.hello),
        worker.later(0.2, lambda: worker.fail("EADDRINUSE")),
    )
    assert world.run().n_failed == 1
    assert {e.ending.cause for e in world.ended} == {Cause.PORT_TAKEN}


def test_a_hundred_groups_in_a_row_end_as_their_ranks_did(make_ddp):
    def program(worker: FakeWorker) -> None:
        worker.later(0.1, worker.hello)
        match worker.trial_number % 4:
            case 0:
                completes_together(worker)
            case 1 if worker.rank == 1:
                worker.later(0.3, lambda: worker.exit(-9))
            case 2 if worker.rank == 0:
                worker.later(0.3, lambda: worker.fail("ValueError"))
            case 3 if worker.rank == 0:
                worker.later(0.3, worker.complete)

    world = make_ddp(program, n_trials=100)
    result = world.run()
    assert (result.n_completed, result.n_failed) == (50, 50)


# -- mixed widths ------------------------------------------------------------------------------


@pytest.fixture
def make_mixed(make_world):
    def make(program, **keywords) -> World:
        widths = tuple(Devices(n_devices=n) for n in (1, 2, 4))
        mixed = {"rule": WidthByParameter(name="w"), "widths": widths, "is_ddp": True}
        return make_world(program, space=WIDTHS, n_devices=4, **mixed, **keywords)

    return make


def test_a_study_mixes_widths_and_runs_every_trial(make_mixed):
    world = make_mixed(completes_together, n_trials=40)
    assert world.run().n_completed == 40
    by_trial = {w.trial_number: w.request.assign for w in world.workers}
    assert {len(a.devices) for a in by_trial.values()} == {1, 2, 4}
    assert all(len(a.devices) == a.params["w"] for a in by_trial.values())


def test_trials_that_wait_for_devices_are_put_back_by_ctrl_c(make_mixed):
    world = make_mixed(sleeps, n_trials=30)
    world.turn(1.0)
    world.interrupt()
    world.run()
    assert set(world.stored_states()) == {"WAITING"}
    assert "RUNNING" not in world.stored_states()


def test_trial_that_lost_its_devices_waits_and_narrow_ones_go_on(make_mixed):
    world = make_mixed(sleeps, n_trials=12)
    world.turn(1.0)
    world.probe.lose(a_gpu(3))
    for worker in world.workers:
        worker.later(1.0, lambda w=worker: w.finish(Outcome.COMPLETED, values={"accuracy": 0.5}))
        worker.later(1.0, lambda w=worker: w.exit(0))
    world.program = completes_together
    result = world.run()
    assert result.is_stranded
    assert "need more devices than any dispatcher has" in result.reason
    widths = {t.params["w"] for t in world.stored_trials() if t.state.name == "WAITING"}
    assert widths == {4}
    assert any("wider than what is left" in text for text in world.said)
    with world.database.engine.connect() as connection:
        states = "select count(*) from trials where state = 'RUNNING'"
        assert connection.execute(sa.text(states)).scalar() == 0, "one stays claimed"


def test_study_ends_when_no_trial_can_fit_any_more(make_ddp):
    world = make_ddp(n_trials=9)
    world.turn(1.0)
    world.probe.lose(a_gpu(1))
    for worker in world.workers:
        worker.later(1.0, lambda w=worker: w.exit(1))
    with pytest.raises(DeviceError, match="Too few devices"):
        world.run()


# -- shares ------------------------------------------------------------------------------------


def test_four_quarters_run_on_one_device(make_world):
    quarter = Share(parts=parts_of(0.25))
    shared = {"rule": FixedWidth(width=quarter), "widths": (quarter,)}
    world = make_world(n_devices=1, n_trials=8, **shared)
    assert world.run().n_completed == 8
    assert world.n_running_at_most == 4
    assert {lease.share for lease in world.rows(LeaseRow)} == {0.25}
    limits = {worker.request.memory_fraction for worker in world.workers}
    assert all(limit is not None and 0.2 < limit < 0.25 for limit in limits)
