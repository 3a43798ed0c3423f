"""`curve_gp` on spaces in which some parameters exist only together with others."""

from __future__ import annotations

import pickle
import random
from collections.abc import Mapping

import numpy as np
import optuna
import pytest
from hypothesis import given
from hypothesis import strategies as st
from optuna.samplers import RandomSampler
from optuna.trial import TrialState, create_trial

from tuner.config import SamplerConfig
from tuner.search.samplers.bounded import BoundedSampler
from tuner.search.samplers.curve_gp import sampler
from tuner.search.samplers.curve_gp.activity import Activity
from tuner.search.samplers.curve_gp.encoding import Encoding
from tuner.search.samplers.curve_gp.sampler import CurveGPSampler
from tuner.search.samplers.registry import build_sampler
from tuner.search_spaces import ParamValue, SearchSpace, parse_space

TREE = {
    "device": "gpu",
    "only": {"type": "categorical", "choices": ["yes"]},
    "layers": {"type": "int", "low": 1, "high": 4},
    "kind": {"type": "categorical", "choices": ["plain", "wide", "deep"]},
    "x": {"type": "float", "low": 0.0, "high": 1.0, "when": {"kind": "wide"}},
    "way": {"type": "categorical", "choices": ["a", "b"], "when": {"kind": ["wide", "deep"]}},
    "y": {"type": "float", "low": 1.0, "high": 9.0, "when": {"way": "b", "layers": [2, 3]}},
    "z": {"type": "float", "low": 0.0, "high": 1.0, "when": {"device": "gpu", "only": "yes"}},
}


def a_space(mapping: Mapping[str, object]) -> SearchSpace:
    space = parse_space(mapping)
    assert isinstance(space, SearchSpace)
    return space


SPACE = a_space(TREE)
BRANCHES = a_space(
    {
        "kind": {"type": "categorical", "choices": ["plain", "wide"]},
        "x": {"type": "float", "low": 0.0, "high": 1.0, "when": {"kind": "plain"}},
        "y": {"type": "float", "low": 0.0, "high": 1.0, "when": {"kind": "wide"}},
    }
)

CHOICE_IN_BRANCH = a_space(
    {
        "kind": {"type": "categorical", "choices": ["plain", "wide"]},
        "way": {"type": "categorical", "choices": ["a", "b"], "when": {"kind": "wide"}},
        "z": {"type": "float", "low": 0.0, "high": 1.0},
    }
)


@pytest.fixture(autouse=True)
def _quiet() -> None:
    optuna.logging.set_verbosity(optuna.logging.ERROR)


def drawn(seed: int, space: SearchSpace = SPACE) -> dict[str, ParamValue]:
    """Parameters of a trial, without constants."""
    trial = optuna.create_study(sampler=RandomSampler(seed=seed)).ask()
    space.suggest(trial)
    return dict(trial.params)


@given(seed=st.integers(0, 10_000))
def test_a_configuration_has_what_its_conditions_say(seed: int) -> None:
    activity = Activity(SPACE)
    encoding = Encoding(activity.space, activity)
    rows = np.random.default_rng(seed).random((7, len(encoding.columns)))
    for row in encoding.without_inactive(rows):
        params = encoding.decode(row)
        known = {**SPACE.constants, "only": "yes", **params}
        for parameter in SPACE.parameters:
            if parameter.name != "only":
                assert parameter.applies(known) == (parameter.name in params)
        lacks = [place for place, name in enumerate(encoding.space) if name not in params]
        middle = {0.5, 1 / 2, 1 / 3}
        stands = [row[k] for k, of in enumerate(encoding.columns) if of in lacks]
        assert all(any(value == pytest.approx(each) for each in middle) for value in stands)


@given(seed=st.integers(0, 10_000))
def test_a_trial_is_read_back_as_it_was(seed: int) -> None:
    activity = Activity(SPACE)
    encoding = Encoding(activity.space, activity)
    params = drawn(seed)
    read = encoding.decode(encoding.encode(params))
    assert read.keys() == params.keys() - {"only"}
    for name, value in read.items():
        assert value == (pytest.approx(value) if isinstance(value, float) else params[name])


def test_what_is_left_out_is_as_far_from_each_end_of_its_range() -> None:
    activity = Activity(BRANCHES)
    encoding = Encoding(activity.space, activity)
    plain, low, high = (
        encoding.encode(each)
        for each in (
            {"kind": "plain", "x": 0.5},
            {"kind": "wide", "y": 0.0},
            {"kind": "wide", "y": 1.0},
        )
    )
    assert np.linalg.norm(plain - low) == pytest.approx(np.linalg.norm(plain - high))


def test_a_parameter_that_a_changed_choice_activates_is_drawn_over_its_range() -> None:
    """It was always tried near the middle, where its place is in configurations that lack it."""
    sampler = CurveGPSampler(seed=0)
    sampler.declare(BRANCHES)
    activity = Activity(BRANCHES)
    encoding = Encoding(activity.space, activity)
    (x,) = (each.distribution for each in BRANCHES.parameters if each.name == "x")
    kind = activity.space["kind"]
    leader = create_trial(
        value=1.0, params={"kind": "plain", "x": 0.3}, distributions={"kind": kind, "x": x}
    )
    near = [encoding.decode(row) for row in sampler._candidates([leader] * 5, encoding)[500:]]
    plain = [each["x"] for each in near if each["kind"] == "plain"]
    wide = [each["y"] for each in near if each["kind"] == "wide"]
    assert len(wide) > 50
    assert np.quantile(plain, (0.1, 0.9)) == pytest.approx([0.3, 0.3], abs=0.1)
    assert np.quantile(wide, (0.1, 0.9)) == pytest.approx([0.1, 0.9], abs=0.1)


def test_a_choice_that_does_not_apply_is_no_changed_choice() -> None:
    """Where the leader lacks a choice, it is redrawn and lacking again: numbers stay near."""
    activity = Activity(CHOICE_IN_BRANCH)
    encoding = Encoding(activity.space, activity)
    curve_gp = CurveGPSampler(seed=0)
    curve_gp.declare(CHOICE_IN_BRANCH)
    by_name = {each.name: each.distribution for each in CHOICE_IN_BRANCH.parameters}
    leader = create_trial(
        value=1.0,
        params={"kind": "plain", "z": 0.5},
        distributions={name: by_name[name] for name in ("kind", "z")},
    )
    near = [encoding.decode(row) for row in curve_gp._candidates([leader] * 40, encoding)[500:]]
    same = [abs(each["z"] - 0.5) for each in near if each["kind"] == "plain"]
    other = [abs(each["z"] - 0.5) for each in near if each["kind"] == "wide"]
    assert len(same) > 500
    assert len(other) > 200
    assert np.mean(np.array(same) > 0.35) < 0.01
    assert np.mean(np.array(other) > 0.35) > 0.08


def a_study(seed: int, *, share: float = 0.0) -> optuna.Study:
    """On which `wide` is better, and best at y = 0.8; `plain` is best at x = 0.2."""
    sampler = build_sampler(
        SamplerConfig.model_validate({"name": "curve_gp", "random_share": share}),
        BRANCHES,
        seed=seed,
    )
    study = optuna.create_study(direction="maximize", sampler=sampler)
    rng = random.Random(seed)
    for _ in range(30):
        params = drawn(rng.randrange(10**6), BRANCHES)
        study.add_trial(
            create_trial(
                value=worth(params),
                params=params,
                distributions={
                    each.name: each.distribution
                    for each in BRANCHES.parameters
                    if each.name in params
                },
                intermediate_values={1: worth(params)},
            )
        )
    return study


def worth(params: Mapping[str, ParamValue]) -> float:
    if params["kind"] == "wide":
        return 1.0 - (float(str(params["y"])) - 0.8) ** 2
    return 0.5 - (float(str(params["x"])) - 0.2) ** 2


def test_the_better_branch_is_searched_with_its_own_parameters(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sampler, "_OTHER_CHOICE_SHARE", 0.0)
    found = []
    for seed in range(3):
        study = a_study(seed)
        for _ in range(4):
            trial = study.ask()
            BRANCHES.suggest(trial)
            found.append(trial.params)
    assert all(each.keys() == {"kind", "y"} for each in found)
    assert np.median([each["y"] for each in found]) == pytest.approx(0.8, abs=0.1)


def test_a_branch_without_trials_is_suggested_by_chance() -> None:
    study = a_study(0, share=1.0)
    kinds = []
    for _ in range(12):
        trial = study.ask()
        BRANCHES.suggest(trial)
        kinds.append(trial.params["kind"])
    assert set(kinds) == {"plain", "wide"}


def test_a_trial_that_lacks_what_it_should_have_is_left_aside(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sampler, "_OTHER_CHOICE_SHARE", 0.0)
    study = a_study(0)
    kind = BRANCHES.parameters[0].distribution
    broken = create_trial(
        state=TrialState.COMPLETE,
        value=99.0,
        params={"kind": "plain"},
        distributions={"kind": kind},
        intermediate_values={1: 99.0},
    )
    study.add_trial(broken)
    trial = study.ask()
    BRANCHES.suggest(trial)
    assert trial.params["kind"] == "wide"


def test_the_sampler_goes_to_another_process_with_its_conditions() -> None:
    sampler = build_sampler(SamplerConfig.model_validate({"name": "curve_gp"}), BRANCHES, seed=0)
    assert isinstance(sampler, BoundedSampler)
    copy = pickle.loads(pickle.dumps(sampler.inner))
    assert isinstance(copy, CurveGPSampler)
    study = optuna.create_study()
    space = copy.infer_relative_search_space(study, study.ask()._get_latest_trial())
    assert space.keys() == {"kind", "x", "y"}
