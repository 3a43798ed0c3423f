"""What the dispatcher tells people: things that happened, and how everything stands."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol, TypeAlias

from tuner.domain.attempt import Attempt, Ending
from tuner.search.incumbent import BestTrial
from tuner.search_spaces import ParamValue


@dataclass(frozen=True, slots=True, kw_only=True)
class Started:
    """An attempt has its devices and its process."""

    attempt: Attempt
    devices: tuple[str, ...]
    params: Mapping[str, ParamValue]


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """An attempt has ended, and the database knows."""

    attempt: Attempt
    ending: Ending
    #: Present where it is the best trial now.
    is_best: bool
    will_retry: bool
    log_path: str
    params: Mapping[str, ParamValue] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Said:
    """Something that concerns the whole study."""

    text: str


Notice: TypeAlias = Started | Ended | Said


@dataclass(frozen=True, slots=True, kw_only=True)
class RunningTrial:
    """What a device is doing now."""

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
    """The devices of this user on a machine that is divided among its users."""

    held: float
    #: Of the part: what the guarantee gives.
    by_right: float
    #: What the user may have now.
    part: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """How the study stands."""

    n_completed: int
    n_pruned: int
    n_failed: int
    n_waiting: int
    #: Trials that were started, those of earlier starts included.
    n_begun: int
    n_trials: int | None
    running: tuple[RunningTrial, ...]
    idle_devices: tuple[str, ...]
    #: Devices that somebody else uses, with who does.
    left_to_others: Mapping[str, str]
    best: BestTrial | None
    elapsed_s: float
    #: Share of the limit that is nearest its end, finished trials counted; None without a limit.
    fraction: float | None
    #: Estimated from the pace so far; None where there is nothing to estimate from.
    left_s: float | None
    is_stopping: bool
    #: Trials that stand at a rung until it is their turn.
    n_paused: int = 0
    #: Why devices of ours stand idle, by label.
    idle_causes: Mapping[str, str] = field(default_factory=dict)
    #: Trials that wait for a device here, or for whoever works on the study.
    n_queued: int = 0
    #: Since the last commit.
    store_lag_s: float = 0.0
    #: Values that were reported and are not in the database yet.
    n_unsaved_reports: int = 0
    #: None where the machine is not divided among its users.
    share: UserShare | None = None

    @property
    def n_finished(self) -> int:
        return self.n_completed + self.n_pruned + self.n_failed


class View(Protocol):
    """Shows people what happens."""

    @property
    def refresh_every_s(self) -> float:
        """How old what it shows may be; 0 for a refresh in every round of the loop."""

    def show(self, notice: Notice) -> None: ...

    def refresh(self, snapshot: Snapshot) -> None: ...
