"""The interface of a tracker: five methods, called in one thread of a process of its own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import Enum
from pathlib import Path
from typing import Protocol, runtime_checkable

from tuner.search_spaces import ParamValue


class RunStatus(Enum):
    """How a trial ended."""

    COMPLETED = "completed"
    PRUNED = "pruned"
    FAILED = "failed"


@dataclass(frozen=True, slots=True, kw_only=True)
class TrackedStudy:
    """The study whose trials are tracked."""

    name: str
    #: Random and unique: a new study of the same name in a new database has another one.
    key: str
    objectives: tuple[str, ...]
    #: The study file's folder, base of relative paths and the current working directory.
    folder: Path


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """A trial that has started, or started again."""

    trial: int
    #: `<study>/trial-<number>`.
    name: str
    #: Constants included.
    params: Mapping[str, ParamValue]
    #: Study, trial, attempt, devices, host and log: links from the run to the trial.
    tags: Mapping[str, str]
    #: Start of the first attempt.
    started_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """One reported value."""

    name: str
    step: int
    #: NaN if the program reported NaN or infinity.
    value: float
    #: When it was first seen, to about two seconds.
    at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class RunEnd:
    """How a trial ended, after its last attempt."""

    status: RunStatus
    #: The status, or a more specific failure: `timed_out`, `out_of_memory`, `not_a_number`.
    outcome: str
    #: Final values by objective; empty if there are none.
    values: Mapping[str, float]
    #: In attempts, without the time between them.
    duration_s: float
    ended_at: datetime


@runtime_checkable
class Tracker(Protocol):
    """Writes runs. A class of another package registers in the entry point group `tuner.trackers`.

    The arguments of its constructor are its keys below `track.<name>` in the study file; a single
    value there is the first argument. The constructor runs when the study file is checked: it must
    not connect or import anything that is slow. All other calls are made in a process of their own,
    from one thread, so that they may block. If a call raises, the object is closed, and a new one
    is opened later; every open run is then started again.
    """

    def open(self, study: TrackedStudy) -> None:
        """Connects. Called once, before all other calls."""

    def begin(self, run: Run, steps: Mapping[str, int]) -> Mapping[str, int]:
        """Creates the run of a trial, or continues it.

        Called once for each attempt that this process sees, so several times for a trial that is
        resumed or retried.

        Args:
            run: The trial and its newest attempt.
            steps: Last step of each metric that was written, according to the tuner.

        Returns:
            Last step of each metric that the run holds; `steps` if that cannot be read. Points up
            to there are not sent again.
        """

    def log(self, trial: int, points: Sequence[Point]) -> None:
        """Writes points of a started run, with the steps of a metric in order."""

    def end(self, trial: int, ending: RunEnd) -> None:
        """Ends a run. It is started again only if the user retries the trial."""

    def close(self) -> None:
        """Writes what is buffered, and disconnects. Runs that have not ended continue later."""
