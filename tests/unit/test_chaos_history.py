"""Whether the judge of machines in chaos sees two owners, writes of the dead, and late steps."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from tests.chaos.nodes.history import Change, judge, places, taken_over, uploads
from tests.chaos.step_log import Line, find_repeated, with_uploaded, without_forgotten, without_late

Row = Mapping[str, Any]
#: Study 1 with trial 0, on dispatchers 1 and 2 of two machines.
A, B = "10.0.0.1", "10.0.0.2"


def change(xid: int, table: str, new: Row, old: Row | None = None, address: str = A) -> Change:
    return Change(xid=xid, at_s=float(xid), address=address, table=table, old=old or {}, new=new)


def dispatcher(number: int, *, batch: int = 0, beat: int = 0, ended: str | None = None) -> Row:
    return {"id": number, "n_batches": batch, "beat_at": f"{beat}", "ended_at": ended}


def trial(state: str) -> Row:
    return {"trial_id": 9, "study_id": 1, "number": 0, "state": state}


def claim(number: int) -> Row:
    return {"trial_id": 9, "dispatcher_id": number}


def attempt(number: int, by: int, state: str) -> Row:
    return {"id": number, "trial_id": 9, "number": number, "dispatcher_id": by, "state": state}


def begun() -> list[Change]:
    """Both have joined, and the first one runs the trial."""
    return [
        change(1, "tuner_dispatchers", dispatcher(1)),
        change(2, "tuner_dispatchers", dispatcher(2), address=B),
        change(3, "tuner_dispatchers", dispatcher(1, beat=1), dispatcher(1)),
        change(3, "trials", trial("RUNNING")),
        change(3, "tuner_claims", claim(1)),
        change(4, "tuner_dispatchers", dispatcher(1, batch=1, beat=2), dispatcher(1, beat=1)),
        change(4, "tuner_attempts", attempt(1, 1, "running")),
        change(4, "trial_intermediate_values", {"trial_id": 9, "step": 0}),
    ]


def overtaken() -> list[Change]:
    """The second one takes the first one for dead."""
    last = dispatcher(1, batch=1, beat=2)
    return [
        change(5, "tuner_dispatchers", {**last, "ended_at": "2"}, last, B),
        change(5, "tuner_attempts", attempt(1, 1, "finished"), attempt(1, 1, "running"), B),
        change(5, "trials", trial("WAITING"), trial("RUNNING"), B),
    ]


def resumed() -> list[Change]:
    return [
        change(6, "tuner_dispatchers", dispatcher(2, beat=1), dispatcher(2), B),
        change(6, "trials", trial("RUNNING"), trial("WAITING"), B),
        change(6, "tuner_claims", {}, claim(1), B),
        change(6, "tuner_claims", claim(2), address=B),
        change(6, "tuner_attempts", attempt(2, 2, "running"), address=B),
    ]


def test_takeover_is_in_order() -> None:
    changes = [*begun(), *overtaken(), *resumed()]
    assert list(judge(changes)) == []
    study = change(0, "studies", {"study_id": 1, "study_name": "s"})
    assert places([study, *changes], "s") == {(0, 1): A, (0, 2): B}
    assert taken_over(changes, A, 4.5) == [5.0]
    assert taken_over(changes, B, 4.5) == []
    assert taken_over(changes, A, 6.0) == []


def test_who_ends_by_itself_is_not_taken_over() -> None:
    end = change(5, "tuner_dispatchers", dispatcher(1, beat=3, ended="3"), dispatcher(1, beat=2))
    assert taken_over([*begun(), end], A, 4.5) == []


def test_a_record_without_a_trial_may_stay_open() -> None:
    """The next dispatcher of the study ends it. No trial waits for that."""
    done = change(5, "tuner_attempts", attempt(1, 1, "finished"), attempt(1, 1, "running"))
    end = change(400, "tuner_dispatchers", dispatcher(1, beat=2, ended="2"), dispatcher(1, beat=2))
    assert taken_over([*begun(), done, end], A, 5.5) == []
    assert taken_over([*begun(), end], A, 5.5) == [400.0]


@pytest.mark.parametrize(
    ("late", "finding"),
    [
        pytest.param(
            change(7, "tuner_dispatchers", dispatcher(1, beat=9), dispatcher(1, ended="2")),
            "dispatcher 1 was over",
            id="dispatcher",
        ),
        pytest.param(
            change(7, "trial_intermediate_values", {"trial_id": 9, "step": 5}),
            "trial id 9 of 2 got a value by None",
            id="value",
        ),
        pytest.param(
            change(7, "trials", trial("COMPLETE"), trial("RUNNING")),
            "trial id 9 of 2 ended by None",
            id="end",
        ),
        pytest.param(
            change(7, "tuner_attempts", attempt(1, 1, "clearing"), attempt(1, 1, "finished")),
            "trial id 9 has 2 open attempts",
            id="attempt",
        ),
    ],
)
def test_late_write_is_found(late: Change, finding: str) -> None:
    found = list(judge([*begun(), *overtaken(), *resumed(), late]))
    assert any(each.startswith(finding) for each in found), found


def test_second_owner_is_found() -> None:
    found = list(judge([*begun(), *resumed()]))
    assert "trial id 9 was 1's, ran, and was claimed by 2" in found
    assert "trial id 9 has 2 open attempts at once" in found


def test_write_over_the_connection_of_another_machine_is_found() -> None:
    foreign = change(5, "tuner_dispatchers", dispatcher(1, beat=3), dispatcher(1, beat=2), B)
    assert list(judge([*begun(), foreign])) == [f"dispatcher 1 of {A} wrote from {B}"]


def test_uploads_are_those_of_checkpoints_of_the_study() -> None:
    study = change(0, "studies", {"study_id": 1, "study_name": "s"})
    row = {"trial_id": 9, "attempt_id": 1, "kind": "checkpoint", "step": 4}
    written = [change(5, "tuner_uploads", {**row, "kind": "log"}), change(5, "tuner_uploads", row)]
    assert uploads([study, *begun(), *written], "s") == [(0, 4, 5.0)]
    assert uploads([study, *begun(), *written], "other") == []
    # After another one had claimed the trial.
    assert uploads([study, *begun(), *overtaken(), *resumed(), *written], "s") == []


def line(what: str, step: int, attempt: int, machine: int, at_s: float = 0.0) -> Line:
    return Line(
        what=what,
        trial=0,
        attempt=attempt,
        rank=0,
        step=step,
        pid=7,
        namespace=machine,
        at_s=at_s,
    )


def test_what_a_machine_does_after_it_was_overtaken_is_not_repeated_work() -> None:
    lines = [
        *(line("begun", 0, 1, 1), line("from", 0, 1, 1), line("step", 0, 1, 1)),
        *(line("begun", 0, 2, 2), line("step", 1, 1, 1), line("saved", 2, 1, 1)),
        *(line("from", 0, 2, 2), line("step", 0, 2, 2)),
    ]
    (repeated,) = find_repeated(without_late(lines))
    assert (repeated.n_steps, repeated.n_saved_steps) == (1, 0)
    (all_of_it,) = find_repeated(lines)
    assert (all_of_it.n_steps, all_of_it.n_saved_steps) == (2, 2)


def test_state_is_saved_once_the_object_store_has_acknowledged_it() -> None:
    lines = [
        *(line("begun", 0, 1, 1), line("from", 0, 1, 1), line("step", 0, 1, 1, at_s=1.0)),
        *(line("step", 1, 1, 1, at_s=2.0), line("saved", 2, 1, 1, at_s=2.0)),
        *(line("begun", 0, 2, 2, at_s=9.0), line("from", 0, 2, 2, at_s=9.0)),
    ]
    (lost,) = find_repeated(with_uploaded(lines, []))
    (acknowledged,) = find_repeated(with_uploaded(lines, [(0, 2, 3.0)]))
    (too_late,) = find_repeated(with_uploaded(lines, [(0, 2, 10.0)]))
    assert (lost.n_saved_steps, acknowledged.n_saved_steps, too_late.n_saved_steps) == (0, 2, 0)


def test_trial_that_the_database_has_forgotten_is_another_trial() -> None:
    lines = [line("begun", 0, 1, 1, at_s=5.0), line("step", 0, 1, 1, at_s=6.0)]
    again = line("begun", 0, 1, 2, at_s=8.0)
    assert without_forgotten([*lines, again], [(4.0, 7.0)]) == [again]
    assert without_forgotten([*lines, again], [(5.5, 7.0)]) == [*lines, again]
