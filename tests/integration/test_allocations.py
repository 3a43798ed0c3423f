"""Allocations as they are recorded, and as status, devices and the dashboard show them."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest
import sqlalchemy as sa

from tests.contract.engines.conftest import an_order
from tests.contract.engines.fakes import FakeEngine
from tests.integration.app.pages import opened, show_database
from tests.integration.stored_studies import seeded
from tests.servers import Server
from tuner.compose.allocations import submission
from tuner.compose.allocations.trial_time import check_trial_time
from tuner.config import load_study_file
from tuner.config.sections.engine import NodeRange
from tuner.domain.allocation import Allocation, AllocationState, OwnAllocation
from tuner.errors import ConfigError
from tuner.queries.allocations import StoredAllocation, read_allocations
from tuner.store.connection.database import open_database
from tuner.store.records.allocations import (
    Submission,
    begin_allocation,
    end_allocation_of,
    forget_allocations,
    insert_allocations,
    note_seen,
)
from tuner.store.schema.models import AttemptRow, CheckpointRow, DispatcherRow, table_of
from tuner.store.schema.statements import as_stored
from tuner.terminal.allocations import allocation_lines, allocations_text

NOW = seeded.NOW
PENDING, RUNNING = AllocationState.PENDING, AllocationState.RUNNING
SUBMISSION = Submission(engine="slurm", n_devices=4, submitted_by="me@login", at=NOW)


def an_allocation(number: int, state: AllocationState = PENDING, **more: object) -> Allocation:
    return Allocation(number=number, name=f"7_{number}", state=state, **more)  # type: ignore[arg-type]


def submitted(url: str, *allocations: Allocation) -> int:
    """A study that has submitted these; gives its id."""
    seeded.add_first_study(url)
    with seeded.writing(url) as connection:
        study_id = seeded.study_id(connection, "first")
        insert_allocations(connection, study_id, allocations, SUBMISSION)
    return study_id


def stored(url: str, study_id: int) -> list[StoredAllocation]:
    with seeded.looking(url) as connection:
        return read_allocations(connection, study_id)


def test_what_the_engine_tells_replaces_what_was_known(url: str) -> None:
    study_id = submitted(url, an_allocation(0), an_allocation(1), an_allocation(2))
    running = an_allocation(
        0, RUNNING, node="n1", started_at=NOW, deadline=NOW + timedelta(hours=4)
    )
    waiting = an_allocation(1, reason="Resources")
    with seeded.writing(url) as connection:
        note_seen(connection, study_id, "slurm", [running, waiting], NOW)
    first, second, third = stored(url, study_id)
    assert (first.state, first.node, first.deadline) == (RUNNING, "n1", NOW + timedelta(hours=4))
    assert (second.state, second.reason) == (PENDING, "Resources")
    # Engines forget ended ones.
    assert (third.state, third.ended_at) == (AllocationState.ENDED, NOW)


def test_one_that_is_requeued_has_no_node_and_no_end(url: str) -> None:
    running = an_allocation(0, RUNNING, node="n1", started_at=NOW, deadline=NOW)
    study_id = submitted(url, running)
    with seeded.writing(url) as connection:
        note_seen(connection, study_id, "slurm", [an_allocation(0, reason="BeginTime")], NOW)
    (found,) = stored(url, study_id)
    assert (found.state, found.node, found.started_at, found.deadline) == (
        PENDING,
        None,
        None,
        None,
    )


def test_another_engine_s_answer_changes_nothing(url: str) -> None:
    study_id = submitted(url, an_allocation(0))
    with seeded.writing(url) as connection:
        note_seen(connection, study_id, "ssh", [], NOW)
    assert stored(url, study_id)[0].state is PENDING


def test_a_dispatcher_finds_its_allocation_also_before_it_has_a_name(url: str) -> None:
    nameless = Allocation(number=0, name="", state=PENDING)
    study_id = submitted(url, nameless, an_allocation(1))

    def begin(name: str, number: int | None) -> int:
        own = OwnAllocation(engine="slurm", name=name, number=number)
        with seeded.writing(url) as connection:
            return begin_allocation(
                connection, study_id, own, node="n1", n_devices=2, by="me@n1", at=NOW
            )

    assert begin("7_0", 0) == begin("7_0", 0)
    begin("7_1", 1)
    begin("by-hand", None)
    found = stored(url, study_id)
    assert [(each.number, each.name, each.state) for each in found] == [
        (0, "7_0", RUNNING),
        (1, "7_1", RUNNING),
        (2, "by-hand", RUNNING),
    ]
    assert [each.submitted_by for each in found] == ["me@login", "me@login", "me@n1"]


def test_an_allocation_ends_with_its_dispatcher(url: str) -> None:
    study_id = submitted(url, an_allocation(0, RUNNING, started_at=NOW))
    dispatchers = table_of(DispatcherRow)
    with seeded.writing(url) as connection:
        dispatcher_id = connection.execute(sa.select(sa.func.max(dispatchers.c.id))).scalar_one()
        end_allocation_of(connection, dispatcher_id, "of another", as_stored(NOW))
    assert stored(url, study_id)[0].state is RUNNING
    own = OwnAllocation(engine="slurm", name="7_0", number=0)
    with seeded.writing(url) as connection:
        allocation_id = begin_allocation(
            connection, study_id, own, node="n1", n_devices=4, by="me@n1", at=NOW
        )
        change = sa.update(dispatchers).where(dispatchers.c.id == dispatcher_id)
        connection.execute(change.values(allocation_id=allocation_id))
        end_allocation_of(connection, dispatcher_id, "idle", as_stored(NOW))
    (found,) = stored(url, study_id)
    assert (found.state, found.reason, found.ended_at) == (AllocationState.ENDED, "idle", NOW)


def test_a_refused_submission_leaves_nothing(url: str) -> None:
    study_id = submitted(url, an_allocation(0), Allocation(number=1, name="", state=PENDING))
    with seeded.writing(url) as connection:
        forget_allocations(connection, study_id, [1])
    assert [each.number for each in stored(url, study_id)] == [0]


def test_a_time_in_which_no_trial_has_completed_is_refused(url: str, tmp_path: Path) -> None:
    study_id = submitted(url)
    database = open_database(url)

    def check(time_s: float) -> None:
        order = an_order("first", tmp_path, 1.0)
        check_trial_time("study.yaml", replace(order, time_s=time_s), database, study_id)

    with seeded.writing(url) as connection:
        long = {"leased_at": as_stored(NOW), "finished_at": as_stored(NOW + timedelta(minutes=9))}
        connection.execute(sa.update(table_of(AttemptRow)).values(long))
    check(60.0)  # Trials save: they continue in the next allocation.
    with seeded.writing(url) as connection:
        connection.execute(sa.delete(table_of(CheckpointRow)))
    with pytest.raises(ConfigError, match=r"none has saved a checkpoint\. Give it at least 10m"):
        check(540.0)
    check(600.0)
    database.close()


class LocalEngine(FakeEngine):
    """Its nodes are this machine, so that they reach the server of the tests."""

    copies_files = False

    def nodes_are_here(self) -> bool:
        return True


def test_scaling_down_ends_what_is_idle_first(
    tmp_path: Path, postgresql: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    url, engine = postgresql.new_database(), LocalEngine(n_nodes=4)
    monkeypatch.setattr(submission, "open_engine", lambda settings: engine)
    (tmp_path / "program.py").write_text("def train(trial):\n    return trial.params['x']\n")
    file = tmp_path / "study.yaml"
    file.write_text(
        f"study: first\nstorage: {url}\ntrial: {{function: 'program:train'}}\n"
        "search_space: {x: {type: float, low: 0, high: 1}}\nengine: {name: ssh}\n"
    )
    plan = submission.plan_submission(load_study_file(file, environ={}), None)
    there = engine.submit(plan.order, range(5))
    assert [each.state for each in there] == [RUNNING] * 4 + [PENDING]
    seeded.add_first_study(url)
    # Trials run in three of the four.
    for trial, number in enumerate((0, 1, 3)):
        own = OwnAllocation(engine=engine.name, name=there[number].name, number=number)
        with seeded.writing(url) as connection:
            row = begin_allocation(
                connection,
                seeded.study_id(connection, "first"),
                own,
                node="n",
                n_devices=2,
                by="me@n",
                at=NOW,
            )
        dispatcher_id = seeded.add_dispatcher(url, "first", is_alive=True, allocation_id=row)
        seeded.add_attempt(url, dispatcher_id, trial, outcome=None, number=9, device=10 + number)

    def ended(most: int) -> tuple[str, ...]:
        return submission.scale(plan, NodeRange(least=1, most=most)).ending

    assert ended(4) == ("first-4",)
    assert ended(3) == ("first-2",)
    assert ended(1) == ("first-3", "first-1")


def test_lines_and_table_for_a_terminal(url: str) -> None:
    begin, end = NOW - timedelta(minutes=72), NOW + timedelta(minutes=168)
    running = an_allocation(0, RUNNING, node="gpu07", started_at=begin, deadline=end)
    failed = an_allocation(2, AllocationState.FAILED, reason="NODE_FAIL")
    over = an_allocation(3, AllocationState.ENDED)
    study_id = submitted(url, running, an_allocation(1, reason="Priority"), failed, over)
    found = stored(url, study_id)
    assert allocation_lines(found, NOW) == [
        "slurm 7_0 gpu07 running 1:12 of 4:00, 4 GPUs",
        "slurm 7_1 pending, 4 GPUs, Priority",
        "slurm 7_2 failed, 4 GPUs, NODE_FAIL",
    ]
    text = allocations_text(found, "first", NOW)
    assert [line.split("  ")[0] for line in text.splitlines()[1:]] == [
        f"slurm 7_{number}" for number in range(4)
    ]
    assert "no allocations" in allocations_text([], "first", NOW)


def test_page_of_devices_shows_allocations(url: str, monkeypatch) -> None:  # type: ignore[no-untyped-def]
    begin, end = NOW - timedelta(minutes=72), NOW + timedelta(days=36500)
    running = an_allocation(0, RUNNING, node="gpu07", started_at=begin, deadline=end)
    submitted(url, running, an_allocation(1, reason="Priority"))
    show_database(monkeypatch, url)
    shown = opened("devices").dataframe[0].value
    assert list(shown["allocation"]) == ["slurm 7_0", "slurm 7_1"]
    assert list(shown["node"]) == ["gpu07", ""]
    assert list(shown["reason"]) == ["", "Priority"]
    assert shown["minutes left"][0] > 0
