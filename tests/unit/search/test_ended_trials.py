"""How an ended trial is named where the database cannot take it."""

from __future__ import annotations

import optuna
import pytest
from optuna.trial import FrozenTrial, TrialState

from tuner.search.ended_trials import format_end
from tuner.search.trial_attributes.infeasible import OWN_PREFIX


def ended(state: TrialState, constraint: str | None = None) -> FrozenTrial:
    study = optuna.create_study()
    trial = study.ask()
    if constraint is not None:
        trial.set_constraint(constraint, 1.0)
    study.tell(trial, 0.25 if state is TrialState.COMPLETE else None, state=state)
    return study.trials[0]


@pytest.mark.parametrize(
    ("trial", "words"),
    [
        (ended(TrialState.COMPLETE), "trial 0 (0.25)"),
        (ended(TrialState.PRUNED), "trial 0 (pruned)"),
        (ended(TrialState.FAIL), "trial 0 (failed)"),
        # Optuna's state for a trial that ran out of memory, or returned NaN.
        (ended(TrialState.PRUNED, f"{OWN_PREFIX}out_of_memory"), "trial 0 (failed)"),
        (ended(TrialState.PRUNED, "latency"), "trial 0 (pruned)"),
    ],
)
def test_an_end_is_named_as_everywhere(trial: FrozenTrial, words: str) -> None:
    assert format_end(trial) == words
