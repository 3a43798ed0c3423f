"""Without a terminal: one line for each thing that happens, for logs and pipes."""

from __future__ import annotations

from typing import IO

from tuner.dispatch.notices import Notice, Snapshot
from tuner.terminal import wording

#: Seconds between two progress lines.
_PROGRESS_EVERY_S = 30.0


class PlainView:
    """Prints lines. Entered while it shows.

    Args:
        out: The output, flushed after each line, so that `tail -f` follows.
    """

    refresh_every_s = 1.0

    def __init__(self, out: IO[str]) -> None:
        self._out = out
        self._next_progress_s = _PROGRESS_EVERY_S
        self._is_open = True

    def __enter__(self) -> PlainView:
        return self

    def __exit__(self, *_: object) -> None: ...

    def show(self, notice: Notice) -> None:
        self._write(wording.line(notice))

    def refresh(self, snapshot: Snapshot) -> None:
        if snapshot.elapsed_s < self._next_progress_s:
            return
        self._next_progress_s = snapshot.elapsed_s + _PROGRESS_EVERY_S
        self._write(progress_line(snapshot))

    def _write(self, line: str) -> None:
        if self._is_open:
            try:
                print(line, file=self._out, flush=True)
            except OSError:
                # The reader of a pipe went away (`| head`), which is no reason to stop training.
                self._is_open = False


def progress_line(snapshot: Snapshot) -> str:
    """`12 of 48 trials: 5 completed, 6 pruned, 0 failed, 2 running; about 40 s left; best ...`"""
    total = f" of {snapshot.n_trials}" if snapshot.n_trials else ""
    words = (
        f"{snapshot.n_begun}{total} trials: {snapshot.n_completed} completed, "
        f"{snapshot.n_pruned} pruned, {snapshot.n_failed} failed, {len(snapshot.running)} running"
    )
    if snapshot.left_s is not None:
        words += f"; about {wording.duration(snapshot.left_s)} left"
    if snapshot.best:
        words += (
            f"; best {wording.values_text(snapshot.best.values)} (trial {snapshot.best.number})"
        )
    return words
