"""What the check of the rungs stores with a trial."""

from __future__ import annotations

from collections.abc import Collection

from tuner.search.rungs.order.agreement import END, Agreement, RungTrust
from tuner.search.rungs.order.stored_trust import KnownRung, StoredTrust, TrustJson

STEPS = (2, 6, 18)
"""Of the rungs."""


def trust_note(
    open_steps: Collection[int],
    *,
    n_changes: int = 1,
    n_ended: int = 1,
    n_trials: int = 4,
    n_concordant: int = 0,
) -> TrustJson:
    """A note in which the rungs at some of `STEPS` are open, by default by four reversed trials."""
    n_pairs = n_trials * (n_trials - 1) // 2
    agreement = Agreement(
        n_trials=n_trials, n_concordant=n_concordant, n_discordant=n_pairs - n_concordant
    )
    rungs = [
        KnownRung(
            step=step,
            later_step=None,
            trust=RungTrust(is_open=step in open_steps, after=0, later=END, agreement=agreement),
        )
        for step in STEPS
    ]
    return StoredTrust(n_changes=n_changes, n_ended=n_ended, rungs=rungs).as_json()
