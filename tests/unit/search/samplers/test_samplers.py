"""Every sampler of Optuna by name, and what is said about a wrong one."""

from __future__ import annotations

import optuna
import pytest
from optuna import samplers

from tuner.config import SamplerConfig
from tuner.errors import ConfigError
from tuner.search.by_name import Place, require_packages
from tuner.search.samplers.registry import SAMPLERS, build_sampler
from tuner.search_spaces import SearchSpace, parse_space

DISCRETE = parse_space(
    {
        "lr": {"type": "float", "low": 0.0, "high": 0.3, "step": 0.1},
        "width": {"type": "int", "low": 4, "high": 12, "step": 4},
        "optimizer": {"type": "categorical", "choices": ["sgd", "adamw"]},
        "epochs": 20,
    }
)
CONTINUOUS = parse_space({"lr": {"type": "float", "low": 0.0, "high": 1.0}})
CONDITIONAL = parse_space(
    {
        "optimizer": {"type": "categorical", "choices": ["sgd", "adamw"]},
        "width": {"type": "int", "low": 1, "high": 2, "when": {"optimizer": "sgd"}},
    }
)
TPE_ARGUMENTS = (
    "The arguments of tpe are consider_prior, prior_weight, consider_magic_clip, "
    "consider_endpoints, n_startup_trials, n_ei_candidates, seed, multivariate, group, "
    "warn_independent_sampling, constant_liar."
)
MINIMAL = {
    "partial_fixed": {"fixed_params": {"width": 4}, "base_sampler": {"name": "random"}},
    "nsgaii": {"crossover": {"name": "sbx", "eta": 2}, "mutation": "polynomial"},
    "nsgaiii": {"reference_points": [[0, 1], [1, 0]]},
    "cma_es": {"independent_sampler": "random"},
}


def config(name: str, **arguments: object) -> SamplerConfig:
    return SamplerConfig.model_validate({"name": name, **arguments})


def build(
    name: str, space: SearchSpace | None = DISCRETE, **arguments: object
) -> samplers.BaseSampler:
    return build_sampler(config(name, **arguments), space, seed=3, file="study.yaml")


def is_sampler(name: str) -> bool:
    return name.endswith("Sampler") and not name.startswith("Base")


def test_every_sampler_of_optuna_has_a_name() -> None:
    known = {each.__name__ for each in SAMPLERS.classes.values()}
    optunas = {name for name in samplers.__all__ if is_sampler(name)}
    assert known == optunas | {"CurveGPSampler"}


@pytest.mark.parametrize("name", SAMPLERS.names)
def test_sampler_by_name_samples_the_space(name: str) -> None:
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    study = optuna.create_study(sampler=build(name, **MINIMAL.get(name, {})))
    assert DISCRETE.suggest(study.ask()).keys() == set(DISCRETE.names)


@pytest.mark.parametrize(
    ("name", "cls"),
    [
        ("tpe", samplers.TPESampler),
        ("cmaes", samplers.CmaEsSampler),
        ("brute_force", samplers.BruteForceSampler),
        ("nsgaiii", samplers.NSGAIIISampler),
        ("TPESampler", samplers.TPESampler),
    ],
)
def test_name_is_the_one_that_people_use(name: str, cls: type) -> None:
    assert str(build(name)) == cls.__name__


def drawn(name: str, seed: int, **arguments: object) -> dict[str, object]:
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    sampler = build_sampler(config(name, **arguments), CONTINUOUS, seed=seed)
    return CONTINUOUS.suggest(optuna.create_study(sampler=sampler).ask())


@pytest.mark.parametrize("name", ["tpe", "random", "nsgaii", "qmc", "gp", "curve_gp"])
def test_seed_decides_what_is_drawn(name: str) -> None:
    arguments = {"scramble": True} if name == "qmc" else {}
    assert drawn(name, 1, **arguments) == drawn(name, 1, **arguments)
    assert drawn(name, 1, **arguments) != drawn(name, 2, **arguments)


def test_seed_reaches_the_base_sampler() -> None:
    arguments = {"fixed_params": {}, "base_sampler": "random"}
    assert drawn("partial_fixed", 1, **arguments) == drawn("random", 1)


@pytest.mark.parametrize(
    ("name", "arguments", "expected"),
    [
        pytest.param(
            "tpee",
            {},
            "sampler.name is 'tpee', but must be one of brute_force, cma_es, cmaes, curve_gp, gp, "
            "grid, nsgaii, nsgaiii, partial_fixed, qmc, random, tpe. Did you mean 'tpe'?",
            id="unknown-name",
        ),
        pytest.param(
            "tpe",
            {"n_startup": 3},
            "sampler.n_startup is not an argument of tpe. Did you mean 'n_startup_trials'? "
            + TPE_ARGUMENTS,
            id="unknown-argument",
        ),
        pytest.param(
            "tpe",
            {"gamma": 3},
            "sampler.gamma is Python code in Optuna, which a study file cannot give. Remove it. "
            + TPE_ARGUMENTS,
            id="callable",
        ),
        pytest.param(
            "tpe",
            {"n_startup_trials": "ten"},
            "sampler.n_startup_trials is 'ten', but must be a whole number.",
            id="text-for-int",
        ),
        pytest.param(
            "tpe",
            {"multivariate": 1},
            "sampler.multivariate is 1, but must be true or false.",
            id="int-for-bool",
        ),
        pytest.param(
            "tpe",
            {"group": True, "multivariate": False},
            "sampler is refused by Optuna's tpe: ``group`` option can only be enabled when "
            "``multivariate`` is enabled.",
            id="refused-by-optuna",
        ),
        pytest.param(
            "cmaes",
            {"x0": 3},
            "sampler.x0 is 3, but must be a mapping, with one `name: value` per line.",
            id="not-a-mapping",
        ),
        pytest.param(
            "nsgaii",
            {"crossover": "sbxx"},
            "sampler.crossover.name is 'sbxx', but must be one of blx_alpha, sbx, spx, undx, "
            "uniform, vsbx. Did you mean 'sbx'?",
            id="unknown-crossover",
        ),
        pytest.param(
            "cmaes",
            {"independent_sampler": {"name": "random", "foo": 1}},
            "sampler.independent_sampler.foo is not an argument of random. "
            "The arguments of random are seed.",
            id="nested-argument",
        ),
        pytest.param(
            "cmaes",
            {"independent_sampler": 3},
            "sampler.independent_sampler is 3, but must be a name or a mapping with a name.",
            id="nested-number",
        ),
        pytest.param(
            "partial_fixed",
            {"fixed_params": {}},
            "sampler.base_sampler is missing, and partial_fixed needs it: "
            "a sampler, such as {name: tpe}.",
            id="missing-argument",
        ),
        pytest.param(
            "nsgaiii",
            {"reference_points": [[1, 2], [3]]},
            "sampler.reference_points is [[1, 2], [3]], but must be a list of equally long lists "
            "of numbers.",
            id="array",
        ),
    ],
)
def test_wrong_sampler_is_refused(name: str, arguments: dict[str, object], expected: str) -> None:
    with pytest.raises(ConfigError) as caught:
        build(name, **arguments)
    assert str(caught.value) == f"study.yaml: {expected}"


def test_several_objectives_are_refused_where_the_sampler_has_one() -> None:
    with pytest.raises(ConfigError) as caught:
        build_sampler(config("cmaes"), DISCRETE, seed=0, n_objectives=2, file="study.yaml")
    assert str(caught.value) == (
        "study.yaml: sampler is 'cmaes', which has one objective only; this study has 2. "
        "Use curve_gp, tpe, nsgaii, nsgaiii or gp."
    )


def test_missing_package_is_named_with_its_cure() -> None:
    place = Place(file="study.yaml", key="sampler")
    with pytest.raises(ConfigError) as caught:
        require_packages("gp", ("torch", "scipy"), place, is_installed=lambda name: name == "torch")
    assert str(caught.value) == (
        "study.yaml: sampler is 'gp', which needs scipy. Run: pip install 'gpu-tuner[samplers]'"
    )


def test_grid_takes_its_values_from_the_space() -> None:
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    study = optuna.create_study(sampler=build("grid"))
    points = {tuple(sorted(DISCRETE.suggest(study.ask()).items())) for _ in range(24)}
    assert {dict(point)["lr"] for point in points} == {0.0, 0.1, 0.2, 0.3}
    assert {dict(point)["width"] for point in points} == {4, 8, 12}
    assert len(points) == 24


def test_grid_takes_given_values_where_the_space_has_none() -> None:
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    study = optuna.create_study(sampler=build("grid", CONTINUOUS, search_space={"lr": [0.1, 0.5]}))
    assert {CONTINUOUS.suggest(study.ask())["lr"] for _ in range(2)} == {0.1, 0.5}


@pytest.mark.parametrize(
    ("space", "given", "expected"),
    [
        pytest.param(
            None,
            None,
            "sampler.search_space is missing, and there is no search_space to take it from. "
            "Give the values, such as {lr: [0.01, 0.1]}.",
            id="no-space",
        ),
        pytest.param(
            CONTINUOUS,
            None,
            "sampler.search_space has no values for lr, a float without a step. Give them here, "
            "such as {lr: [...]}, or add a step to search_space.lr.",
            id="continuous",
        ),
        pytest.param(
            CONTINUOUS,
            {"lr": [2]},
            "sampler.search_space.lr has 2, which is outside of search_space.lr.",
            id="outside",
        ),
        pytest.param(
            DISCRETE,
            {"width": [5]},
            "sampler.search_space.width has 5, which is outside of search_space.width.",
            id="off-the-steps",
        ),
        pytest.param(
            CONTINUOUS,
            {"lrr": [1]},
            "sampler.search_space.lrr is not a parameter of search_space. Did you mean 'lr'?",
            id="unknown",
        ),
        pytest.param(
            CONTINUOUS,
            {"lr": 0.1},
            "sampler.search_space.lr is 0.1, but must be a list of values.",
            id="no-list",
        ),
        pytest.param(
            CONDITIONAL,
            None,
            "sampler.search_space cannot be made: width depends on `when`, and a grid would run "
            "the same configuration again for each of its values. Use sampler: brute_force.",
            id="conditional",
        ),
        pytest.param(
            parse_space({"n": {"type": "int", "low": 1, "high": 10**9}}),
            None,
            "sampler.search_space makes a grid of 1,000,000,000 points (n: 1000000000), and at "
            "most 100,000 are allowed. Give shorter lists here, or use another sampler.",
            id="huge",
        ),
    ],
)
def test_grid_without_finite_values_is_refused(
    space: SearchSpace | None, given: object, expected: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        build("grid", space, **({"search_space": given} if given else {}))
    assert str(caught.value) == f"study.yaml: {expected}"


def test_brute_force_on_a_continuous_space_is_refused() -> None:
    with pytest.raises(ConfigError) as caught:
        build("brute_force", CONTINUOUS)
    assert str(caught.value) == (
        "study.yaml: sampler is 'brute_force', but lr is a float without a step, so that its "
        "values have no end. Add a step to search_space.lr."
    )
