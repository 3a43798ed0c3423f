"""The budget of a study over all its starts, and whether it is reached."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass

SECONDS_PER_HOUR = 3600.0
#: Number of newest trials from which the usual use of a trial is estimated.
N_TYPICAL = 50
#: Number of trials below which nothing is estimated.
_LEAST_KNOWN = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Spent:
    """What a study has spent so far, including running trials."""

    trials: int
    time_s: float
    device_s: float
    #: Energy of all attempts whose devices report it.
    energy_kwh: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialUse:
    """The use of a trial over all its attempts."""

    time_s: float = 0.0
    device_s: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class EndedUses:
    """The use of a study's newest trials, the oldest first."""

    completed: Sequence[TrialUse] = ()
    #: Trials that completed or were pruned.
    ended: Sequence[TrialUse] = ()

    @property
    def typical(self) -> TrialUse | None:
        """The usual use of a new trial, which may be pruned."""
        return typical_use(self.ended)


def typical_use(trials: Sequence[TrialUse]) -> TrialUse | None:
    """The median use of a trial; None if too few are known.

    The median, because a trial that does not fit is not lost: it may end after the limit. It fits
    with probability 1/2; a higher quantile would leave devices idle for longer, a lower one
    overspend more.

    Args:
        trials: Ended trials of the same kind.
    """
    if len(trials) < _LEAST_KNOWN:
        return None
    return TrialUse(
        time_s=statistics.median(each.time_s for each in trials),
        device_s=statistics.median(each.device_s for each in trials),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Budget:
    """Limits; None for no limit. Once one is reached, no trial starts; running trials finish."""

    trials: int | None = None
    time_s: float | None = None
    device_hours: float | None = None
    energy_kwh: float | None = None

    def reached(self, spent: Spent, *, is_new_trial: bool = True) -> str | None:
        """The limit that was reached, as text; None if there is none.

        Args:
            spent: Spending so far.
            is_new_trial: False for a further attempt of a trial that has been counted.
        """
        if is_new_trial and self.trials is not None and spent.trials >= self.trials:
            return f"{self.trials} trials"
        if self.time_s is not None and spent.time_s >= self.time_s:
            return f"{self.time_s:.0f} s"
        if self.device_hours is not None and spent.device_s >= self.device_hours * SECONDS_PER_HOUR:
            return f"{self.device_hours:g} device-hours"
        if self.energy_kwh is not None and spent.energy_kwh >= self.energy_kwh:
            return f"{self.energy_kwh:g} kWh"
        return None

    @property
    def counts_devices(self) -> bool:
        """Whether device use must be known, on all hosts."""
        return self.device_hours is not None or self.energy_kwh is not None

    def too_little(
        self, spent: Spent, trial: TrialUse, *, promised_device_s: float = 0.0
    ) -> str | None:
        """Why one more trial could not finish, as text; None if it can.

        Args:
            spent: Spending so far.
            trial: Its expected use.
            promised_device_s: Expected further device-seconds of running trials.
        """
        if self.time_s is not None:
            left_s = self.time_s - spent.time_s
            if left_s < trial.time_s:
                return (
                    f"{max(0.0, left_s):.3g} s of {self.time_s:.0f} s are left, and a trial takes "
                    f"{trial.time_s:.3g} s"
                )
        if self.device_hours is not None:
            left_s = self.device_hours * SECONDS_PER_HOUR - spent.device_s - promised_device_s
            if left_s < trial.device_s:
                return (
                    f"{max(0.0, left_s) / SECONDS_PER_HOUR:.3g} of {self.device_hours:g} "
                    f"device-hours are left, and a trial takes "
                    f"{trial.device_s / SECONDS_PER_HOUR:.3g}"
                )
        return None

    def fraction(self, spent: Spent) -> float | None:
        """Used fraction of the limit that is closest to its end, 0 to 1; None without one."""
        parts = []
        if self.trials is not None:
            parts.append(spent.trials / self.trials)
        if self.time_s is not None:
            parts.append(spent.time_s / self.time_s)
        if self.device_hours is not None:
            parts.append(spent.device_s / (self.device_hours * SECONDS_PER_HOUR))
        if self.energy_kwh is not None:
            parts.append(spent.energy_kwh / self.energy_kwh)
        return min(1.0, max(parts)) if parts else None
