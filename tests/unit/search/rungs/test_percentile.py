"""The quick median and percentile pruner decides as Optuna's does, whatever was reported."""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from pathlib import Path

import numpy as np
import optuna
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from optuna.pruners import HyperbandPruner, MedianPruner, PercentilePruner
from optuna.trial import TrialState, create_trial

from tests.databases import new_database
from tuner.search.pruners.percentile import RankedPruner, percentile_of, quicker
from tuner.store.connection.database import open_database
from tuner.store.optuna_tables.storage import BufferedStorage

VALUES = st.one_of(
    st.sampled_from([0.0, 0.5, 1.0, math.nan, math.inf, -math.inf]), st.floats(-10, 10)
)
CURVES = st.dictionaries(st.integers(0, 6), VALUES, max_size=5)
ENDED = st.tuples(CURVES, st.sampled_from([TrialState.COMPLETE, TrialState.PRUNED]))


@pytest.fixture(scope="module")
def storage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BufferedStorage]:
    folder: Path = tmp_path_factory.mktemp("ranks")
    with closing(open_database(new_database(folder))) as database:
        yield database.storage


def add(study: optuna.Study, curve: Mapping[int, float], state: TrialState) -> None:
    value = 0.0 if state is TrialState.COMPLETE else None
    study.add_trial(create_trial(state=state, value=value, intermediate_values=dict(curve)))


@pytest.mark.slow
@settings(
    deadline=None, max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    ended=st.lists(ENDED, max_size=8),
    reports=st.lists(st.tuples(st.integers(0, 6), VALUES), max_size=6),
    direction=st.sampled_from(["maximize", "minimize"]),
    percentile=st.sampled_from([0.0, 10.0, 25.0, 50.0, 62.5, 100.0]),
    n_startup=st.integers(0, 3),
    n_warmup=st.integers(0, 3),
    interval=st.integers(1, 3),
    n_min=st.integers(1, 3),
)
def test_each_decision_is_optunas(
    storage: BufferedStorage,
    ended: Sequence[tuple[Mapping[int, float], TrialState]],
    reports: Sequence[tuple[int, float]],
    direction: str,
    percentile: float,
    n_startup: int,
    n_warmup: int,
    interval: int,
    n_min: int,
) -> None:
    warnings.simplefilter("ignore")
    study = optuna.create_study(storage=storage, direction=direction)
    theirs = PercentilePruner(
        percentile, n_startup, n_warmup, interval_steps=interval, n_min_trials=n_min
    )
    ours = quicker(theirs)
    trial = study.ask()
    # Trials end between the reports, as they do.
    half = len(ended) // 2
    for curve, state in ended[:half]:
        add(study, curve, state)
    for number, (step, value) in enumerate(reports):
        trial.report(value, step)
        frozen = storage.get_trial(trial._trial_id)
        assert ours.prune(study, frozen) == theirs.prune(study, frozen), (number, step)
        if number == 1:
            for curve, state in ended[half:]:
                add(study, curve, state)


@given(
    values=st.lists(st.floats(allow_nan=False), max_size=9),
    percentile=st.one_of(st.floats(0, 100), st.sampled_from([0.0, 50.0, 100.0])),
)
def test_percentile_is_numpys_to_the_last_bit(values: list[float], percentile: float) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        expected = float(np.nanpercentile(np.array(values), percentile))
    found = percentile_of(sorted(values), percentile)
    assert found == expected or (math.isnan(found) and math.isnan(expected))


def test_other_pruners_are_left_as_they_are() -> None:
    class OwnMedian(MedianPruner):
        pass

    for pruner in (HyperbandPruner(), OwnMedian()):
        assert quicker(pruner) is pruner
    assert isinstance(quicker(MedianPruner()), RankedPruner)


def test_study_elsewhere_is_judged_by_optuna_itself() -> None:
    study = optuna.create_study()
    for value in range(6):
        add(study, {1: float(value)}, TrialState.COMPLETE)
    trial = study.ask()
    trial.report(9.0, 1)
    frozen = study.get_trials()[-1]
    assert quicker(MedianPruner()).prune(study, frozen)
