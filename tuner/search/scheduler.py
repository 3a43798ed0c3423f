"""The scheduler interface: decides after each report whether a trial continues, pauses or ends.

`Scheduler` has one abstract method, `report`. Every other method has a default that does nothing,
so a new scheduler overrides only what it needs. Built-in schedulers are listed in
`tuner/search/schedulers.py`.
"""

# ruff: noqa: B027 (most methods of `Scheduler` do nothing on purpose)

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Sequence, Set
from dataclasses import dataclass
from enum import Enum, auto
from typing import Protocol, runtime_checkable

from optuna.study import StudyDirection
from optuna.trial import FrozenTrial, TrialState

from tuner.checkpoints.hand_over import StateCopies
from tuner.domain.messages import Action
from tuner.search.optuna_study import TunedStudy
from tuner.search_spaces import AnySpace
from tuner.store.optuna_tables.storage import BufferedStorage


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """The action that follows a report, and the reason shown to the user."""

    action: Action
    reason: str = ""


CONTINUE = Verdict(action=Action.CONTINUE)


class Ending(Enum):
    """How a trial leaves its device for good, or returns to the queue."""

    COMPLETED = auto()
    PRUNED = auto()
    #: Includes trials whose configuration turned out to be infeasible.
    FAILED = auto()
    #: The trial waits for another attempt.
    REQUEUED = auto()


@dataclass(frozen=True, slots=True, kw_only=True)
class SchedulerContext:
    """The study that a scheduler works on.

    Args:
        study: Optuna's view of the study.
        storage: Holds the study in memory.
        study_id: Its id in the storage.
        objectives: Names of the objectives, in order.
        directions: Directions of the objectives, in the same order.
        space: The search space of the study file; None for define-by-run.
    """

    study: TunedStudy
    storage: BufferedStorage
    study_id: int
    objectives: tuple[str, ...]
    directions: tuple[StudyDirection, ...]
    space: AnySpace | None


class Scheduler(ABC):
    """Decides which trials continue, pause, resume and end."""

    #: Whether weak trials are replaced by copies of strong ones.
    has_population = False
    #: Whether steps are a course of time. Otherwise they may be reported in any order.
    has_ordered_steps = True
    #: Shown to the user when `is_exhausted` is true.
    exhausted_reason = ""
    #: Starts a trial that the scheduler chooses and returns its id; None: the sampler chooses.
    begin_next: Callable[[], int | None] | None = None

    _has_stopped_pausing = False

    # -- one trial ---------------------------------------------------------------------------

    @abstractmethod
    def report(
        self, trial_id: int, step: int, values: Sequence[float], *, held_s: float | None
    ) -> Verdict:
        """Judges a report, which the storage holds already if there is one objective.

        Args:
            trial_id: Id of the running trial.
            step: Step of the report.
            values: One value for each objective, in order.
            held_s: Seconds since the attempt got its devices; None if unknown.
        """

    def begin(self, trial_id: int) -> None:
        """Records that a trial is about to have an attempt."""

    def end(self, trial_id: int, ending: Ending) -> None:
        """Records that a trial is about to end, or to return to the queue."""

    def record_length(self, trial_id: int) -> None:
        """Learns the length of a training from a trial that has completed with all its steps."""

    def sync(self, trial: FrozenTrial) -> None:
        """Reads a trial from the storage, whichever dispatcher changed it."""

    # -- pausing -----------------------------------------------------------------------------

    @property
    def paused(self) -> Set[int]:
        """Numbers of the paused trials, which wait for `resume` and not for a device."""
        return frozenset()

    def pause(self, trial_id: int) -> None:
        """Pauses a trial after a `PAUSE` verdict of `report`, once its devices are released."""
        raise NotImplementedError(f"{type(self).__name__} pauses no trials.")

    def resume(self, *, is_last: bool) -> int | None:
        """Takes the paused trial that continues next, for this dispatcher.

        Args:
            is_last: No other trial will start, so the best paused trial may continue.

        Returns:
            Its id; None if no trial is to continue.
        """
        return None

    def take(self, number: int) -> int | None:
        """Takes one paused trial by number; None if another dispatcher was quicker."""
        return None

    def gives_up(self, trial_id: int) -> bool:
        """Whether a trial that `resume` returned must be pruned instead."""
        return False

    def stop_pausing(self) -> bool:
        """Ends trials instead of pausing them, because programs save no checkpoints.

        Returns:
            Whether this is new.
        """
        is_new, self._has_stopped_pausing = not self._has_stopped_pausing, True
        return is_new

    def lacks_winner(self, counts: Counter[TrialState]) -> bool:
        """Whether paused trials must continue before the study can end.

        Args:
            counts: Trials of the study by state.
        """
        return False

    @property
    def leader_share_left(self) -> float | None:
        """Share of a whole training that the best paused trial has left; None if unknown."""
        return None

    # -- the study ---------------------------------------------------------------------------

    @property
    def needs_suggestion(self) -> bool:
        """Whether the next new trial needs a configuration from the sampler."""
        return True

    @property
    def is_exhausted(self) -> bool | None:
        """Whether no trial can start any more; None: the sampler decides."""
        return None

    @property
    def n_steps(self) -> int | None:
        """Steps of a whole training, if the scheduler knows them."""
        return None

    def read_ahead(self) -> bool:
        """Reads some of the curves that `report` will need; returns whether more are left."""
        return False

    def take_notes(self) -> list[str]:
        """Returns and clears the messages for the user."""
        return []

    # -- checkpoints of other trials ---------------------------------------------------------

    def set_copies(self, copies: StateCopies) -> None:
        """Allows copies of checkpoints from now on."""

    def hand_over(self, trial_id: int) -> str:
        """Copies a parent's checkpoint before an attempt; returns a message for the user or ''."""
        return ""

    def resumes_from(self, trial_id: int, step: int) -> None:
        """Records that a trial continues from an older checkpoint, or from none (step 0)."""

    def restarts_steps(self, trial_id: int, step: int) -> bool:
        """Whether the first step that a copy reports shows that it ignores its parent's state."""
        return False


class NullScheduler(Scheduler):
    """Lets every trial run to its end."""

    def report(
        self, trial_id: int, step: int, values: Sequence[float], *, held_s: float | None
    ) -> Verdict:
        return CONTINUE


@runtime_checkable
class BringsScheduler(Protocol):
    """A pruner with a scheduler of its own."""

    def make_scheduler(self, context: SchedulerContext) -> Scheduler:
        """Makes the scheduler of one study."""
