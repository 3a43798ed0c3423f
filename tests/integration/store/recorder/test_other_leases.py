"""GPUs that are still leased to another dispatcher at a start, on every database."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import optuna
import pytest

from tests.hosts import ALIVE, DEAD, with_process
from tests.integration.store.recorder.recorded import GPUS, NOW, Store, later, lease
from tuner.domain.attempt import Attempt
from tuner.errors import StoreError
from tuner.host.clock import Instant
from tuner.store.records.dispatchers.silence import STALE_AFTER_S
from tuner.store.records.provenance import HostFacts
from tuner.store.records.recorder import Recorder
from tuner.store.schema.models import AttemptRow, DispatcherRow, LeaseRow

#: This container before its restart: the same host name, another PID namespace.
FORMER_SELF = with_process(DEAD, pid_namespace="1")


def at(seconds: float) -> Instant:
    return Instant(utc=NOW + timedelta(seconds=seconds), monotonic_s=seconds)


def holds_gpu_0(store: Store, host: HostFacts, study: str = "other") -> Recorder:
    """A dispatcher of a study of its own that has leased a GPU."""
    other = optuna.create_study(storage=store.database.storage, study_name=study)
    recorder = store.recorder(host, study_id=other._study_id)
    trial = other.ask()
    attempt = Attempt(
        trial_id=trial._trial_id, trial_number=trial.number, number=1, seed=1, leased_at=NOW
    )
    lease(recorder, attempt, GPUS[0])
    recorder.commit()
    return recorder


def own(store: Store, host: HostFacts = ALIVE) -> Recorder:
    mine = optuna.create_study(storage=store.database.storage, study_name="mine")
    return store.recorder(host, study_id=mine._study_id)


def states_of_other(store: Store) -> list[str]:
    """As any other program of Optuna reads them."""
    study = optuna.load_study(study_name="other", storage=store.url)
    return [trial.state.name for trial in study.trials]


def test_leases_of_a_dead_process_of_another_study_end_at_the_start(store: Store):
    holds_gpu_0(store, DEAD)
    recorder = own(store)
    assert recorder.fleet.leases.holders == {}
    assert [row["held_device_id"] for row in store.rows(LeaseRow)] == [None]
    assert store.rows(DispatcherRow)[0]["ended_at"] is not None
    assert states_of_other(store) == ["WAITING"]
    lease(recorder, replace(store.attempt(), leased_at=later(1)), GPUS[0])
    recorder.commit()


def test_leases_of_the_former_self_of_a_container_end_after_a_minute_of_silence(store: Store):
    holds_gpu_0(store, FORMER_SELF)
    leases = own(store).fleet.leases
    (holder,) = leases.holders.items()
    assert holder[0] == GPUS[0].id
    assert holder[1].startswith("here (pid ")
    for seconds in (*range(0, int(STALE_AFTER_S), 5), STALE_AFTER_S - 1):
        leases.look(at(seconds))
        assert leases.holders.keys() == {GPUS[0].id}
    leases.look(at(STALE_AFTER_S))
    assert leases.holders == {}
    assert states_of_other(store) == ["WAITING"]


def test_a_dispatcher_that_sends_heartbeats_keeps_its_leases(store: Store):
    other = holds_gpu_0(store, FORMER_SELF)
    leases = own(store).fleet.leases
    for seconds in range(10, 200, 30):
        other.beat(later(seconds), ())
        other.commit()
        leases.look(at(seconds))
        assert leases.holders.keys() == {GPUS[0].id}
    other.note("it may still write", at=later(200))
    other.commit()


def test_leases_of_a_living_process_are_a_matter_of_lock_files(store: Store):
    holds_gpu_0(store, ALIVE)
    assert own(store).fleet.leases.holders == {}


def test_leases_of_an_ended_record_end_at_the_start(store: Store):
    holds_gpu_0(store, FORMER_SELF)
    store.change(DispatcherRow, ended_at=NOW)
    assert own(store).fleet.leases.holders == {}
    assert [row["held_device_id"] for row in store.rows(LeaseRow)] == [None]
    assert [row["outcome"].value for row in store.rows(AttemptRow)] == ["lost"]


def test_leases_of_other_gpus_and_hosts_do_not_matter(store: Store):
    holds_gpu_0(store, with_process(FORMER_SELF, host="there"))
    assert own(store).fleet.leases.holders == {}
    mine = optuna.create_study(storage=store.database.storage, study_name="third")
    holds_gpu_0(store, FORMER_SELF, "fourth")
    recorder = store.recorder(ALIVE, study_id=mine._study_id, devices=GPUS[1:])
    assert recorder.fleet.leases.holders == {}
    recorder.add_devices(GPUS)
    recorder.fleet.leases.look(at(1))
    assert recorder.fleet.leases.holders.keys() == {GPUS[0].id}


def test_a_look_that_fails_makes_nobody_dead(store: Store, monkeypatch: pytest.MonkeyPatch):
    holds_gpu_0(store, FORMER_SELF)
    leases = own(store).fleet.leases
    leases.look(at(0))

    def refuse(work: object) -> None:
        raise StoreError("away")

    with monkeypatch.context() as away:
        away.setattr(store.database.access, "run", refuse)
        with pytest.raises(StoreError):
            leases.look(at(30))
    leases.look(at(STALE_AFTER_S + 1))
    assert leases.holders.keys() == {GPUS[0].id}
