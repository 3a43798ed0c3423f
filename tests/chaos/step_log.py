"""What the training program left behind for each step, whoever was alive to hear of it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import psutil

from tests.chaos.checked import STEP_S


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """`what` is one of begun, from (resumed at that step), step, saved, left (as it was told)."""

    what: str
    trial: int
    attempt: int
    rank: int
    step: int
    pid: int
    at_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Repeated:
    """Work that an attempt did again."""

    trial: int
    attempt: int
    n_steps: int
    seconds: float
    #: Steps whose state was on the disk: nobody should have had to do them again.
    n_saved_steps: int
    #: When the attempt before it began, and when this one went on; seconds since the epoch.
    after_s: float
    at_s: float


class StepLog:
    """Reads a growing file, each line once."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._offset = 0
        self.lines: list[Line] = []

    def read(self) -> Sequence[Line]:
        """All lines so far."""
        if self._path.exists():
            with self._path.open("rb") as file:
                file.seek(self._offset)
                new = file.read()
            whole = new[: new.rfind(b"\n") + 1]
            self._offset += len(whole)
            self.lines += map(_line, whole.decode().splitlines())
        return self.lines

    def running(self) -> list[Line]:
        """The first line of each process that still trains."""
        begun = [line for line in self.read() if line.what == "begun"]
        latest = {(line.trial, line.rank): line for line in begun}
        return [line for line in latest.values() if _is_alive(line)]


def find_repeated(lines: Iterable[Line], torn: Collection[tuple[int, int]] = ()) -> list[Repeated]:
    """Compares where each attempt began with what those before it had done and saved.

    Args:
        lines: In the order in which they were written.
        torn: Trial and step of checkpoints that somebody has cut off.
    """
    done: dict[int, set[int]] = defaultdict(set)
    saved: dict[int, set[int]] = defaultdict(set)
    begun_at_s: dict[int, float] = {}
    has_left: set[int] = set()
    found = []
    for line in (each for each in lines if each.rank == 0):
        if line.what == "step":
            done[line.trial].add(line.step)
        if line.what == "saved" and (line.trial, line.step) not in torn:
            saved[line.trial].add(line.step)
        if line.what == "left":
            has_left.add(line.trial)
        n_again = sum(step >= line.step for step in done[line.trial])
        # Who had paused and does nothing again has had no accident.
        is_resumed = line.trial in has_left and not n_again
        if line.what == "from" and line.attempt > 1 and not is_resumed:
            repeated = Repeated(
                trial=line.trial,
                attempt=line.attempt,
                n_steps=n_again,
                seconds=n_again * STEP_S,
                n_saved_steps=max(0, max(saved[line.trial], default=0) - line.step),
                after_s=begun_at_s.get(line.trial, 0.0),
                at_s=line.at_s,
            )
            found.append(repeated)
        if line.what == "from":
            has_left.discard(line.trial)
            begun_at_s[line.trial] = line.at_s
    return found


def _line(text: str) -> Line:
    what, *numbers, at_s = text.split()
    trial, attempt, rank, step, pid = map(int, numbers)
    return Line(
        what=what, trial=trial, attempt=attempt, rank=rank, step=step, pid=pid, at_s=float(at_s)
    )


def _is_alive(line: Line) -> bool:
    try:
        process = psutil.Process(line.pid)
        is_same = process.create_time() <= line.at_s + 1.0
        return is_same and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False
