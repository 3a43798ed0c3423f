"""Real ranks, and what trials of one process need as well."""

from __future__ import annotations

from tests.unit.trials.conftest import link, new_trial

__all__ = ["link", "new_trial"]
