"""What the check of the rungs stores with a trial."""

from __future__ import annotations

from collections.abc import Collection

from tuner.search.rungs.order.agreement import END, Agreement, RungTrust
from tuner.search.rungs.order.stored_trust import KnownRung, StoredTrust, TrustJson

STEPS = (2, 6, 18)
"""Of the rungs."""


def trust_note(open_steps: Collection[int], *, n_changes: int = 1, n_ended: int = 1) -> TrustJson:
    """A note in which the rungs at some of `STEPS` are open."""
    agreement = Agreement(n_trials=3, n_concordant=0, n_discordant=3)
    rungs = [
        KnownRung(
            step=step,
            later_step=None,
            trust=RungTrust(is_open=step in open_steps, after=0, later=END, agreement=agreement),
        )
        for step in STEPS
    ]
    return StoredTrust(n_changes=n_changes, n_ended=n_ended, rungs=rungs).as_json()
