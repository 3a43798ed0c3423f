"""Every pruner of Optuna by name, and what is said about a wrong one."""

from __future__ import annotations

import pytest
from optuna import pruners

from tuner.config import PrunerConfig
from tuner.errors import ConfigError
from tuner.search.population.pbt import PbtPruner
from tuner.search.pruners.asha import AshaPruner
from tuner.search.pruners.freeze_thaw import FreezeThawPruner
from tuner.search.pruners.hyperband import AsyncHyperbandPruner
from tuner.search.pruners.registry import PRUNERS, build_pruner

MINIMAL = {
    "patient": {"patience": 2, "wrapped_pruner": {"name": "median", "n_warmup_steps": 1}},
    "percentile": {"percentile": 25},
    "threshold": {"upper": 10},
}


def build(name: str, n_objectives: int = 1, **arguments: object) -> pruners.BasePruner:
    config = PrunerConfig.model_validate({"name": name, **arguments})
    return build_pruner(config, n_objectives, file="study.yaml")


def is_pruner(name: str) -> bool:
    return name.endswith("Pruner") and not name.startswith("Base")


def test_every_pruner_of_optuna_has_a_name() -> None:
    known = {each.__name__ for each in PRUNERS.classes.values()}
    optunas = {name for name in pruners.__all__ if is_pruner(name)}
    ours = {"AshaPruner", "AsyncHyperbandPruner", "FreezeThawPruner", "PbtPruner"}
    assert known == optunas | ours


@pytest.mark.parametrize("name", PRUNERS.names)
def test_pruner_by_name_is_made(name: str) -> None:
    canonical = PRUNERS.aliases.get(name, name)
    assert type(build(name, **MINIMAL.get(name, {}))) is PRUNERS.classes[canonical]


@pytest.mark.parametrize(
    ("name", "cls"),
    [
        ("asha", AshaPruner),
        ("successive_halving", pruners.SuccessiveHalvingPruner),
        ("hyperband", AsyncHyperbandPruner),
        ("optuna_hyperband", pruners.HyperbandPruner),
        ("pbt", PbtPruner),
        ("freeze_thaw", FreezeThawPruner),
        ("HyperbandPruner", pruners.HyperbandPruner),
        ("none", pruners.NopPruner),
        ("nop", pruners.NopPruner),
        ("MedianPruner", pruners.MedianPruner),
    ],
)
def test_name_is_the_one_that_people_use(name: str, cls: type) -> None:
    assert type(build(name)) is cls


@pytest.mark.parametrize("wrapping", [{}, {"name": "patient", "patience": 1}])
def test_a_pruner_that_draws_lots_has_the_studys_seed(wrapping: dict[str, object]) -> None:
    named = {"name": "hyperband", "max_resource": 27}
    arguments = {**wrapping, "wrapped_pruner": named} if wrapping else named
    drawn = []
    for seed in (3, 4):
        made = build_pruner(PrunerConfig.model_validate(arguments), 1, seed=seed)
        made = made._wrapped_pruner if isinstance(made, pruners.PatientPruner) else made
        assert isinstance(made, AsyncHyperbandPruner)
        drawn.append([made.first_rung(number, None) for number in range(30)])
    assert drawn[0] != drawn[1]


@pytest.mark.parametrize("name", ["none", "asha", "hyperband"])
def test_some_are_allowed_for_several_objectives(name: str) -> None:
    assert type(build(name, 2)) is PRUNERS.classes[PRUNERS.aliases.get(name, name)]


def test_patient_wraps_nothing_where_nothing_is_named() -> None:
    assert isinstance(build("patient", patience=1), pruners.PatientPruner)


@pytest.mark.parametrize(
    ("name", "n_objectives", "arguments", "expected"),
    [
        pytest.param(
            "median",
            2,
            {},
            "pruner is 'median', which compares one value, and this study has 2 objectives. Use "
            "{name: asha} or {name: hyperband}, which compare by Pareto rank, or remove pruner.",
            id="two-objectives",
        ),
        pytest.param(
            "threshold",
            3,
            {"upper": 10},
            "pruner is 'threshold', which compares one value, and this study has 3 objectives. Use "
            "{name: asha} or {name: hyperband}, which compare by Pareto rank, or remove pruner.",
            id="three-objectives",
        ),
        pytest.param(
            "freeze_thaw",
            2,
            {},
            "pruner is 'freeze_thaw', which compares one value, and this study has 2 objectives. "
            "Use {name: asha} or {name: hyperband}, which compare by Pareto rank, or remove "
            "pruner.",
            id="curves-of-two-objectives",
        ),
        pytest.param(
            "ahsa",
            1,
            {},
            "pruner.name is 'ahsa', but must be one of asha, freeze_thaw, hyperband, median, none, "
            "nop, optuna_hyperband, patient, pbt, percentile, successive_halving, "
            "threshold, wilcoxon. Did you mean 'asha'?",
            id="unknown-name",
        ),
        pytest.param(
            "asha",
            1,
            {"reduction": 3},
            "pruner.reduction is not an argument of asha. Did you mean 'reduction_factor'? "
            "The arguments of asha are min_resource, reduction_factor, min_early_stopping_rate, "
            "bootstrap_count, mode, check_order.",
            id="unknown-argument",
        ),
        pytest.param(
            "none",
            1,
            {"patience": 3},
            "pruner.patience is not an argument of none. none has no arguments: remove it.",
            id="no-arguments",
        ),
        pytest.param(
            "asha",
            1,
            {"min_resource": 0},
            "pruner is refused by asha: The value of `min_resource` is 0, but must be "
            "either `min_resource >= 1` or 'auto'",
            id="refused",
        ),
        pytest.param(
            "successive_halving",
            1,
            {"reduction_factor": 1},
            "pruner is refused by Optuna's successive_halving: The value of `reduction_factor` is "
            "1, but must be `reduction_factor >= 2`",
            id="refused-by-optuna",
        ),
        pytest.param(
            "hyperband",
            1,
            {"min_resource": 9, "max_resource": 3},
            "pruner is refused by hyperband: max_resource is 3, but must be at least "
            "min_resource, which is 9.",
            id="too-short",
        ),
        pytest.param(
            "freeze_thaw",
            1,
            {"reduction_factor": 3},
            "pruner.reduction_factor is not an argument of freeze_thaw. The arguments of "
            "freeze_thaw are min_resource, growth, max_resource, seed.",
            id="no-rungs",
        ),
        pytest.param(
            "freeze_thaw",
            1,
            {"min_resource": 0},
            "pruner is refused by freeze_thaw: min_resource is 0, but must be 1 or more.",
            id="no-slice",
        ),
        pytest.param(
            "freeze_thaw",
            1,
            {"growth": 1},
            "pruner is refused by freeze_thaw: growth is 1, but must be 2 or more.",
            id="no-growth",
        ),
        pytest.param(
            "freeze_thaw",
            1,
            {"max_resource": "all"},
            "pruner is refused by freeze_thaw: max_resource is 'all', but must be a number or "
            "auto.",
            id="no-length",
        ),
        pytest.param(
            "freeze_thaw",
            1,
            {"min_resource": 9, "max_resource": 3},
            "pruner is refused by freeze_thaw: max_resource is 3, but must be at least "
            "min_resource, which is 9.",
            id="shorter-than-a-slice",
        ),
        pytest.param(
            "hyperband",
            1,
            {"max_resource": "all"},
            "pruner is refused by hyperband: max_resource is 'all', but must be a number or auto.",
            id="no-number",
        ),
        pytest.param(
            "pasha",
            1,
            {"min_resource": 2},
            "pruner.name is 'pasha', a pruner that was removed. Use asha, or auto for what suits "
            "the study; a study that ran with it continues with either.",
            id="removed",
        ),
        pytest.param(
            "hyperband",
            1,
            {"mode": "pause"},
            "pruner is refused by hyperband: mode is 'pause', but must be promote or stop.",
            id="mode",
        ),
        pytest.param(
            "hyperband",
            1,
            {"min_resource": 0},
            "pruner is refused by hyperband: The value of `min_resource` is 0, but must be "
            "either `min_resource >= 1` or 'auto'",
            id="no-step",
        ),
        pytest.param(
            "asha",
            1,
            {"min_resource": 1.5},
            "pruner.min_resource is 1.5, but must be text or a whole number.",
            id="fraction",
        ),
        pytest.param(
            "percentile",
            1,
            {},
            "pruner.percentile is missing, and percentile needs it: a number.",
            id="missing-argument",
        ),
        pytest.param(
            "pbt",
            2,
            {},
            "pruner is 'pbt', which compares one value, and this study has 2 objectives. Use "
            "{name: asha} or {name: hyperband}, which compare by Pareto rank, or remove pruner.",
            id="population-of-two-objectives",
        ),
        pytest.param(
            "pbt",
            1,
            {"population": 1},
            "pruner is refused by pbt: population is 1, but must be at least 2.",
            id="population-of-one",
        ),
        pytest.param(
            "pbt",
            1,
            {"interval": 0},
            "pruner is refused by pbt: interval is 0, but must be at least 1.",
            id="interval",
        ),
        pytest.param(
            "pbt",
            1,
            {"quantile": 0.6},
            "pruner is refused by pbt: quantile is 0.6, but must be above 0 and at most 0.5.",
            id="quantile",
        ),
        pytest.param(
            "pbt",
            1,
            {"population": 3},
            "pruner is refused by pbt: quantile is 0.25, which is less than one of a population "
            "of 3: no member would ever be replaced. Set at least 0.333, or a larger population.",
            id="quantile-of-nobody",
        ),
        pytest.param(
            "pbt",
            1,
            {"resample": 1.5},
            "pruner is refused by pbt: resample is 1.5, but must be from 0 to 1.",
            id="resample",
        ),
        pytest.param(
            "pbt",
            1,
            {"factor": 1.0},
            "pruner is refused by pbt: factor is 1.0, but must be a number above 1.",
            id="factor",
        ),
        pytest.param(
            "pbt",
            1,
            {"keep": "width"},
            "pruner is refused by pbt: keep is 'width', but must be a list of parameters, such as "
            "[width].",
            id="keep",
        ),
        pytest.param(
            "pbt",
            1,
            {"max_resource": 5},
            "pruner is refused by pbt: max_resource is 5, but must be above interval, which is 5: "
            "no member would ever be compared.",
            id="length",
        ),
        pytest.param(
            "pbt",
            1,
            {"mode": "stop"},
            "pruner.mode is not an argument of pbt. The arguments of pbt are population, "
            "interval, quantile, resample, factor, keep, max_resource, seed.",
            id="population-argument",
        ),
        pytest.param(
            "patient",
            1,
            {"patience": 1, "wrapped_pruner": {"name": "mediann"}},
            "pruner.wrapped_pruner.name is 'mediann', but must be one of asha, freeze_thaw, "
            "hyperband, median, none, nop, optuna_hyperband, patient, pbt, percentile, "
            "successive_halving, threshold, wilcoxon. Did you mean 'median'?",
            id="wrapped",
        ),
    ],
)
def test_wrong_pruner_is_refused(
    name: str, n_objectives: int, arguments: dict[str, object], expected: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        build(name, n_objectives, **arguments)
    assert str(caught.value) == f"study.yaml: {expected}"
