"""Trials that have ended are small, and equal to what Optuna would hold."""

import copy
import json
import pickle
import tracemalloc
from datetime import UTC, datetime

import optuna
import pytest
from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution
from optuna.trial import FrozenTrial, TrialState

from tuner.store.optuna_tables.ended_trial import Attributes, EndedTrial, EndedTrials, pack
from tuner.store.optuna_tables.trial_places import TrialPlaces


def a_trial(number: int = 0, trial_id: int = 1, **attributes: object) -> FrozenTrial:
    made = optuna.trial.create_trial(
        state=TrialState.COMPLETE,
        value=0.5,
        params={"lr": 0.1, "n": 3},
        distributions={"lr": FloatDistribution(0, 1), "n": IntDistribution(1, 5)},
        intermediate_values={1: 0.7, 2: 0.5},
        system_attrs=attributes,
    )
    made.number, made._trial_id = number, trial_id
    return made


def test_small_trial_is_equal_to_the_one_that_was_given():
    trial = a_trial(completed_rung_0=0.25, note=["a"])
    small = EndedTrials().shrink(trial)
    assert small == trial
    assert trial == small
    assert small.system_attrs == {"completed_rung_0": 0.25, "note": ["a"]}
    assert small.system_attrs.get("missing") is None
    assert "note" in small.system_attrs
    assert {**small.system_attrs, "new": 1} == {**trial.system_attrs, "new": 1}
    assert small.user_attrs == {}


def test_distributions_are_held_once_and_told_apart_by_their_ranges():
    ended = EndedTrials()
    one, other = ended.shrink(a_trial()), ended.shrink(a_trial(1, 2))
    assert one.distributions is other.distributions
    wider = a_trial(2, 3)
    wider.distributions = {**wider.distributions, "n": IntDistribution(1, 50)}
    assert ended.shrink(wider).distributions["n"] == IntDistribution(1, 50)
    assert one.distributions["n"] == IntDistribution(1, 5)


SPACE = {
    "lr": FloatDistribution(0, 1),
    "n": IntDistribution(1, 5),
    "opt": CategoricalDistribution(["sgd", None, 2, True]),
}


@pytest.mark.parametrize("choice", ["sgd", None, 2, True])
@pytest.mark.parametrize(
    ("state", "values"), [(TrialState.COMPLETE, [0.5, -1e300]), (TrialState.FAIL, None)]
)
def test_every_kind_of_content_comes_back(choice, state, values):
    trial = optuna.trial.create_trial(
        state=state,
        values=values,
        params={"lr": 0.1, "n": 3, "opt": choice},
        distributions=SPACE,
        user_attrs={"text": "ä"},
        intermediate_values={5: float("inf")},
    )
    trial.number, trial._trial_id = 7, 2**40
    trial.datetime_start = datetime(2026, 1, 2, 3, 4, 5, 678901)
    trial.datetime_complete = None if state is TrialState.FAIL else datetime(9999, 12, 31)
    small = EndedTrials().shrink(trial)
    assert type(small) is EndedTrial
    assert small == trial
    assert repr(small) == repr(trial)
    assert [type(each) for each in small.params.values()] == [float, int, type(choice)]
    assert list(small.params) == list(small.distributions) == list(trial.params)
    assert small.last_step == 5
    assert small.duration == trial.duration
    for copied in (copy.copy(small), copy.deepcopy(small), pickle.loads(pickle.dumps(small))):
        assert type(copied) is FrozenTrial
        assert copied == trial
        assert vars(copied) == vars(trial)


@pytest.mark.parametrize(
    "changes",
    [
        {"params": {"lr": 1, "n": 3}},  # A whole number where floats are.
        {"params": {"lr": 0.1, "n": 3, "other": 1}},
        {"datetime_start": datetime(2026, 1, 2, tzinfo=UTC)},
        {"values": [1]},
    ],
)
def test_what_would_not_come_back_the_same_stays_as_it_is(changes):
    trial = a_trial()
    for name, value in changes.items():
        setattr(trial, name, value)
    small = EndedTrials().shrink(trial)
    assert type(small) is FrozenTrial
    assert small == trial
    assert {k: type(v) for k, v in small.params.items()} == {
        k: type(v) for k, v in trial.params.items()
    }


def test_trial_cannot_be_changed():
    small = EndedTrials().shrink(a_trial())
    for name in ("values", "params", "datetime_start", "system_attrs"):
        with pytest.raises(AttributeError):
            setattr(small, name, None)


def test_trials_that_have_ended_take_less_than_half_a_kilobyte():
    ended = EndedTrials()
    ended.shrink(a_trial(completed_rung_0=0.5))
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        kept = [ended.shrink(a_trial(n, n, completed_rung_0=n / 7)) for n in range(1000, 1500)]
        taken = tracemalloc.get_traced_memory()[0] - before
    finally:
        tracemalloc.stop()
    assert taken / len(kept) < 512


def test_copies_may_be_changed_and_do_not_change_the_trial():
    small = EndedTrials().shrink(a_trial(note=["a"]))
    copied = copy.deepcopy(small)
    copied.system_attrs["note"].append("b")
    copied.system_attrs["new"] = 1
    copied.params["lr"] = 0.9
    assert small.system_attrs == {"note": ["a"]}
    assert small.params["lr"] == 0.1


def test_pickled_and_printed_it_is_a_dict():
    attributes = Attributes(pack({"a": 1}))
    assert type(pickle.loads(pickle.dumps(attributes))) is dict
    assert repr(attributes) == "{'a': 1}"
    assert json.dumps(dict(attributes)) == '{"a": 1}'
    assert copy.copy(attributes) is attributes
    with pytest.raises(KeyError):
        attributes["b"]


def test_place_of_a_trial_is_found_by_its_id():
    places = TrialPlaces()
    places.put_all(7, [a_trial(number, 10 + 3 * number) for number in range(4)])
    places.put(8, a_trial(0, 11))
    places.put(7, a_trial(4, 40))
    places.put(7, a_trial(2, 16))
    assert places.find(16) == (7, 2)
    assert places.find(40) == (7, 4)
    assert places.find(11) == (8, 0)
    assert places.find(12) is None
    assert places.study_of(10) == 7
    places.forget(7)
    assert places.find(16) is None
    with pytest.raises(KeyError):
        places.study_of(16)
