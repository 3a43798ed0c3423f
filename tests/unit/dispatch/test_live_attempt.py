"""How an attempt ended, from what it said, what it was told and how its process exited."""

from __future__ import annotations

import math
from datetime import UTC, datetime

import pytest

from tests.fakes import a_gpu
from tuner.devices.allocation.pool import Lease
from tuner.dispatch.attempts.endings.attempt_ending import ending_of
from tuner.dispatch.attempts.live_attempt import LiveAttempt, Rank, Step
from tuner.dispatch.supply.grants import Candidate, Grant
from tuner.domain.attempt import Attempt, Cause, Ending, Outcome
from tuner.domain.messages import Action, Finished
from tuner.search.asked_trial import AskedTrial

NOW = datetime(2026, 1, 1, tzinfo=UTC)


def a_live_attempt(*ranks: Rank, is_started: bool = True, **fields) -> LiveAttempt:
    attempt = Attempt(
        trial_id=1,
        trial_number=0,
        number=1,
        seed=1,
        leased_at=NOW,
        started_at=NOW if is_started else None,
    )
    asked = AskedTrial(trial_id=1, number=0, params={}, is_new=True)
    devices = tuple(a_gpu(3 + rank) for rank in range(len(ranks) or 1))
    grant = Grant(
        candidate=Candidate(asked=asked, attempt_number=1),
        lease=Lease(number=1, attempt_id=attempt.id, devices=devices),
    )
    defaults = {"attempt": attempt, "grant": grant, "params": {}, "leased_at_s": 0.0}
    live = LiveAttempt(**defaults | fields)
    if ranks:
        live.ranks = list(ranks)
    return live


def the_ending(live: LiveAttempt, exit_code: int, output: str = "", n_oom_kills: int = 0) -> Ending:
    """Of an attempt with one process."""
    live.ranks[0].exit_code = exit_code
    live.note_end(live.ranks[0])
    _, ending = ending_of(
        live, objectives=["acc"], output_of=lambda _: output, n_oom_kills=n_oom_kills
    )
    return ending


def said(outcome: Outcome, cause: Cause | None = None, **fields) -> Finished:
    return Finished(attempt_id=a_live_attempt().attempt.id, outcome=outcome, cause=cause, **fields)


DONE = said(Outcome.COMPLETED, values={"acc": 0.5})
CASES = {
    "completed": ({"said": DONE}, 0, "", "completed", None),
    "completed and then killed": ({"said": DONE}, -9, "", "completed", None),
    "completed just before its timeout": (
        {"said": DONE, "stop_cause": Cause.TIMEOUT},
        0,
        "",
        "completed",
        None,
    ),
    "completed after ctrl-c": (
        {"said": DONE, "stop_cause": Cause.INTERRUPTED, "told": Action.STOP},
        0,
        "",
        "completed",
        None,
    ),
    "completed without a value": (
        {"said": said(Outcome.COMPLETED)},
        0,
        "",
        "failed",
        "no_result",
    ),
    "completed with another value": (
        {"said": said(Outcome.COMPLETED, values={"other": 1.0})},
        0,
        "",
        "failed",
        "no_result",
    ),
    "completed with its last report": (
        {"said": said(Outcome.COMPLETED), "last_values": {"acc": 0.4}},
        0,
        "",
        "completed",
        None,
    ),
    "completed with nan": (
        {"said": said(Outcome.COMPLETED, values={"acc": math.nan})},
        0,
        "",
        "failed",
        "not_a_number",
    ),
    "completed with infinity": (
        {"said": said(Outcome.COMPLETED, values={"acc": math.inf})},
        0,
        "",
        "completed",
        None,
    ),
    "pruned": ({"said": said(Outcome.PRUNED, Cause.PRUNER)}, 0, "", "pruned", "pruner"),
    "pruned by itself": (
        {"said": said(Outcome.PRUNED, Cause.PROGRAM)},
        0,
        "",
        "pruned",
        "program",
    ),
    "script that exits after a prune verdict": (
        {"told": Action.PRUNE, "heeds": Action.PRUNE},
        0,
        "",
        "pruned",
        "pruner",
    ),
    "script that reports by itself, asked, and exits well": (
        {
            "told": Action.PAUSE,
            "heeds": Action.PAUSE,
            "said": said(Outcome.COMPLETED),
            "last_values": {"acc": 0.5},
        },
        0,
        "",
        "pruned",
        "pruner",
    ),
    "script that gives a value after a prune verdict": (
        {"told": Action.PRUNE, "heeds": Action.PRUNE, "said": DONE},
        0,
        "",
        "completed",
        None,
    ),
    "script that asked after ctrl-c, and exits well": (
        {
            "told": Action.STOP,
            "heeds": Action.STOP,
            "stop_cause": Cause.INTERRUPTED,
            "said": said(Outcome.COMPLETED),
            "last_values": {"acc": 0.5},
        },
        0,
        "",
        "cancelled",
        "interrupted",
    ),
    "script that fails and never asked": (
        {"told": Action.PRUNE},
        3,
        "bye",
        "failed",
        "exit_code",
    ),
    "script that exits non-zero after a prune verdict": (
        {"told": Action.PRUNE, "heeds": Action.PRUNE},
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
            "said": said(Outcome.FAILED, Cause.EXCEPTION),
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
        {"said": said(Outcome.FAILED, Cause.EXCEPTION)},
        0,
        "",
        "failed",
        "exception",
    ),
    "said out of memory": (
        {"said": said(Outcome.OUT_OF_MEMORY, Cause.DEVICE_MEMORY)},
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
    fields = dict(fields)
    rank = Rank(finished=fields.pop("said", None))
    ending = the_ending(a_live_attempt(rank, **fields), exit_code, output)
    assert (ending.outcome.value, ending.cause and ending.cause.value) == (outcome, cause)
    assert bool(ending.values) == (ending.outcome is Outcome.COMPLETED)


def test_ending_of_a_kill_counts_only_what_the_kernel_killed_meanwhile():
    endings = [the_ending(a_live_attempt(n_oom_kills=5), -9, n_oom_kills=n) for n in (5, 6)]
    assert [e.cause for e in endings] == [Cause.SIGNAL, Cause.HOST_MEMORY]
    assert endings[1].outcome is Outcome.OUT_OF_MEMORY


def test_ending_of_keeps_values_and_the_words_of_the_program():
    failed = said(Outcome.FAILED, Cause.EXCEPTION, detail="ValueError: x")
    assert the_ending(a_live_attempt(Rank(finished=failed)), 0, "log").detail == "ValueError: x"
    live = a_live_attempt(Rank(finished=DONE), last_values={"acc": 0.1})
    assert the_ending(live, 0).values == {"acc": 0.5}


def test_ending_of_a_stop_gives_the_reason_and_the_last_output():
    live = a_live_attempt(stop_cause=Cause.TIMEOUT, told_reason="It did not end within 5 s.")
    detail = the_ending(live, -9, "epoch 3").detail
    assert detail == "It did not end within 5 s.\nepoch 3"


def test_ending_of_nan_names_the_objectives_that_are_not_numbers():
    done = said(Outcome.COMPLETED, values={"acc": 1.0, "loss": math.nan})
    detail = the_ending(a_live_attempt(Rank(finished=done)), 0).detail
    assert "loss is not a number (NaN)" in detail


def test_labels_are_for_people():
    assert a_live_attempt().labels == ("GPU 3",)


def test_wait_for_replaces_the_deadline_before():
    live = a_live_attempt()
    live.wait_for(Step.TERMINATE, 5.0)
    live.wait_for(Step.KILL, 9.0)
    assert (live.deadline_step, live.deadline_s) == (Step.KILL, 9.0)


# -- several ranks -----------------------------------------------------------------------------

LOST_PEER = said(
    Outcome.FAILED, Cause.EXCEPTION, detail="RuntimeError: Connection reset by peer", rank=0
)
OWN_MISTAKE = said(Outcome.FAILED, Cause.EXCEPTION, detail="ValueError: mine", rank=1)


def group(*finished: Finished | None, failures: list[int], **fields) -> LiveAttempt:
    ranks = [Rank(number=n, finished=f, exit_code=0) for n, f in enumerate(finished)]
    return a_live_attempt(*ranks, failures=failures, **fields)


def group_ending(live: LiveAttempt, *outputs: str) -> tuple[int, Ending]:
    return ending_of(
        live, objectives=["acc"], output_of=lambda rank: (*outputs, "", "", "")[rank], n_oom_kills=0
    )


def test_first_rank_that_failed_by_itself_is_the_cause():
    rank, ending = group_ending(group(LOST_PEER, OWN_MISTAKE, failures=[0, 1]))
    assert (rank, ending.outcome) == (1, Outcome.FAILED)
    assert ending.detail == "Rank 1: ValueError: mine"


def test_rank_that_was_killed_is_the_cause_and_not_those_that_lost_it():
    live = group(LOST_PEER, None, failures=[0, 1])
    live.ranks[1].exit_code = -9
    rank, ending = group_ending(live)
    assert (rank, ending.cause) == (1, Cause.SIGNAL)
    assert "SIGKILL" in ending.detail


def test_where_all_ranks_lost_a_peer_the_first_is_the_cause():
    rank, ending = group_ending(group(LOST_PEER, LOST_PEER, failures=[1, 0]))
    assert (rank, ending.outcome) == (1, Outcome.FAILED)


def test_rank_that_fails_makes_the_attempt_fail_whatever_rank_0_returned():
    rank, ending = group_ending(group(DONE, OWN_MISTAKE, failures=[1]))
    assert (rank, ending.outcome) == (1, Outcome.FAILED)


def test_result_of_rank_0_is_that_of_all():
    other = said(Outcome.COMPLETED, values={"acc": 0.9}, rank=1)
    rank, ending = group_ending(group(DONE, other, failures=[]))
    assert (rank, ending.outcome, dict(ending.values)) == (0, Outcome.COMPLETED, {"acc": 0.5})


def test_pruned_group_is_pruned_though_others_lost_rank_0():
    pruned = said(Outcome.PRUNED, Cause.PRUNER)
    _, ending = group_ending(group(pruned, LOST_PEER, failures=[1]))
    assert ending.outcome is Outcome.PRUNED


@pytest.mark.parametrize(
    ("finished", "outcome", "cause"),
    [
        pytest.param(DONE, Outcome.COMPLETED, None, id="after-the-result"),
        pytest.param(None, Outcome.FAILED, Cause.RANKS, id="rank-0-itself"),
    ],
)
def test_hang_is_said_and_costs_no_result(finished, outcome, cause):
    live = group(finished, None, failures=[], hang="rank 1 hung", is_signalled=True)
    live.ranks[1].exit_code = -15
    _, ending = group_ending(live)
    assert (ending.outcome, ending.cause, ending.detail) == (outcome, cause, "rank 1 hung")


def test_port_that_was_taken_is_told_apart_from_a_mistake_of_the_program():
    taken = said(
        Outcome.FAILED, Cause.EXCEPTION, detail="OSError: [Errno 98] Address already in use"
    )
    _, ending = group_ending(group(taken, LOST_PEER, failures=[0, 1]))
    assert (ending.outcome, ending.cause) == (Outcome.FAILED_TO_START, Cause.PORT_TAKEN)
    _, later = group_ending(group(taken, LOST_PEER, failures=[0, 1], last_step=3))
    assert later.cause is Cause.EXCEPTION
