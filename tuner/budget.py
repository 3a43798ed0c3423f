"""What a study may spend, over all its starts, and whether it has."""

from __future__ import annotations

from dataclasses import dataclass

SECONDS_PER_HOUR = 3600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Spent:
    """What a study has spent so far, what runs now included."""

    trials: int
    time_s: float
    device_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Budget:
    """Limits; None is no limit. Once one is reached no trial starts; those that run may end."""

    trials: int | None = None
    time_s: float | None = None
    device_hours: float | None = None

    def reached(self, spent: Spent, *, is_new_trial: bool = True) -> str | None:
        """The limit that was reached, for people; None while all hold.

        Args:
            spent: So far.
            is_new_trial: False for one more attempt of a trial that has been counted.
        """
        if is_new_trial and self.trials is not None and spent.trials >= self.trials:
            return f"{self.trials} trials"
        if self.time_s is not None and spent.time_s >= self.time_s:
            return f"{self.time_s:.0f} s"
        if self.device_hours is not None and spent.device_s >= self.device_hours * SECONDS_PER_HOUR:
            return f"{self.device_hours:g} device-hours"
        return None

    def fraction(self, spent: Spent) -> float | None:
        """How much is spent of the limit that will be reached first, 0 to 1; None without one."""
        parts = []
        if self.trials is not None:
            parts.append(spent.trials / self.trials)
        if self.time_s is not None:
            parts.append(spent.time_s / self.time_s)
        if self.device_hours is not None:
            parts.append(spent.device_s / (self.device_hours * SECONDS_PER_HOUR))
        return min(1.0, max(parts)) if parts else None
