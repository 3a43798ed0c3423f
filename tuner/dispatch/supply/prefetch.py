"""Whether the next trial is asked for while all devices are busy, so that none waits for it."""

from __future__ import annotations

#: Weight of the newest time in a mean.
_NEWEST = 0.25
#: What a trial loses in quality when it is asked for one trial earlier, on one device: its sampler
#: knows of one result less. With n devices it knows of one less among n, and loses that part.
_LOSS_OF_ONE_DEVICE = 0.02


class Foresight:
    """Compares how long devices wait for suggestions with what it costs to ask early.

    A trial that is asked for early is suggested without the results that come in until it starts.
    That is worth it only where devices would stand still for a noticeable part of their time.
    """

    def __init__(self) -> None:
        self._ask_s: float | None = None
        self._trial_s: float | None = None

    def asked(self, took_s: float) -> None:
        """A suggestion was made, and took so long."""
        self._ask_s = _mean(self._ask_s, took_s)

    def ended(self, lasted_s: float) -> None:
        """A trial has held its devices for so long."""
        self._trial_s = _mean(self._trial_s, lasted_s)

    def is_worth_it(self, n_devices: int) -> bool:
        """
        Args:
            n_devices: On which trials run side by side.
        """
        if self._ask_s is None or self._trial_s is None:
            return False
        return self._ask_s * n_devices > _LOSS_OF_ONE_DEVICE * self._trial_s


def _mean(before: float | None, newest: float) -> float:
    return newest if before is None else before + _NEWEST * (newest - before)
