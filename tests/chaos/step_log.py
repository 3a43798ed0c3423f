"""What the training program left behind for each step, whoever was alive to hear of it."""

from __future__ import annotations

import os
import time
from collections import defaultdict
from collections.abc import Collection, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

import psutil

from tests.chaos.checked import STEP_S, returns_nothing

_OLDEST_S = 300.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """One thing that a process did.

    `what` is begun, from (resumed at that step), step, saved, left (as it was told) or post (the
    last step is done). `pid` counts in the PID namespace `namespace`, an inode, or the number of a
    machine of `chaos.nodes`.
    """

    what: str
    trial: int
    attempt: int
    rank: int
    step: int
    pid: int
    namespace: int
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
        """The first line of each process that still trains, with its pid in our namespace."""
        begun = [line for line in self.read() if line.what == "begun"]
        latest = {(line.trial, line.rank): line for line in begun}
        here = [replace(line, pid=pid_here(line)) for line in latest.values() if _is_recent(line)]
        return [line for line in here if _is_alive(line)]


def without_late(lines: Iterable[Line]) -> list[Line]:
    """Leaves out what an attempt did after a newer one of its trial had begun.

    Where a machine is cut off from the database, but not from the folder, its attempt may train and
    save until it hears that it was taken over. Nobody has acknowledged that.
    """
    newest: dict[tuple[int, int], tuple[int, int]] = {}
    kept = []
    for line in lines:
        process = (line.namespace, line.pid)
        if line.what == "begun":
            newest[line.trial, line.rank] = process
        if newest.get((line.trial, line.rank), process) == process:
            kept.append(line)
    return kept


def with_uploaded(lines: Sequence[Line], uploaded: Iterable[tuple[int, int, float]]) -> list[Line]:
    """Where machines share no folder, a state is saved once an object store has acknowledged it.

    Args:
        lines: In the order in which they were written.
        uploaded: Trial, step and time of what it has acknowledged.
    """
    kept = [line for line in lines if line.what != "saved"]
    last = {line.trial: line for line in kept}
    kept += [
        replace(last[trial], what="saved", rank=0, step=step, at_s=at_s)
        for trial, step, at_s in uploaded
        if trial in last
    ]
    return sorted(kept, key=lambda line: line.at_s)


def without_forgotten(
    lines: Sequence[Line], forgotten: Iterable[tuple[float, float]]
) -> list[Line]:
    """Leaves out trials that the database has forgotten; others have their numbers now.

    Args:
        lines: In the order in which they were written.
        forgotten: Times of which the database has lost all, seconds since the epoch.
    """
    kept = list(lines)
    for begin_s, end_s in forgotten:
        first: dict[int, float] = {}
        for line in kept:
            first.setdefault(line.trial, line.at_s)
        lost = {trial for trial, at_s in first.items() if begin_s <= at_s <= end_s}
        kept = [line for line in kept if line.trial not in lost or line.at_s > end_s]
    return kept


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
    has_finished: set[int] = set()
    found = []
    for line in (each for each in lines if each.rank == 0):
        if line.what == "step":
            done[line.trial].add(line.step)
        if line.what == "saved" and (line.trial, line.step) not in torn:
            saved[line.trial].add(line.step)
        if line.what == "left":
            has_left.add(line.trial)
        n_again = sum(step >= line.step for step in done[line.trial])
        if line.what == "post":
            has_finished.add(line.trial)
        # Reports of the last moment may be lost with a dispatcher. A trial that has nothing left to
        # do and returns nothing then begins again without its state: there is no other way.
        if line.what == "from" and line.trial in has_finished and returns_nothing(line.trial):
            saved[line.trial] = {step for step in saved[line.trial] if line.step}
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
    trial, attempt, rank, step, pid, namespace = map(int, numbers)
    return Line(
        what=what,
        trial=trial,
        attempt=attempt,
        rank=rank,
        step=step,
        pid=pid,
        namespace=namespace,
        at_s=float(at_s),
    )


def pid_here(line: Line) -> int:
    """The process's number in our own PID namespace; 0 if it is gone."""
    if line.namespace == os.stat("/proc/self/ns/pid").st_ino:
        return line.pid
    for pid in psutil.pids():
        with suppress(OSError):
            is_same = os.stat(f"/proc/{pid}/ns/pid").st_ino == line.namespace
            if is_same and _innermost_pid(pid) == line.pid:
                return pid
    return 0


def _innermost_pid(pid: int) -> int:
    """What a process takes for its own number: the last one of `NSpid` in proc(5)."""
    status = Path(f"/proc/{pid}/status").read_text()
    return int(status.partition("NSpid:")[2].partition("\n")[0].split()[-1])


def _is_recent(line: Line) -> bool:
    """A trial's attempts take seconds; of older ones nothing is left to be looked for."""
    return time.time() - line.at_s < _OLDEST_S


def _is_alive(line: Line) -> bool:
    try:
        process = psutil.Process(line.pid)
        is_same = process.create_time() <= line.at_s + 1.0
        return is_same and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False
