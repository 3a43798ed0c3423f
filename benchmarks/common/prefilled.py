"""A study that has had many trials already, written into Optuna's tables in a few statements."""

import json
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from random import Random
from typing import Any

import sqlalchemy as sa
from optuna.distributions import CategoricalDistribution, IntDistribution, distribution_to_json
from optuna.samplers import NSGAIISampler
from optuna.storages._rdb import models
from optuna.trial import FrozenTrial, TrialState, create_trial

from tuner.search_spaces import Scalar, parse_space
from tuner.search_spaces.space import Distribution

SPACE = parse_space(
    {
        "lr": {"type": "float", "low": 1e-5, "high": 1e-1, "log": True},
        "weight_decay": {"type": "float", "low": 1e-6, "high": 1e-2, "log": True},
        "dropout": {"type": "float", "low": 0.0, "high": 0.5},
        "width": {"type": "int", "low": 16, "high": 1024, "log": True},
        "depth": {"type": "int", "low": 1, "high": 8},
        "optimizer": {"type": "categorical", "choices": ["sgd", "adamw", "lion"]},
        "momentum": {"type": "float", "low": 0.0, "high": 0.99, "when": {"optimizer": "sgd"}},
        "beta": {"type": "float", "low": 0.8, "high": 0.999, "when": {"optimizer": "adamw"}},
    }
)
"""Eight parameters: six that every trial has, and two that depend on one of them."""

N_REPORTS = 5
PRUNED_SHARE = 0.4
GENERATION = 50
"""Trials in a generation of Optuna's NSGA-II."""

GENERATION_ATTR = NSGAIISampler._get_generation_key()

_BEGAN_AT = datetime(2026, 1, 1)
_TRIALS_AT_A_TIME = 5000

Params = Mapping[str, Any]
Row = dict[str, object]


def loss_of(params: Params) -> float:
    """Smooth in the numbers, with a basin of its own for each optimizer; the best is 0."""
    basin, penalty = {"sgd": (-1.5, 0.02), "adamw": (-3.0, 0.0), "lion": (-3.5, 0.05)}[
        params["optimizer"]
    ]
    distance = (math.log10(params["lr"]) - basin) ** 2 + (math.log2(params["width"]) - 8) ** 2 / 9
    distance += (math.log10(params["weight_decay"]) + 4) ** 2 / 9 + (params["depth"] - 4) ** 2 / 16
    branch = abs(params.get("momentum", 0.9) - 0.9) + abs(params.get("beta", 0.95) - 0.95)
    return float(distance + branch + (params["dropout"] - 0.2) ** 2 + penalty)


def random_trials(n_trials: int, *, seed: int) -> Iterator[FrozenTrial]:
    """Finished trials of `SPACE`: uniform draws, completed or pruned, with a curve each."""
    random = Random(seed)
    n_completed = 0
    for _ in range(n_trials):
        params, is_pruned = _drawn(random), random.random() < PRUNED_SHARE
        n_reports = random.randrange(1, N_REPORTS) if is_pruned else N_REPORTS
        generation = None if is_pruned else n_completed // GENERATION
        n_completed += not is_pruned
        yield _finished(params, n_reports=n_reports, generation=generation)


def _drawn(random: Random) -> dict[str, Scalar]:
    values: dict[str, Scalar] = {}
    for parameter in SPACE.parameters:
        if parameter.applies(values):
            values[parameter.name] = _draw(parameter.distribution, random)
    return values


def _draw(distribution: Distribution, random: Random) -> Scalar:
    if isinstance(distribution, CategoricalDistribution):
        return random.choice(distribution.choices)
    low, high = distribution.low, distribution.high
    if distribution.log:
        value = math.exp(random.uniform(math.log(low), math.log(high)))
    else:
        value = random.uniform(low, high)
    return round(value) if isinstance(distribution, IntDistribution) else value


def _finished(params: Params, *, n_reports: int, generation: int | None) -> FrozenTrial:
    curve = {step: loss_of(params) + 1 / step for step in range(1, n_reports + 1)}
    distributions = {each.name: each.distribution for each in SPACE.parameters}
    return create_trial(
        state=TrialState.PRUNED if generation is None else TrialState.COMPLETE,
        value=curve[n_reports],
        params=dict(params),
        distributions={name: distributions[name] for name in params},
        intermediate_values=curve,
        system_attrs={} if generation is None else {GENERATION_ATTR: generation},
    )


def fill(engine: sa.Engine, study_id: int, trials: Iterable[FrozenTrial]) -> None:
    """Adds finished trials to an empty study of an otherwise empty database."""
    waiting = list(trials)
    with engine.begin() as connection:
        for start in range(0, len(waiting), _TRIALS_AT_A_TIME):
            chunk = waiting[start : start + _TRIALS_AT_A_TIME]
            _insert(connection, study_id, dict(enumerate(chunk, start=start)))


def _insert(connection: sa.Connection, study_id: int, trials: Mapping[int, FrozenTrial]) -> None:
    tables: dict[type[models.BaseModel], Sequence[Row]] = {
        models.TrialModel: [_trial_row(study_id, n, each.state) for n, each in trials.items()],
        models.TrialParamModel: [row for n, each in trials.items() for row in _params(n, each)],
        models.TrialValueModel: [_value_row(n, each) for n, each in trials.items()],
        models.TrialIntermediateValueModel: [
            row for n, each in trials.items() for row in _curve(n, each)
        ],
        models.TrialSystemAttributeModel: [
            row for n, each in trials.items() for row in _attrs(n, each)
        ],
    }
    for model, rows in tables.items():
        connection.execute(sa.insert(model.__table__), rows)


def _trial_row(study_id: int, number: int, state: TrialState) -> Row:
    at = _BEGAN_AT + timedelta(seconds=number)
    times = {"datetime_start": at, "datetime_complete": at + timedelta(seconds=60)}
    return {"trial_id": number + 1, "number": number, "study_id": study_id, "state": state, **times}


def _params(number: int, trial: FrozenTrial) -> Iterator[Row]:
    for name, distribution in trial.distributions.items():
        yield {
            "trial_id": number + 1,
            "param_name": name,
            "param_value": distribution.to_internal_repr(trial.params[name]),
            "distribution_json": distribution_to_json(distribution),
        }


def _value_row(number: int, trial: FrozenTrial) -> Row:
    kind = models.TrialValueModel.TrialValueType.FINITE
    return {"trial_id": number + 1, "objective": 0, "value": trial.value, "value_type": kind}


def _curve(number: int, trial: FrozenTrial) -> Iterator[Row]:
    kind = models.TrialIntermediateValueModel.TrialIntermediateValueType.FINITE
    for step, value in trial.intermediate_values.items():
        yield {
            "trial_id": number + 1,
            "step": step,
            "intermediate_value": value,
            "intermediate_value_type": kind,
        }


def _attrs(number: int, trial: FrozenTrial) -> Iterator[Row]:
    for key, value in trial.system_attrs.items():
        yield {"trial_id": number + 1, "key": key, "value_json": json.dumps(value)}


def note_generations(engine: sa.Engine, study_id: int, n_completed: int) -> None:
    """What Optuna's NSGA-II notes on a study at the start of each generation: its parents' ids."""
    prefix = NSGAIISampler._get_parent_cache_key_prefix()
    rows = [
        {"study_id": study_id, "key": f"{prefix}{generation}", "value_json": json.dumps(ids)}
        for generation in range(1, n_completed // GENERATION + 1)
        if (ids := [(generation - 1) * GENERATION + each for each in range(1, GENERATION + 1)])
    ]
    if rows:
        with engine.begin() as connection:
            connection.execute(sa.insert(models.StudySystemAttributeModel.__table__), rows)
