"""The private names of Optuna that the tuner uses, each with what stops working without it.

A new version of Optuna that renames one fails here, by the name and what it is for.
"""

from __future__ import annotations

import ast
from collections.abc import Callable
from pathlib import Path
from typing import Any

import optuna
import pytest
from optuna.distributions import FloatDistribution
from optuna.pruners import (
    HyperbandPruner,
    MedianPruner,
    NopPruner,
    PatientPruner,
    SuccessiveHalvingPruner,
)
from optuna.samplers import CmaEsSampler, GPSampler, NSGAIISampler, RandomSampler, TPESampler

from tuner.store import optuna_compat

HALVING = "the rungs of Optuna's pruners, in the dashboard and in why a trial was pruned"
PERCENTILES = "median and percentile pruning"
CMA_ES = "which trials `cmaes` is shown"
RANKING = "which trials `tpe` is shown"

#: Where the tuner reads a private name of an object: the object, the name, what needs it.
READ: list[tuple[Callable[[], Any], str, str]] = [
    (lambda: a_study().ask(), "_trial_id", "every write to a trial"),
    (lambda: a_study().ask(), "_suggest", "define-by-run parameters"),
    (lambda: a_trial(), "_trial_id", "every write to a trial"),
    (lambda: a_study(), "_study_id", "every read of a study's trials"),
    (lambda: a_study(), "_storage", "the dispatcher's storage in samplers and pruners"),
    (lambda: a_study(), "_get_trials", "samplers that are shown a part of the trials"),
    (lambda: FloatDistribution(0, 1), "_contains", "trials that are copied or enqueued"),
    *((lambda: MedianPruner(), name, PERCENTILES) for name in (
        "_percentile", "_n_startup_trials", "_n_warmup_steps", "_interval_steps", "_n_min_trials",
    )),
    *((lambda: SuccessiveHalvingPruner(), name, HALVING) for name in (
        "_min_resource", "_reduction_factor", "_min_early_stopping_rate", "_bootstrap_count",
    )),
    (lambda: HyperbandPruner(), "_min_resource", HALVING),
    (lambda: HyperbandPruner(), "_reduction_factor", HALVING),
    (lambda: PatientPruner(NopPruner(), 1), "_wrapped_pruner", HALVING),
    (lambda: TPESampler(), "_n_startup_trials", "the trials that `tpe` is shown"),
    (lambda: TPESampler(), "_random_sampler", "first trials of `tpe` that cover the space"),
    (lambda: GPSampler(), "_n_startup_trials", "suggestions of `gp` in another process"),
    (lambda: GPSampler(), "_independent_sampler", "suggestions of `gp` in another process"),
    *((lambda: CmaEsSampler(), name, CMA_ES) for name in (
        "_n_startup_trials", "_attr_key_generation", "_attr_key_optimizer",
        "_consider_pruned_trials",
    )),
    (lambda: NSGAIISampler(), "_get_generation_key", "which trials `nsgaii` is shown"),
    (lambda: optuna_compat.tpe, "_get_infeasible_trial_score", RANKING),
    (lambda: optuna_compat.tpe, "_get_pruned_trial_score", RANKING),
    (lambda: optuna_compat.tpe, "_split_complete_trials", RANKING),
    (lambda: optuna_compat.truncnorm, "_log_ndtr", "the speed of `tpe`"),
]  # fmt: skip


def a_study() -> optuna.Study:
    return optuna.create_study(sampler=RandomSampler(0))


def a_trial() -> optuna.trial.FrozenTrial:
    return optuna.trial.create_trial(value=1.0)


@pytest.mark.parametrize(
    ("make", "name", "breaks"),
    READ,
    ids=[f"{name}-{number}" for number, (_, name, _) in enumerate(READ)],
)
@pytest.mark.filterwarnings("ignore::optuna.exceptions.ExperimentalWarning")
def test_optuna_still_has(make: Callable[[], Any], name: str, breaks: str) -> None:
    found = make()
    assert hasattr(found, name), (
        f"Optuna {optuna.__version__}: {type(found).__name__} has no {name}. Without it these stop "
        f"working: {breaks}. Change tuner/store/optuna_compat.py."
    )


def test_every_private_name_that_is_read_is_tried_here() -> None:
    tree = ast.parse(Path(optuna_compat.__file__).read_text())
    names = (node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute))
    read = {name for name in names if name.startswith("_")}
    assert len(read) > 20
    assert read - {name for _, name, _ in READ} == set()
