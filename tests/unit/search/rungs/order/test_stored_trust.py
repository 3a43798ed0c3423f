"""Which rungs are open, as noted with trials."""

from __future__ import annotations

from collections.abc import Collection

import pytest
from optuna.trial import FrozenTrial, TrialState, create_trial

from tests.rung_notes import trust_note
from tuner.search.rungs.order.stored_trust import TRUST_KEY, last_open_step


def a_trial(open_steps: Collection[int], *, n_changes: int = 1, n_ended: int = 1) -> FrozenTrial:
    trial = create_trial(state=TrialState.PRUNED)
    trial.system_attrs[TRUST_KEY] = trust_note(open_steps, n_changes=n_changes, n_ended=n_ended)
    return trial


@pytest.mark.parametrize(("open_steps", "last"), [((), 0), ((2,), 2), ((2, 6), 6), ((2, 18), 18)])
def test_the_last_open_rung_counts(open_steps: Collection[int], last: int) -> None:
    assert last_open_step([a_trial(open_steps)]) == last


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
