"""Number of devices that a study could use, for autoscalers and for `tuner submit --adapt`."""

from __future__ import annotations

from tuner.dispatch.notices import Snapshot


def devices_wanted(now: Snapshot) -> int:
    """Trials that the budget still allows, each with as many devices as one has that runs."""
    n_left = max(0, (now.n_trials or 0) - now.n_finished)
    widths = [len(each.devices) for each in now.running]
    return n_left * max(1, round(sum(widths) / len(widths)) if widths else 1)
