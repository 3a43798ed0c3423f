"""When it is said that the best values lie at an end of their range, and when it must not be."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Mapping

from tuner.queries.results.range_ends import RangeEnd, find_range_ends
from tuner.search_spaces import ParamValue, parse_space

Configuration = Mapping[str, ParamValue]
N_TRIALS, N_BEST = 60, 10
LR = {"type": "float", "low": 1e-4, "high": 1e-1, "log": True}
OTHER = {"type": "float", "low": -2.0, "high": 5.0}


def found(
    space: Mapping[str, object],
    draw: Callable[[random.Random], Configuration],
    loss: Callable[[Configuration], float],
    *,
    n: int = N_TRIALS,
    seed: int = 0,
) -> list[tuple[str, str]]:
    return [
        (each.parameter, "high" if each.is_high else "low")
        for each in ends(space, draw, loss, n=n, seed=seed)
    ]


def ends(
    space: Mapping[str, object],
    draw: Callable[[random.Random], Configuration],
    loss: Callable[[Configuration], float],
    *,
    n: int = N_TRIALS,
    seed: int = 0,
) -> list[RangeEnd]:
    source = random.Random(seed)
    trials = sorted((draw(source) for _ in range(n)), key=loss)
    return find_range_ends(parse_space(space), trials, n_best=N_BEST)


def near_high(source: random.Random) -> float:
    """Of `LR`; half of all at its upper end, as a sampler that has learned suggests."""
    share = source.uniform(0.96, 1.0) if source.random() < 0.5 else source.random()
    return float(10 ** (-4 + 3 * share))


def test_best_values_at_an_end_are_told_on_the_scale_of_the_parameter() -> None:
    def draw(source: random.Random) -> Configuration:
        return {"lr": near_high(source), "other": source.uniform(-2, 5)}

    def loss(trial: Configuration) -> float:
        return -math.log(number(trial["lr"])) + 0.01 * number(trial["other"]) ** 2

    (end,) = ends({"lr": LR, "other": OTHER}, draw, loss)
    assert (end.parameter, end.is_high, end.bound, end.n_at_end) == ("lr", True, 0.1, 10)
    assert end.text == (
        f"lr is at the high end of its range in 10 of the 10 best trials ({end.value:.4g} in the "
        "best trial; high: 0.1). Better values may lie outside: consider a higher `high`, in a "
        "new study (`tuner copy` keeps the trials)."
    )


def test_low_end_is_told() -> None:
    def draw(source: random.Random) -> Configuration:
        return {"lr": 1e-5 / near_high(source), "other": source.uniform(-2, 5)}

    def loss(trial: Configuration) -> float:
        return math.log(number(trial["lr"])) + 0.01 * number(trial["other"]) ** 2

    (end,) = ends({"lr": LR, "other": OTHER}, draw, loss)
    assert (end.parameter, end.is_high) == ("lr", False)
    assert "consider a lower `low`" in end.text


def test_random_values_are_not_told() -> None:
    def draw(source: random.Random) -> Configuration:
        return {f"x{i}": source.uniform(-2, 5) for i in range(5)}

    space = {f"x{i}": OTHER for i in range(5)}
    for seed in range(50):
        assert found(space, draw, lambda trial: abs(number(trial["x0"])), seed=seed) == []


def test_best_values_inside_are_not_told() -> None:
    def draw(source: random.Random) -> Configuration:
        return {"other": source.gauss(1.5, 0.3)}

    assert found({"other": OTHER}, draw, lambda trial: abs(number(trial["other"]) - 1.5)) == []


def test_end_beyond_which_trials_were_worse_is_not_told() -> None:
    # The best lie at 0.97 of the range, and what lies nearer to the end was tried.
    def draw(source: random.Random) -> Configuration:
        return {"other": source.uniform(4.6, 5.0) if source.random() < 0.6 else source.random()}

    assert found({"other": OTHER}, draw, lambda trial: abs(number(trial["other"]) - 4.8)) == []


def test_parameter_without_effect_that_the_best_trials_share_is_not_told() -> None:
    # What a sampler does that repeats its best trials: it came to an end by chance.
    def draw(source: random.Random) -> Configuration:
        is_learned = source.random() < 0.5
        if is_learned:
            return {"other": source.gauss(1.5, 0.2), "idle": source.uniform(4.8, 5.0)}
        return {"other": source.uniform(-2, 5), "idle": source.uniform(-2, 5)}

    space = {"other": OTHER, "idle": OTHER}
    for seed in range(10):
        assert found(space, draw, lambda t: abs(number(t["other"]) - 1.5), seed=seed) == []


def test_one_trial_of_the_best_is_not_enough() -> None:
    def draw(source: random.Random) -> Configuration:
        return {"other": source.uniform(-2, 5)}

    def loss(trial: Configuration) -> float:
        return -number(trial["other"])

    # At random, three of sixty are at this end: the best one is, and most of the best are not.
    assert found({"other": OTHER}, draw, loss, seed=3) == []


def layers(source: random.Random, low: int = 1, high: int = 3) -> Configuration:
    return {"n_layers": source.randint(low, high), "other": source.uniform(-2, 5)}


def loss_of_layers(trial: Configuration) -> float:
    return -number(trial["n_layers"]) + 0.01 * number(trial["other"]) ** 2


def test_few_layers_are_told_where_all_the_best_have_the_most() -> None:
    # Three layers of 1 to 3: there may be a fourth.
    space = {"n_layers": {"type": "int", "low": 1, "high": 3}, "other": OTHER}
    assert found(space, layers, loss_of_layers) == [("n_layers", "high")]


def test_few_whole_numbers_are_at_an_end_by_chance() -> None:
    space = {"n_layers": {"type": "int", "low": 1, "high": 3}, "other": OTHER}
    for seed in range(50):
        assert found(space, layers, lambda t: abs(number(t["other"])), seed=seed) == []


def test_ends_beyond_which_values_mean_nothing_are_not_told() -> None:
    space = {
        "n_layers": {"type": "int", "low": 1, "high": 3},
        "dropout": {"type": "float", "low": 0.0, "high": 0.5},
        "momentum": {"type": "float", "low": 0.5, "high": 1.0},
    }

    def draw(source: random.Random) -> Configuration:
        share = 0.0 if source.random() < 0.5 else source.random() / 2
        return {"n_layers": source.randint(1, 3), "dropout": share, "momentum": 1 - share}

    def loss(trial: Configuration) -> float:
        return number(trial["n_layers"]) + number(trial["dropout"]) - number(trial["momentum"])

    assert found(space, draw, loss) == []


def test_values_that_do_not_vary_are_not_told() -> None:
    # Such as those of a grid, or of a parameter that the sampler fixes.
    def draw(source: random.Random) -> Configuration:
        return {"lr": 0.1, "other": source.uniform(-2, 5)}

    space = {"lr": LR, "other": OTHER}
    assert found(space, draw, lambda trial: abs(number(trial["other"]))) == []


def test_choices_and_parameters_that_the_best_trial_lacks_are_not_told() -> None:
    space = {
        "kind": {"type": "categorical", "choices": ["a", "b"]},
        "lr": {**LR, "when": {"kind": "b"}},
    }

    def draw(source: random.Random) -> Configuration:
        return {"kind": "a"} if source.random() < 0.5 else {"kind": "b", "lr": 0.1}

    assert found(space, draw, lambda trial: "lr" in trial) == []


def test_enqueued_value_outside_of_the_range_counts_as_at_its_end() -> None:
    def draw(source: random.Random) -> Configuration:
        return {"lr": near_high(source) * 2}

    assert found({"lr": LR}, draw, lambda trial: -number(trial["lr"])) == [("lr", "high")]


def test_without_trials_there_is_nothing() -> None:
    assert find_range_ends(parse_space({"lr": LR}), [], n_best=5) == []


def number(value: ParamValue) -> float:
    assert isinstance(value, int | float)
    return float(value)
