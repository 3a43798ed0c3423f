"""Which rungs are open, as noted with trials."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from optuna.trial import FrozenTrial, TrialState, create_trial

from tuner.search.rungs.order_check import END, Agreement, RungTrust
from tuner.search.rungs.stored_trust import TRUST_KEY, KnownRung, StoredTrust, last_open_step


def a_trial(open_steps: Sequence[int], *, n_changes: int, n_ended: int) -> FrozenTrial:
    """A trial with a note of the rungs at steps 2, 6 and 18."""
    rungs = [
        KnownRung(
            step=step,
            later_step=None,
            trust=RungTrust(
                is_open=step in open_steps,
                after=0,
                later=END,
                agreement=Agreement(n_trials=3, n_concordant=0, n_discordant=3),
            ),
        )
        for step in (2, 6, 18)
    ]
    trial = create_trial(state=TrialState.PRUNED)
    note = StoredTrust(n_changes=n_changes, n_ended=n_ended, rungs=rungs)
    trial.system_attrs[TRUST_KEY] = note.as_json()
    return trial


@pytest.mark.parametrize(("open_steps", "last"), [((), 0), ((2,), 2), ((2, 6), 6), ((2, 18), 18)])
def test_the_last_open_rung_counts(open_steps: Sequence[int], last: int) -> None:
    assert last_open_step([a_trial(open_steps, n_changes=1, n_ended=0)]) == last


def test_the_newest_note_counts_wherever_it_is() -> None:
    trials = [
        a_trial((2,), n_changes=3, n_ended=5),
        a_trial((2, 6), n_changes=2, n_ended=9),
        create_trial(state=TrialState.PRUNED),
    ]
    assert last_open_step(trials) == 2
    assert last_open_step([*trials, a_trial((), n_changes=4, n_ended=5)]) == 0


def test_without_a_note_no_rung_is_open() -> None:
    assert last_open_step([create_trial(state=TrialState.PRUNED)]) == 0
