"""The reason of a pruned trial names the bar that the pruner used."""

from __future__ import annotations

import random
import re

import optuna
import pytest
from optuna.pruners import SuccessiveHalvingPruner
from optuna.samplers import RandomSampler

from tuner.search.pruners.explain_optuna import why_pruned
from tuner.search.rungs.table import RUNG_KEY

REASON = re.compile(r"rung (\d) is passed with loss at (least|most) ([\d.]+), .* (\d+) trials")


@pytest.mark.parametrize("bootstrap_count", [0, 3])
@pytest.mark.parametrize("direction", ["minimize", "maximize"])
def test_reason_at_a_rung_is_that_of_optuna(direction: str, bootstrap_count: int) -> None:
    pruner = SuccessiveHalvingPruner(
        min_resource=1, reduction_factor=3, bootstrap_count=bootstrap_count
    )
    study = optuna.create_study(direction=direction, pruner=pruner, sampler=RandomSampler(0))
    draw = random.Random(1)
    n_pruned = 0
    for _ in range(60):
        trial = study.ask()
        for step in range(1, 10):
            value = draw.random()
            trial.report(value, step)
            if not trial.should_prune():
                continue
            trials = study.get_trials(deepcopy=False)
            reason = why_pruned(study, pruner, trials[-1], "loss")
            found = REASON.search(reason)
            keys = [key for key in trials[-1].system_attrs if key.startswith(RUNG_KEY)]
            rung = len(keys) - 1
            n_came = sum(f"{RUNG_KEY}{rung}" in each.system_attrs for each in trials)
            assert (found is None) == (n_came <= bootstrap_count)
            if found is not None:
                n_pruned += 1
                assert (int(found[1]), int(found[4])) == (rung, n_came)
                sign = 1 if direction == "minimize" else -1
                assert sign * value > sign * float(found[3])
            study.tell(trial, state=optuna.trial.TrialState.PRUNED)
            break
        else:
            study.tell(trial, value)
    assert n_pruned > 20
