"""Decides whether to request the next trial while all devices are busy."""

from __future__ import annotations

#: Weight of the newest time in a moving average.
_NEWEST = 0.25
#: Loss of quality when a trial is requested one trial earlier on one device: its sampler has one
#: result less. With n devices it has one result less among n, and the loss is 1/n of this.
_LOSS_OF_ONE_DEVICE = 0.02


class Foresight:
    """Compares the time that devices wait for suggestions with the cost of early suggestions.

    A trial requested early is suggested without the results that arrive before it starts. This pays
    only if devices would otherwise be idle for a noticeable part of their time.
    """

    def __init__(self) -> None:
        self._ask_s: float | None = None
        self._trial_s: float | None = None

    def asked(self, took_s: float) -> None:
        """Adds the time that a suggestion took, in seconds."""
        self._ask_s = _mean(self._ask_s, took_s)

    def ended(self, lasted_s: float) -> None:
        """Adds the time that a trial held its devices, in seconds."""
        self._trial_s = _mean(self._trial_s, lasted_s)

    def is_worth_it(self, n_devices: int) -> bool:
        """Whether early requests pay.

        Args:
            n_devices: Number of devices on which trials run in parallel.
        """
        if self._ask_s is None or self._trial_s is None:
            return False
        return self._ask_s * n_devices > _LOSS_OF_ONE_DEVICE * self._trial_s


def _mean(before: float | None, newest: float) -> float:
    return newest if before is None else before + _NEWEST * (newest - before)
