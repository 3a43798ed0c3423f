"""Sends the dispatcher's notices to the calling process."""

from __future__ import annotations

import io
from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack
from typing import IO

from tuner.api.messages import Begun, Line, Progress, RunningRow, TrialEnded
from tuner.api.sender import Sender
from tuner.dispatch.notices import Ended, Notice, RunningTrial, Said, Snapshot, View
from tuner.domain.attempt import Outcome
from tuner.terminal import wording

#: More rows than this are not shown anywhere.
_MAX_ROWS = 32


class LineSender(io.TextIOBase):
    """A text file whose lines are sent to the caller.

    Args:
        sender: Sends to the caller.
        reword: Adapts a line for the user.
    """

    def __init__(self, sender: Sender, reword: Callable[[str], str]) -> None:
        self._sender = sender
        self._reword = reword
        self._part = ""

    def writable(self) -> bool:
        return True

    def write(self, text: str) -> int:
        *lines, self._part = (self._part + text).split("\n")
        for line in lines:
            self._sender.send(Line(text=self._reword(line)))
        return len(text)


class Notes:
    """Writes notices that the live view does not show: notes and failed trials.

    Args:
        out: The output file.
    """

    refresh_every_s = 1.0

    def __init__(self, out: IO[str]) -> None:
        self._out = out

    def __enter__(self) -> Notes:
        return self

    def __exit__(self, *_: object) -> None: ...

    def show(self, notice: Notice) -> None:
        is_failure = isinstance(notice, Ended) and notice.ending.outcome.is_failure
        if is_failure or isinstance(notice, Said):
            print(wording.line(notice), file=self._out)

    def refresh(self, snapshot: Snapshot) -> None: ...


class SendingView:
    """Shows the study's own view, and sends notices to the caller.

    Args:
        sender: Sends to the caller.
        open_shown: Makes the view, which is entered and left with this one.
    """

    def __init__(
        self, sender: Sender, open_shown: Callable[[], AbstractContextManager[View]]
    ) -> None:
        self._sender = sender
        self._open_shown = open_shown
        self._stack = ExitStack()
        self._shown: View | None = None

    @property
    def refresh_every_s(self) -> float:
        return 0.5 if self._shown is None else min(0.5, self._shown.refresh_every_s)

    def __enter__(self) -> SendingView:
        self._shown = self._stack.enter_context(self._open_shown())
        self._sender.send(Begun())
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def show(self, notice: Notice) -> None:
        if self._shown is not None:
            self._shown.show(notice)
        if isinstance(notice, Ended):
            is_complete = notice.ending.outcome is Outcome.COMPLETED
            self._sender.send(
                TrialEnded(
                    number=notice.attempt.trial_number,
                    outcome=notice.ending.outcome.value,
                    values=dict(notice.ending.values) if is_complete else {},
                )
            )

    def refresh(self, snapshot: Snapshot) -> None:
        if self._shown is not None:
            self._shown.refresh(snapshot)
        self._sender.send(progress_of(snapshot))


def progress_of(snapshot: Snapshot) -> Progress:
    best = snapshot.best
    return Progress(
        n_begun=snapshot.n_begun,
        n_trials=snapshot.n_trials,
        n_completed=snapshot.n_completed,
        n_pruned=snapshot.n_pruned,
        n_failed=snapshot.n_failed,
        elapsed_s=snapshot.elapsed_s,
        left_s=snapshot.left_s,
        is_stopping=snapshot.is_stopping,
        best_number=best.number if best else None,
        best_values=dict(best.values) if best else {},
        best_params=dict(best.params) if best else {},
        running=tuple(map(_row, snapshot.running[:_MAX_ROWS])),
    )


def _row(running: RunningTrial) -> RunningRow:
    return RunningRow(
        devices=", ".join(running.devices),
        number=running.number,
        elapsed_s=running.elapsed_s,
        step=running.step,
        values=dict(running.values),
        params=dict(running.params),
    )
