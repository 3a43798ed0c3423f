"""How an attempt ended, from what it said, what it was told and how its process exited."""

from __future__ import annotations

import math
from datetime import UTC, datetime

import pytest

from tests.fakes import a_gpu
from tuner.attempt import Attempt, Cause, Outcome
from tuner.devices.pool import Lease
from tuner.live import LiveAttempt, Step, ending_of
from tuner.messages import Action, Finished

NOW = datetime(2026, 1, 1, tzinfo=UTC)


def a_live_attempt(*, is_started: bool = True, **fields) -> LiveAttempt:
    attempt = Attempt(
        trial_id=1,
        trial_number=0,
        number=1,
        seed=1,
        leased_at=NOW,
        started_at=NOW if is_started else None,
    )
    lease = Lease(number=1, attempt_id=attempt.id, devices=(a_gpu(3),))
    defaults = {"attempt": attempt, "lease": lease, "params": {}, "leased_at_s": 0.0}
    return LiveAttempt(**defaults | fields)


def said(outcome: Outcome, cause: Cause | None = None, **fields) -> Finished:
    return Finished(attempt_id=a_live_attempt().attempt.id, outcome=outcome, cause=cause, **fields)


DONE = said(Outcome.COMPLETED, values={"acc": 0.5})
CASES = {
    "completed": ({"finished": DONE}, 0, "", "completed", None),
    "completed and then killed": ({"finished": DONE}, -9, "", "completed", None),
    "completed just before its timeout": (
        {"finished": DONE, "stop_cause": Cause.TIMEOUT},
        0,
        "",
        "completed",
        None,
    ),
    "completed after ctrl-c": (
        {"finished": DONE, "stop_cause": Cause.INTERRUPTED, "told": Action.STOP},
        0,
        "",
        "completed",
        None,
    ),
    "completed without a value": (
        {"finished": said(Outcome.COMPLETED)},
        0,
        "",
        "failed",
        "no_result",
    ),
    "completed with another value": (
        {"finished": said(Outcome.COMPLETED, values={"other": 1.0})},
        0,
        "",
        "failed",
        "no_result",
    ),
    "completed with its last report": (
        {"finished": said(Outcome.COMPLETED), "last_values": {"acc": 0.4}},
        0,
        "",
        "completed",
        None,
    ),
    "completed with nan": (
        {"finished": said(Outcome.COMPLETED, values={"acc": math.nan})},
        0,
        "",
        "failed",
        "not_a_number",
    ),
    "completed with infinity": (
        {"finished": said(Outcome.COMPLETED, values={"acc": math.inf})},
        0,
        "",
        "completed",
        None,
    ),
    "pruned": ({"finished": said(Outcome.PRUNED, Cause.PRUNER)}, 0, "", "pruned", "pruner"),
    "pruned by itself": (
        {"finished": said(Outcome.PRUNED, Cause.PROGRAM)},
        0,
        "",
        "pruned",
        "program",
    ),
    "script that exits after a prune verdict": ({"told": Action.PRUNE}, 0, "", "pruned", "pruner"),
    "script that exits non-zero after a prune verdict": (
        {"told": Action.PRUNE},
        3,
        "bye",
        "pruned",
        "pruner",
    ),
    "crash by a signal after a prune verdict": (
        {"told": Action.PRUNE},
        -11,
        "",
        "failed",
        "signal",
    ),
    "timed out, killed": ({"stop_cause": Cause.TIMEOUT}, -9, "", "timed_out", "timeout"),
    "timed out, exits well": ({"stop_cause": Cause.TIMEOUT}, 0, "", "timed_out", "timeout"),
    "timed out after a prune verdict": (
        {"stop_cause": Cause.TIMEOUT, "told": Action.PRUNE},
        -15,
        "",
        "timed_out",
        "timeout",
    ),
    "interrupted, terminated": (
        {"stop_cause": Cause.INTERRUPTED, "told": Action.STOP},
        -15,
        "",
        "cancelled",
        "interrupted",
    ),
    "interrupted, said it failed": (
        {
            "stop_cause": Cause.INTERRUPTED,
            "told": Action.STOP,
            "finished": said(Outcome.FAILED, Cause.EXCEPTION),
        },
        0,
        "",
        "cancelled",
        "interrupted",
    ),
    "launch timeout": (
        {"stop_cause": Cause.LAUNCH, "is_started": False},
        -9,
        "",
        "failed_to_start",
        "launch",
    ),
    "gone before its hello": ({"is_started": False}, 1, "ImportError", "failed_to_start", "launch"),
    "said it failed": (
        {"finished": said(Outcome.FAILED, Cause.EXCEPTION)},
        0,
        "",
        "failed",
        "exception",
    ),
    "said out of memory": (
        {"finished": said(Outcome.OUT_OF_MEMORY, Cause.DEVICE_MEMORY)},
        0,
        "",
        "out_of_memory",
        "device_memory",
    ),
    "exit code": ({}, 3, "", "failed", "exit_code"),
    "exit 0 without a word": ({}, 0, "", "failed", "no_result"),
    "exit 0 after reports only": ({"last_values": {"acc": 0.4}}, 0, "", "failed", "no_result"),
    "segmentation fault": ({}, -11, "", "failed", "signal"),
    "killed by somebody": ({}, -9, "", "failed", "signal"),
    "out of memory by its output": (
        {},
        1,
        "CUDA out of memory",
        "out_of_memory",
        "device_memory",
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_ending_of(case):
    fields, exit_code, output, outcome, cause = CASES[case]
    ending = ending_of(
        a_live_attempt(**fields), exit_code, objectives=["acc"], output=output, n_oom_kills=0
    )
    assert (ending.outcome.value, ending.cause and ending.cause.value) == (outcome, cause)
    assert bool(ending.values) == (ending.outcome is Outcome.COMPLETED)


def test_ending_of_a_kill_counts_only_what_the_kernel_killed_meanwhile():
    endings = [
        ending_of(a_live_attempt(n_oom_kills=5), -9, objectives=["acc"], output="", n_oom_kills=n)
        for n in (5, 6)
    ]
    assert [e.cause for e in endings] == [Cause.SIGNAL, Cause.HOST_MEMORY]
    assert endings[1].outcome is Outcome.OUT_OF_MEMORY


def test_ending_of_keeps_values_and_the_words_of_the_program():
    live = a_live_attempt(finished=said(Outcome.FAILED, Cause.EXCEPTION, detail="ValueError: x"))
    assert (
        ending_of(live, 0, objectives=["acc"], output="log", n_oom_kills=0).detail
        == "ValueError: x"
    )
    live = a_live_attempt(finished=DONE, last_values={"acc": 0.1})
    assert ending_of(live, 0, objectives=["acc"], output="", n_oom_kills=0).values == {"acc": 0.5}


def test_ending_of_a_stop_gives_the_reason_and_the_last_output():
    live = a_live_attempt(stop_cause=Cause.TIMEOUT, told_reason="It did not end within 5 s.")
    detail = ending_of(live, -9, objectives=["acc"], output="epoch 3", n_oom_kills=0).detail
    assert detail == "It did not end within 5 s.\nepoch 3"


def test_ending_of_nan_names_the_objectives_that_are_not_numbers():
    done = said(Outcome.COMPLETED, values={"acc": 1.0, "loss": math.nan})
    detail = ending_of(
        a_live_attempt(finished=done), 0, objectives=["acc"], output="", n_oom_kills=0
    ).detail
    assert "loss is not a number (NaN)" in detail


def test_labels_are_for_people():
    assert a_live_attempt().labels == ("GPU 3",)


def test_wait_for_replaces_the_deadline_before():
    live = a_live_attempt()
    live.wait_for(Step.TERMINATE, 5.0)
    live.wait_for(Step.KILL, 9.0)
    assert (live.deadline_step, live.deadline_s) == (Step.KILL, 9.0)
