"""What a kill cost, from the lines that trials left."""

from __future__ import annotations

import pytest

from benchmarks.killed import Line, Loss, loss_of


def lines(*texts: str) -> list[Line]:
    """`what trial step seconds`."""
    found = []
    for text in texts:
        what, trial, step, at_s = text.split()
        found.append(Line(what=what, trial=int(trial), step=int(step), pid=1, at_s=float(at_s)))
    return found


BEFORE = ("from 0 0 1", "step 0 0 2", "step 0 1 3", "saved 0 2 3", "step 0 2 4", "step 0 3 5")


def test_work_after_the_checkpoint_is_done_again() -> None:
    loss = loss_of(lines(*BEFORE, "from 0 2 12", "step 0 2 13"), 6.0, 0.5, step_s=1.0)
    assert loss == Loss(free_after_s=0.5, idle_s=6.0, again_s=2.0, n_saved_again=0)


def test_work_that_was_saved_should_not_be() -> None:
    assert loss_of(lines(*BEFORE, "from 0 0 12"), 6.0, 0.5, step_s=1.0).n_saved_again == 2


def test_figures_are_means_over_slots() -> None:
    other = [text.replace(" 0 ", " 1 ", 1) for text in (*BEFORE, "from 0 2 16")]
    loss = loss_of(lines(*BEFORE, "from 0 2 12", *other), 6.0, 0.5, step_s=1.0)
    assert loss.idle_s == pytest.approx(8.0)
