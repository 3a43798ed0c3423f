"""From the arguments of `tuner.tune` to the text of a study file, which the loader then checks."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from datetime import timedelta
from pathlib import Path, PurePath

import yaml
from optuna.distributions import (
    BaseDistribution,
    CategoricalDistribution,
    FloatDistribution,
    IntDistribution,
)

from tuner.config import Source, StudyConfig
from tuner.config.study import validate_study
from tuner.config.study_file import parse_study
from tuner.errors import ConfigError
from tuner.search_spaces import SearchSpace

CALL = "tuner.tune()"
_TRIALS = "trials=64"
_OBJECTIVES = 'objectives={"accuracy": "maximize"}'
_SPACE = 'space={"lr": {"type": "float", "low": 1e-4, "high": 0.1, "log": True}}'
#: Arguments of Optuna, Ray and others, with their equivalents here.
_OTHERS = {
    **dict.fromkeys(("n_trials", "max_trials", "num_trials", "num_samples"), _TRIALS),
    **dict.fromkeys(("direction", "directions", "metric", "mode", "goal"), _OBJECTIVES),
    **dict.fromkeys(("params", "parameters", "config", "param_space"), _SPACE),
    **dict.fromkeys(("timeout", "time"), 'budget={"time": "30m"}'),
    **dict.fromkeys(("n_jobs", "gpus", "max_concurrent_trials"), 'devices=[0, 1], or "cpu:4"'),
    **dict.fromkeys(("seed", "random_state"), 'sampler={"name": "tpe", "seed": 0}'),
    "study_name": 'name="my-study"',
    "scheduler": 'pruner="asha"',
}
#: Keys of a study file that are called otherwise in a call.
_ARGUMENTS = {"search_space": "space", "trial.function": "train", "study": "name"}


def argument_names(values: Mapping[str, object]) -> dict[str, str]:
    """Names of arguments for keys of the study file, for messages."""
    budget = values.get("budget")
    is_number = isinstance(budget, Mapping) and "trials" in budget
    return _ARGUMENTS | ({"budget.trials": "trials"} if is_number else {})


def study_text(values: Mapping[str, object]) -> str:
    """The study file for the given arguments, without those that are None.

    Raises:
        ConfigError: If a study file can't hold a value.
    """
    for name in values:
        if wanted := _OTHERS.get(name):
            raise ConfigError(f"is no argument. Write {wanted}", file=CALL, key=name)
    names = argument_names(values)
    given = {
        key: _plain(value, names.get(key, key))
        for key, value in values.items()
        if value is not None
    }
    text: str = yaml.safe_dump(given, sort_keys=False, allow_unicode=True, width=10**9)
    return text


def config_of_text(text: str, folder: Path) -> StudyConfig:
    """Checks the text of a study that was given as arguments.

    Args:
        text: Content of the study file.
        folder: Base of relative paths in it.

    Raises:
        ConfigError: With a line for each mistake, which names the argument.
    """
    values = parse_study(text, CALL)
    return validate_study(
        values,
        source=Source(path=folder / "study.yaml", file=CALL, text=text),
        environ=os.environ,
        origins={},
        names=argument_names(values),
    )


def _plain(value: object, key: str) -> object:
    """A value as YAML has it."""
    if isinstance(value, BaseDistribution):
        return _words(value, key)
    if isinstance(value, SearchSpace):
        return _plain(value.to_mapping(), key)
    if isinstance(value, Mapping):
        return {_name(name, key): _plain(each, f"{key}.{name}") for name, each in value.items()}
    if _is_pair(value, key):
        raise ConfigError(_pair_problem(value), file=CALL, key=key)
    if isinstance(value, list | tuple | range):
        return [_plain(each, f"{key}[{place}]") for place, each in enumerate(value)]
    if isinstance(value, PurePath):
        return os.fspath(value)
    if isinstance(value, timedelta):
        return f"{value.total_seconds():g}s"
    if value is None or type(value) in (bool, int, float, str):
        return value
    if callable(item := getattr(value, "item", None)):
        # A number of NumPy or torch.
        return _plain(item(), key)
    problem = f"is {value!r:.80}, which a study can't hold. Use numbers, text, lists and mappings"
    if key.startswith("space."):
        problem += ", or a distribution of Optuna: FloatDistribution(1e-4, 0.1, log=True)"
    problem += "."
    raise ConfigError(problem, file=CALL, key=key)


def _is_pair(value: object, key: str) -> bool:
    """Whether a parameter is a tuple of two numbers, which may be a range or two choices."""
    is_parameter = key.startswith("space.") and key.count(".") == 1
    return is_parameter and isinstance(value, tuple) and [*map(type, value)] in _PAIRS


_PAIRS = ([int, int], [float, float], [int, float], [float, int])


def _pair_problem(value: object) -> str:
    assert isinstance(value, tuple), "only pairs are refused"
    kind = "int" if [*map(type, value)] == [int, int] else "float"
    return (
        f"is {value!r}, which may be a range or two choices. Write "
        f'{{"type": "{kind}", "low": {value[0]!r}, "high": {value[1]!r}}}, or [{value[0]!r}, '
        f"{value[1]!r}] for the choices."
    )


def _name(name: object, key: str) -> str:
    if isinstance(name, str):
        return name
    raise ConfigError(f"has the key {name!r}, but keys must be text.", file=CALL, key=key)


def _words(distribution: BaseDistribution, key: str) -> dict[str, object]:
    """A distribution of Optuna in the words of a study file."""
    match distribution:
        case FloatDistribution() | IntDistribution():
            kind = "float" if isinstance(distribution, FloatDistribution) else "int"
            return {"type": kind, **dict(_range(distribution))}
        case CategoricalDistribution():
            choices = _plain(distribution.choices, key)
            return {"type": "categorical", "choices": choices}
    problem = (
        f"is {distribution!r}, but must be a FloatDistribution, an IntDistribution or a "
        "CategoricalDistribution."
    )
    raise ConfigError(problem, file=CALL, key=key)


def _range(distribution: FloatDistribution | IntDistribution) -> Iterator[tuple[str, object]]:
    yield "low", distribution.low
    yield "high", distribution.high
    if distribution.log:
        yield "log", True
    elif distribution.step not in (None, 1):
        yield "step", distribution.step
    elif distribution.step == 1 and isinstance(distribution, FloatDistribution):
        yield "step", 1.0
