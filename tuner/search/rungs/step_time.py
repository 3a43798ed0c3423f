"""Times per step and per start, measured from attempts."""

from __future__ import annotations

from bisect import insort
from collections.abc import Collection, Sequence
from dataclasses import dataclass


@dataclass(slots=True)
class _Attempt:
    """One launch of a trial, from its first report on."""

    #: The step of the last report before it.
    resumed_at: int
    first_step: int
    #: From its devices to its first report.
    first_s: float
    last_step: int
    last_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """Measured times of one trial."""

    #: Seconds.
    of_step: float
    of_start: float


class Pace:
    """Seconds per step and per start; steps count as 1 and starts as 0 until measured.

    A step is measured between two reports of one attempt; a start is the extra time of the first
    one.
    """

    def __init__(self) -> None:
        self._attempts: dict[int, _Attempt] = {}
        self._known: dict[int, Measured] = {}
        #: In order, for the median.
        self._of_steps: list[float] = []
        self._of_starts: list[float] = []

    def begins(self, number: int) -> None:
        """A trial is about to have one more attempt."""
        self._attempts.pop(number, None)

    def reported(self, number: int, step: int, held_s: float, *, known: Collection[int]) -> None:
        """Measures a trial from its report.

        Args:
            number: The trial's number.
            step: Step of the report.
            held_s: Seconds since its attempt got its devices.
            known: Steps that it has reported, including earlier attempts.
        """
        attempt = self._attempts.get(number)
        if attempt is None:
            resumed_at = max((each for each in known if each < step), default=0)
            self._attempts[number] = _Attempt(resumed_at, step, held_s, step, held_s)
        elif step > attempt.last_step:
            attempt.last_step, attempt.last_s = step, held_s

    def measured(self, number: int) -> Measured | None:
        """Measurements of a trial's current attempt; None if there are none yet."""
        attempt = self._attempts.get(number)
        if attempt is None or attempt.last_step == attempt.first_step:
            return None
        n_steps = attempt.last_step - attempt.first_step
        of_step = max(0.0, attempt.last_s - attempt.first_s) / n_steps
        before = attempt.first_step - attempt.resumed_at
        return Measured(of_step=of_step, of_start=max(0.0, attempt.first_s - before * of_step))

    def take_in(self, number: int, measured: Measured) -> None:
        """Adds measurements of a trial; its first ones count for all."""
        if number not in self._known:
            insort(self._of_steps, measured.of_step)
            insort(self._of_starts, measured.of_start)
        self._known[number] = measured

    def of_step(self, number: int | None) -> float:
        """Time per step of a trial; the median of all if it is unknown or not started (None)."""
        if number is not None and (known := self._known.get(number)) is not None:
            return known.of_step
        return _median(self._of_steps, 1.0)

    @property
    def unit(self) -> str:
        """Unit of these times."""
        return "second" if self._of_steps else "step"

    @property
    def of_start(self) -> float:
        """The median of all attempts."""
        return _median(self._of_starts, 0.0)


def _median(in_order: Sequence[float], unknown: float) -> float:
    return in_order[len(in_order) // 2] if in_order else unknown
