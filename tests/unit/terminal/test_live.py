"""What people read: lines, progress, and the picture in a terminal."""

from __future__ import annotations

import io
from datetime import UTC, datetime

import pytest
from rich.console import Console

from tuner.dispatch.notices import Ended, Notice, RunningTrial, Said, Snapshot, Started
from tuner.domain.attempt import Attempt, Cause, Ending, Outcome
from tuner.search.study import BestTrial
from tuner.terminal import wording
from tuner.terminal.live import LiveView, draw
from tuner.terminal.plain import PlainView, progress_line

ATTEMPT = Attempt(
    trial_id=1, trial_number=4, number=1, seed=0, leased_at=datetime(2026, 1, 1, tzinfo=UTC)
)
BEST = BestTrial(number=2, values={"accuracy": 0.987654321}, params={"lr": 0.0123456})


def ended(outcome: Outcome, *, is_best: bool = False, will_retry: bool = False, **ending) -> Ended:
    return Ended(
        attempt=ATTEMPT,
        ending=Ending(outcome=outcome, **ending),
        is_best=is_best,
        will_retry=will_retry,
        log_path="/logs/attempt-1.log",
    )


def a_snapshot(**fields) -> Snapshot:
    defaults = {
        "n_completed": 5,
        "n_pruned": 6,
        "n_failed": 0,
        "n_waiting": 0,
        "n_begun": 12,
        "n_trials": 48,
        "running": (),
        "idle_devices": (),
        "left_to_others": {},
        "best": None,
        "elapsed_s": 200.0,
        "fraction": 0.25,
        "left_s": None,
        "is_stopping": False,
    }
    return Snapshot(**defaults | fields)


def running(number: int, *devices: str, **fields) -> RunningTrial:
    defaults = {
        "number": number,
        "attempt_number": 1,
        "devices": devices,
        "state": "running",
        "elapsed_s": 61.0,
        "step": 3,
        "values": {"accuracy": 0.91234},
        "params": {"lr": 0.5},
    }
    return RunningTrial(**defaults | fields)


LINES: list[tuple[Notice, str]] = [
    (
        Started(attempt=ATTEMPT, devices=("GPU 0",), params={"lr": 0.01234567, "opt": "sgd"}),
        "trial 4: started on GPU 0: lr 0.01235, opt sgd",
    ),
    (Started(attempt=ATTEMPT, devices=("GPU 0", "GPU 1"), params={}), "started on GPU 0, GPU 1"),
    (ended(Outcome.COMPLETED, values={"acc": 0.5}), "trial 4: completed, acc 0.5"),
    (
        ended(Outcome.COMPLETED, values={"acc": 0.5}, is_best=True),
        "trial 4: completed, acc 0.5 (best)",
    ),
    (ended(Outcome.PRUNED, detail="at step 3\nmore"), "trial 4: pruned: at step 3"),
    (ended(Outcome.CANCELLED), "trial 4: cancelled"),
    (
        ended(Outcome.OUT_OF_MEMORY, cause=Cause.DEVICE_MEMORY, detail="line 1\nline 2"),
        "trial 4: out of memory.\n    line 1\n    line 2\n    whole log: /logs/attempt-1.log",
    ),
    (ended(Outcome.FAILED, detail="x", will_retry=True), "trial 4: failed. It is tried again.\n"),
    (Said(text="Stopping: no trial starts any more"), "Stopping: no trial starts any more"),
]


@pytest.mark.parametrize(("notice", "words"), LINES, ids=[words[:30] for _, words in LINES])
def test_line(notice, words):
    assert words in wording.line(notice)


@pytest.mark.parametrize(
    ("notice", "is_loud"),
    [
        (Said(text="x"), True),
        (Started(attempt=ATTEMPT, devices=(), params={}), False),
        (ended(Outcome.COMPLETED, values={"a": 1.0}), False),
        (ended(Outcome.COMPLETED, values={"a": 1.0}, is_best=True), True),
        (ended(Outcome.PRUNED), False),
        (ended(Outcome.FAILED), True),
    ],
)
def test_is_loud(notice, is_loud):
    assert wording.is_loud(notice) is is_loud


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (0, "0 s"),
        (59.4, "59 s"),
        (59.6, "1 min 00 s"),
        (200, "3 min 20 s"),
        (3599, "59 min 59 s"),
        (7500, "2 h 05 min"),
    ],
)
def test_duration(seconds, words):
    assert wording.duration(seconds) == words


def test_progress_line_says_how_all_trials_stand():
    snapshot = a_snapshot(running=(running(7, "GPU 0"),), left_s=40.0, best=BEST)
    assert progress_line(snapshot) == (
        "12 of 48 trials: 5 completed, 6 pruned, 0 failed, 1 running; about 40 s left; "
        "best accuracy 0.987654 (trial 2)"
    )


def test_progress_line_without_a_budget_names_no_total():
    assert progress_line(a_snapshot(n_trials=None)).startswith("12 trials: 5 completed")


def test_plain_view_writes_each_notice_and_progress_now_and_then():
    out = io.StringIO()
    with PlainView(out) as view:
        view.show(Said(text="hello"))
        for elapsed_s in (0.0, 29.0, 31.0, 40.0, 62.0):
            view.refresh(a_snapshot(elapsed_s=elapsed_s))
    assert out.getvalue().splitlines()[0] == "hello"
    assert out.getvalue().count("12 of 48 trials") == 2


def drawn(snapshot: Snapshot) -> str:
    console = Console(file=io.StringIO(), record=True, width=120)
    console.print(draw(snapshot, "digits"))
    return console.export_text()


def test_draw_shows_study_progress_best_and_devices():
    picture = drawn(
        a_snapshot(
            best=BEST,
            left_s=600.0,
            n_failed=1,
            n_waiting=2,
            n_paused=4,
            running=(running(7, "GPU 10"), running(8, "GPU 9", attempt_number=2, state="clearing")),
            idle_devices=("GPU 2",),
        )
    )
    for words in (
        "study digits",
        "25%  3 min 20 s, about 10 min 00 s left",
        "12 of 48 trials finished, 12 begun, 4 paused  5 completed  6 pruned  1 failed  2 waiting",
        "best  accuracy 0.987654  trial 2: lr 0.01235",
        "8 (attempt 2) clearing",
        "0.9123",
        "idle",
    ):
        assert words in picture
    assert picture.index("GPU 9") < picture.index("GPU 10") < picture.index("GPU 2")


def test_draw_names_who_has_a_device_that_is_left_to_others():
    picture = drawn(a_snapshot(left_to_others={"GPU 1": "python (pid 77, user ann) uses it"}))
    assert "GPU 1" in picture
    assert "python (pid 77, user ann) uses it" in picture
    assert "idle" not in picture


def test_draw_without_budget_or_best():
    picture = drawn(a_snapshot(fraction=None, n_trials=None, is_stopping=True))
    assert "study digits (stopping)" in picture
    assert "no budget: until Ctrl-C" in picture
    assert "best" not in picture
    assert "waiting" not in picture


def test_draw_of_very_many_devices_counts_the_rest():
    picture = drawn(
        a_snapshot(
            running=tuple(running(n, f"cpu:{n}") for n in range(30)),
            idle_devices=tuple(f"cpu:{n}" for n in range(30, 40)),
        )
    )
    assert "... and 8 more" in picture
    assert picture.count("idle") == 2


def test_draw_shows_text_of_the_user_as_it_is():
    params = {"opt": "[red]sgd[/red]", "path": "[/a]"}
    picture = drawn(a_snapshot(running=(running(1, "GPU 0", params=params),)))
    assert "[red]sgd[/red], path [/a]" in picture


def test_live_view_lets_loud_notices_scroll_by():
    out = io.StringIO()
    console = Console(file=out, force_terminal=True, width=100)
    with LiveView(console, "digits") as view:
        view.refresh(a_snapshot())
        view.show(Started(attempt=ATTEMPT, devices=("GPU 0",), params={}))
        view.show(ended(Outcome.FAILED, detail="boom [/x]"))
    assert "boom [/x]" in out.getvalue()
    assert "started on" not in out.getvalue()
