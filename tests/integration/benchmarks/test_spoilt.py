"""Tasks that are made harder to search: what each way changes, and what it leaves as it was."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise
from pathlib import Path

import numpy as np
import optuna
import pytest
from optuna.samplers import RandomSampler

from benchmarks.search_quality.spoilt.curves import meaningless_until
from benchmarks.search_quality.spoilt.ways import WAYS
from benchmarks.search_quality.tasks import Task
from tests.integration.benchmarks.recorded_task import NAMES, record_task
from tuner.search_spaces import ParamValue

N_STEPS = 52


@pytest.fixture
def task(tmp_path: Path) -> Task:
    return record_task(tmp_path, N_STEPS)


def configurations(task: Task, n: int = 20) -> list[Mapping[str, ParamValue]]:
    study = optuna.create_study(sampler=RandomSampler(seed=0))
    return [task.space.suggest(study.ask()) for _ in range(n)]


@pytest.mark.parametrize("way", WAYS)
def test_a_harder_task_is_the_same_each_time_and_ends_as_well(task: Task, way: str) -> None:
    harder = WAYS[way](task)
    assert harder.best == task.best
    for params in configurations(harder):
        values = harder.train(params).values
        assert values == WAYS[way](task).train(params).values
        assert harder.regret(values[-1]) <= 1.0


def test_the_order_is_turned_round_until_an_epoch_and_right_from_it_on(task: Task) -> None:
    turned = WAYS["turned5"](task)
    for one, other in pairwise(configurations(task)):
        a, b = task.train(one).values, task.train(other).values
        c, d = turned.train(one).values, turned.train(other).values
        assert [x < y for x, y in zip(c[:5], d[:5], strict=True)] == [
            x > y for x, y in zip(a[:5], b[:5], strict=True)
        ]
        assert (list(c[5:]), list(d[5:])) == (list(a[5:]), list(b[5:]))
        assert max(c[:5]) < turned.median


def test_early_values_say_nothing_and_later_ones_are_as_recorded(task: Task) -> None:
    harder, several = meaningless_until(5)(task), configurations(task, 400)
    trained = [(task.train(each).values, harder.train(each).values) for each in several]
    for recorded, values in trained:
        assert len({*values[:5]}) == 1
        assert values[0] < harder.median
        assert list(values[5:]) == list(recorded[5:])
    early = [values[0] for _, values in trained]
    correlation = np.corrcoef([recorded[4] for recorded, _ in trained], early)[0, 1]
    # Of 400 by chance: below 0.13 in 99 of 100 cases.
    assert abs(correlation) < 0.13


def test_what_is_searched_is_another_space(task: Task) -> None:
    kinds = {way: WAYS[way](task).space.to_mapping() for way in WAYS}
    assert sum(each["type"] == "categorical" for each in kinds["categories"].values()) == 5
    assert {each["type"] for each in kinds["whole"].values()} == {"int"}
    assert len(kinds["without_effect"]) == len(NAMES) + 15


def test_a_parameter_that_a_choice_leaves_out_has_its_least_value(task: Task) -> None:
    harder, low = WAYS["conditional"](task), task.space.to_mapping()["momentum"]["low"]
    several = configurations(harder, 40)
    assert len({"momentum" in params for params in several}) == 2
    for params in several:
        assert ("momentum" in params) == (params["optimizer"] == "momentum")
        assert ("max_dropout" in params) == (params["regularization"] in ("dropout", "both"))
        assert ("weight_decay" in params) == (params["regularization"] in ("decay", "both"))
        if params["regularization"] == "both":
            known = {name: params.get(name, low) for name in NAMES}
            assert harder.train(params).values == task.train(known).values


def test_far_too_wide_ranges_are_mostly_useless_and_else_as_recorded(task: Task) -> None:
    harder = WAYS["wide"](task)
    several = configurations(harder, 100)
    lowest = float(np.nanmin(task.table.values))
    useless = [each for each in several if set(harder.train(each).values) == {lowest}]
    assert 70 < len(useless) < 97
    for params in several:
        if params not in useless:
            assert harder.train(params).values == task.train(params).values


def test_with_noise_the_true_value_of_what_looked_best_counts(task: Task) -> None:
    noisy, best = WAYS["noise"](task), WAYS["noise"](task).new_best()
    params = configurations(task, 1)[0]
    recorded, true = noisy.train(params), task.train(params)
    for at_s, value in enumerate(recorded.values):
        best.take(float(at_s), value)
    place = int(np.argmax(recorded.values))
    assert best.steps[-1].value == true.values[place] != recorded.values[place]
    assert 0.01 < np.std(np.array(recorded.values) / np.array(true.values) - 1.0) < 0.02


# -- the curves of many configurations, as recorded and in another way --------------------------


def curves(task: Task, way: str, n: int = 60) -> tuple[np.ndarray, np.ndarray]:
    """Values as recorded and as reported: [configurations, epochs] each."""
    harder = WAYS[way](task)
    several = configurations(harder, n)
    recorded = [task.train(each).values for each in several]
    return np.array(recorded), np.array([harder.train(each).values for each in several])


#: Ways in which a program ends with other values than it has recorded, and what looks best is best.
OTHER_VALUES = ("delayed", "late_rates", "overfitting")


def true_values(task: Task, way: str, n: int = 60) -> np.ndarray:
    """[configurations, epochs]; what counts where a report looks best."""
    harder = WAYS[way](task)
    trained = [harder.train(each).values for each in configurations(harder, n)]
    return np.array([[each.true for each in values] for values in trained])  # type: ignore[attr-defined]


@pytest.mark.parametrize("way", OTHER_VALUES)
def test_other_values_of_the_program_itself_are_true(task: Task, way: str) -> None:
    recorded, reported = curves(task, way)
    assert (true_values(task, way) == reported).all()
    assert (recorded != reported).any()


@pytest.mark.parametrize(
    "way", ["noise", "early_noise", "spikes", "rounded", "exponential", "constant10"]
)
def test_reports_that_mislead_leave_the_true_values(task: Task, way: str) -> None:
    recorded, reported = curves(task, way)
    assert (true_values(task, way) == recorded).all()
    assert (recorded != reported).any()


@pytest.mark.parametrize(
    ("way", "until"),
    [
        ("turned2", 2),
        ("turned5", 5),
        ("turned25", 25),
        ("turned40", 40),
        ("turned48", 48),
        ("meaningless15", 15),
    ],
)
def test_values_are_others_until_the_epoch_that_the_way_is_named_after(
    task: Task, way: str, until: int
) -> None:
    recorded, reported = curves(task, way)
    is_other = (recorded != reported).any(axis=0)
    assert list(is_other) == [True] * until + [False] * (N_STEPS - until)


def test_half_of_the_configurations_are_turned_round(task: Task) -> None:
    recorded, reported = curves(task, "half_turned")
    is_turned = (recorded[:, :25] != reported[:, :25]).any(axis=1)
    assert 15 < is_turned.sum() < 45
    assert (recorded[:, 25:] == reported[:, 25:]).all()
    _, turned = curves(task, "turned25")
    assert (reported[is_turned] == turned[is_turned]).all()


def test_all_report_the_same_until_an_epoch(task: Task) -> None:
    recorded, reported = curves(task, "constant10")
    assert np.ptp(reported[:, :10]) == 0.0
    assert (recorded[:, 10:] == reported[:, 10:]).all()


def test_training_begins_later_by_lot(task: Task) -> None:
    recorded, reported = curves(task, "delayed")
    lowest = np.nanmin(task.table.values)
    delays = (reported == lowest).sum(axis=1)
    assert delays.min() < 10
    assert 25 < delays.max() <= 30
    for n, early, late in zip(delays, recorded, reported, strict=True):
        assert list(late[n:]) == list(early[: N_STEPS - n])


def test_large_learning_rates_begin_to_learn_late(task: Task) -> None:
    harder, lowest = WAYS["late_rates"](task), np.nanmin(task.table.values)
    for params in configurations(harder, 60):
        recorded, reported = task.train(params).values, harder.train(params).values
        n = 25 if float(params["learning_rate"]) > 0.01 else 0
        assert set(reported[:n]) <= {lowest}
        assert list(reported[n:]) == list(recorded[n:])


def test_values_fall_after_a_peak_that_a_lot_says(task: Task) -> None:
    recorded, reported = curves(task, "overfitting")
    lost = recorded - reported
    steps = np.diff(lost, axis=1)
    assert (np.isclose(steps, 0.0) | np.isclose(steps, 0.5)).all()
    assert (lost[:, :5] == 0.0).all()
    assert len(set(lost[:, -1])) > 20


def test_early_noise_is_gone_at_the_end(task: Task) -> None:
    recorded, reported = curves(task, "early_noise")
    shares = np.std(reported / recorded - 1.0, axis=0)
    assert shares[:10].mean() > 0.1
    assert shares[-1] == 0.0


def test_spikes_are_few_and_too_good(task: Task) -> None:
    recorded, reported = curves(task, "spikes")
    assert (reported >= recorded).all()
    assert 0.01 < (reported > recorded).mean() < 0.05


def test_rounded_values_are_equal_to_many_others(task: Task) -> None:
    recorded, reported = curves(task, "rounded")
    assert (reported % 5.0 == 0.0).all()
    assert ((recorded - reported >= 0.0) & (recorded - reported < 5.0)).all()


def test_the_order_of_exponential_values_is_as_recorded(task: Task) -> None:
    recorded, reported = curves(task, "exponential")
    assert (np.argsort(recorded[:, -1]) == np.argsort(reported[:, -1])).all()
    assert reported.min() / reported.max() > 1e3


def test_the_best_takes_five_times_as_long_and_the_worst_as_long_as_ever(task: Task) -> None:
    harder, ends = WAYS["slow"](task), task.table.values[:, -1]
    worst, best = task.table.params(int(np.argmin(ends))), task.table.params(int(np.argmax(ends)))
    assert list(harder.train(worst).seconds) == list(task.train(worst).seconds)
    factors = harder.train(best).seconds / task.train(best).seconds
    # A configuration has the mean of the five nearest ones: the best one is not quite the best.
    assert list(factors) == pytest.approx([factors[0]] * N_STEPS)
    assert 4.0 < factors[0] <= 5.0
    assert harder.train(best).values == task.train(best).values


def test_no_range_is_logarithmic(task: Task) -> None:
    assert any(each.get("log") for each in task.space.to_mapping().values())
    assert not any(each.get("log") for each in WAYS["linear"](task).space.to_mapping().values())
