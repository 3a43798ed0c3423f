"""Predicted memory is rarely too little, and not much too much, once something was seen."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.fakes import GIB
from tuner.devices.packing.memory_model import MemoryModel
from tuner.search_spaces import ParamValue

Params = Mapping[str, ParamValue]


def draw(source: random.Random) -> dict[str, ParamValue]:
    """A configuration of a usual space: most of its parameters make no difference."""
    params: dict[str, ParamValue] = {
        "lr": 10 ** source.uniform(-4, -1),
        "dropout": source.choice([0.0, 0.1, 0.2, 0.5]),
        "batch_size": source.choice([16, 32, 64, 128, 256, 512]),
        "width": int(2 ** source.uniform(6, 11)),
        "depth": source.randint(1, 12),
        "optimizer": source.choice(["sgd", "adamw", "adam"]),
        "amp": source.random() < 0.5,
        "epochs": 20,
    }
    if params["optimizer"] == "sgd":
        params["momentum"] = source.uniform(0, 0.99)
    return params


def constant(params) -> float:
    return 4 * GIB


def by_batch_size(params) -> float:
    return 0.6 * GIB + 0.04 * GIB * params["batch_size"]


def by_size_of_the_model(params) -> float:
    return 0.6 * GIB + 128 * params["width"] ** 2 * params["depth"]


def by_optimizer(params) -> float:
    return by_batch_size(params) * (1 if params["optimizer"] == "sgd" else 2)


def of_training(params) -> float:
    """Weights, gradients and the optimizer's state; activations; a CUDA context."""
    n_weights = params["width"] ** 2 * params["depth"]
    n_activations = 20 * params["batch_size"] * params["width"] * params["depth"]
    copies = 3 if params["optimizer"] == "sgd" else 4
    return 0.6 * GIB + 8 * n_weights * copies + n_activations * (8 if params["amp"] else 16)


FAMILIES = [constant, by_batch_size, by_size_of_the_model, by_optimizer, of_training]


@dataclass(frozen=True, kw_only=True)
class Quality:
    """Of predictions of attempts that were not seen yet."""

    share_too_low: float
    mean_ratio: float


@cache
def ratios(family: Callable[[Params], float], noise: float) -> list[list[float]]:
    """Of six studies of 120 attempts: prediction to truth, but for the first attempt."""
    studies = []
    for seed in range(6):
        source, model = random.Random(seed), MemoryModel()
        studies.append([])
        for _ in range(120):
            params = draw(source)
            peak_bytes = int(family(params) * math.exp(source.gauss(0, noise)))
            studies[-1].append((model.predict(params) or peak_bytes) / peak_bytes)
            model.observe(params, peak_bytes)
    return studies


def quality(family: Callable[[Params], float], *, first: int, last: int, noise=0.05) -> Quality:
    """Of the attempts between two numbers."""
    some = [ratio for study in ratios(family, noise) for ratio in study[first:last]]
    n_too_low = sum(ratio < 1 for ratio in some)
    return Quality(share_too_low=n_too_low / len(some), mean_ratio=sum(some) / len(some))


@pytest.mark.parametrize("family", FAMILIES)
def test_few_observations_are_taken_with_caution(family):
    assert quality(family, first=2, last=12).share_too_low <= 0.12


@pytest.mark.parametrize("family", FAMILIES)
def test_some_dozens_of_observations_predict(family):
    found = quality(family, first=25, last=50)
    assert found.share_too_low <= 0.03
    assert found.mean_ratio <= 2.8


@pytest.mark.slow
@pytest.mark.parametrize("family", FAMILIES)
def test_many_observations_predict_closely(family):
    found = quality(family, first=50, last=120)
    assert found.share_too_low <= 0.02
    assert found.mean_ratio <= 2.0


@pytest.mark.slow
@pytest.mark.parametrize("family", [constant, by_batch_size, by_optimizer])
def test_simple_families_without_noise_are_all_but_exact(family):
    found = quality(family, first=50, last=100, noise=0.0)
    assert found.share_too_low == 0
    assert found.mean_ratio <= 1.15


def a_model(family=by_batch_size, *, n_seen=60, seed=0) -> MemoryModel:
    source, model = random.Random(seed), MemoryModel()
    for _ in range(n_seen):
        params = draw(source)
        model.observe(params, int(family(params)))
    return model


def test_nothing_is_known_at_first():
    model = MemoryModel()
    assert model.predict({"batch_size": 32}) is None
    model.observe({"batch_size": 32}, 0)
    model.observe_out_of_memory({"batch_size": 32}, 0)
    assert model.predict({"batch_size": 32}) is None


def test_the_same_again_takes_what_it_took():
    model = MemoryModel()
    model.observe({"batch_size": 32}, 4 * GIB)
    predicted = model.predict({"batch_size": 32})
    assert predicted is not None
    assert 4 * GIB < predicted < 4.2 * GIB


def test_another_may_take_more_the_more_so_the_less_was_seen():
    model = MemoryModel()
    model.observe({"batch_size": 32}, 4 * GIB)
    assert model.predict({"batch_size": 64}) == 12 * GIB
    for batch_size in (33, 34, 35):
        model.observe({"batch_size": batch_size}, 4 * GIB)
    assert model.predict({"batch_size": 64}) == 8 * GIB


def test_outside_of_the_range_seen_is_taken_with_more_caution():
    model = a_model(by_size_of_the_model)
    inside = {**draw(random.Random(1)), "width": 2000, "depth": 12}
    outside = {**inside, "width": 8000}
    truth_bytes = by_size_of_the_model(outside)
    assert model.predict(outside) > truth_bytes
    assert model.predict(outside) / truth_bytes > model.predict(inside) / by_size_of_the_model(
        inside
    )


def test_smaller_than_all_seen_is_not_trusted_to_take_less():
    model = a_model()
    smallest = {**draw(random.Random(1)), "batch_size": 16}
    assert model.predict({**smallest, "batch_size": 1}) >= model.predict(smallest)


def test_a_choice_never_seen_may_take_as_much_as_any():
    model = a_model()
    params = {**draw(random.Random(1)), "batch_size": 16}
    assert model.predict(params) < 4 * GIB
    for new in ({"optimizer": "lion"}, {"optimizer": None}, {"encoder": "large"}):
        assert model.predict({**params, **new}) > by_batch_size({"batch_size": 512})


def test_alike_to_one_that_took_much_takes_as_much():
    model = a_model()
    odd = {**draw(random.Random(1)), "batch_size": 16}
    model.observe(odd, 30 * GIB)
    assert model.predict({**odd, "lr": odd["lr"] * 1.01}) > 30 * GIB


def test_a_running_peak_raises_its_own_estimate_and_no_other():
    model = a_model()
    params, other = draw(random.Random(1)), draw(random.Random(2))
    before = model.predict(other)
    model.observe(params, 90 * GIB, is_final=False)
    assert model.predict(params) > 90 * GIB
    assert model.predict(other) == before


def test_a_running_peak_is_all_there_is_at_first():
    model = MemoryModel()
    model.observe({"batch_size": 32}, GIB, is_final=False)
    assert model.predict({"batch_size": 32}) == 3 * GIB
    model.observe({"batch_size": 32}, 2 * GIB)
    assert model.predict({"batch_size": 32}) < 2.1 * GIB


@pytest.mark.parametrize("n_seen", [0, 3, 60])
def test_out_of_memory_raises_the_estimate_of_the_same(n_seen):
    model = a_model(n_seen=n_seen)
    params = draw(random.Random(1))
    model.observe_out_of_memory(params, 40 * GIB)
    assert model.predict(params) >= 50 * GIB


def test_out_of_memory_of_a_few_teaches_their_kind():
    model, source = a_model(constant, n_seen=40), random.Random(1)
    for _ in range(20):
        model.observe_out_of_memory({**draw(source), "width": 4096}, 8 * GIB)
        model.observe({**draw(source), "width": 1024}, 4 * GIB)
    assert model.predict({**draw(source), "width": 4096}) > 8 * GIB
    assert model.predict({**draw(source), "width": 512}) < 7 * GIB


def test_only_the_newest_are_remembered():
    model = MemoryModel()
    for number in range(520):
        model.observe({"seed": number}, 40 * GIB if number < 5 else 4 * GIB)
    assert model.predict({"seed": 2}) < 6 * GIB


def test_without_parameters_the_largest_peak_counts():
    model = MemoryModel()
    for peak_gib in (4, 5, 3):
        model.observe({}, peak_gib * GIB)
    assert 5 * GIB < model.predict({}) < 5.2 * GIB


numbers = st.one_of(st.integers(), st.floats(), st.booleans())
values = st.recursive(
    st.one_of(st.none(), numbers, st.sampled_from(["a", "b"])),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.just("k"), inner, max_size=1),
    max_leaves=3,
)
some_params = st.dictionaries(st.sampled_from(["x", "y", "z"]), values, max_size=3)
seen = st.lists(st.tuples(some_params, st.integers(1, 2**44), st.integers(0, 2)), max_size=25)


@pytest.mark.slow
@given(seen=seen, params=some_params)
def test_predict_always_answers_and_never_less_than_was_seen_of_the_same(seen, params):
    model = MemoryModel()
    assert model.predict(params) is None
    least_bytes: dict[str, int] = {}
    for each, peak_bytes, kind in seen:
        if kind == 0:
            model.observe_out_of_memory(each, peak_bytes)
        else:
            model.observe(each, peak_bytes, is_final=kind == 1)
        least_bytes[repr(each)] = max(peak_bytes, least_bytes.get(repr(each), 0))
        predicted = model.predict(each)
        assert predicted is not None
        assert predicted >= least_bytes[repr(each)]
        assert (model.predict(params) or 0) > 0
