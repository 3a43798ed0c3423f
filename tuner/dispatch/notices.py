"""Notices and progress snapshots that the dispatcher shows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol, TypeAlias

from tuner.domain.attempt import Attempt, Ending
from tuner.search.incumbent import BestTrial
from tuner.search_spaces import ParamValue


@dataclass(frozen=True, slots=True, kw_only=True)
class Started:
    """An attempt has devices and a process."""

    attempt: Attempt
    devices: tuple[str, ...]
    params: Mapping[str, ParamValue]


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """An attempt has ended, and the database has recorded it."""

    attempt: Attempt
    ending: Ending
    #: Whether it is the best trial now.
    is_best: bool
    will_retry: bool
    log_path: str
    params: Mapping[str, ParamValue] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Said:
    """A message about the whole study."""

    text: str


Notice: TypeAlias = Started | Ended | Said


@dataclass(frozen=True, slots=True, kw_only=True)
class RunningTrial:
    """What a device is running now."""

    number: int
    attempt_number: int
    devices: tuple[str, ...]
    state: str
    elapsed_s: float
    step: int | None
    values: Mapping[str, float]
    params: Mapping[str, ParamValue]


@dataclass(frozen=True, slots=True, kw_only=True)
class UserShare:
    """This user's devices on a machine that is divided among users."""

    held: float
    #: The part of the share that is guaranteed.
    by_right: float
    #: The share that the user may hold now.
    part: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """Progress of a study."""

    n_completed: int
    n_pruned: int
    n_failed: int
    n_waiting: int
    #: Trials started, including those of earlier starts.
    n_begun: int
    n_trials: int | None
    running: tuple[RunningTrial, ...]
    idle_devices: tuple[str, ...]
    #: Devices in use by other users, with the user of each.
    left_to_others: Mapping[str, str]
    best: BestTrial | None
    elapsed_s: float
    #: Fraction used of the limit that is closest to its end, by finished trials; None without a
    #: limit.
    fraction: float | None
    #: Estimated seconds left, from the pace so far; None without enough data.
    left_s: float | None
    is_stopping: bool
    #: Trials paused at a rung.
    n_paused: int = 0
    #: Why this study's devices are idle, by label.
    idle_causes: Mapping[str, str] = field(default_factory=dict)
    #: Trials that wait for a device here, or for any dispatcher of the study.
    n_queued: int = 0
    #: Seconds since the last commit.
    store_lag_s: float = 0.0
    #: Reported values that are not in the database yet.
    n_unsaved_reports: int = 0
    #: None if the machine is not divided among users.
    share: UserShare | None = None

    @property
    def n_finished(self) -> int:
        return self.n_completed + self.n_pruned + self.n_failed


class View(Protocol):
    """Shows notices and progress."""

    @property
    def refresh_every_s(self) -> float:
        """Refresh interval in seconds; 0 refreshes in each iteration of the loop."""

    def show(self, notice: Notice) -> None: ...

    def refresh(self, snapshot: Snapshot) -> None: ...
