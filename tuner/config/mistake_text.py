"""Translates pydantic's errors to study file terms: key, value, allowed values, what to do."""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, TypeAlias

from tuner.config.mistakes import Mistake, Refusal, join_key
from tuner.search_spaces import SpaceError

if TYPE_CHECKING:
    from pydantic_core import ErrorDetails

Keys: TypeAlias = Mapping[str, Sequence[str]]
"""Known keys by the dotted path of the mapping that has them."""

_MISSING = {
    "study": "Name the study, for example study: digits-mlp.",
    "trial": "Say what to run, for example trial: {function: train:main}.",
    "engine.name": "Name the engine: slurm, kubernetes, ray or ssh.",
    "trial.metrics.pattern": "Give a regular expression, or remove trial.metrics for JSON lines.",
}
#: Keys of Optuna, W&B, Ray and others, with their equivalents here.
_MEANT = {
    "n_trials": "budget.trials",
    "max_trials": "budget.trials",
    "num_trials": "budget.trials",
    "num_samples": "budget.trials",
    "run_cap": "budget.trials",
    "direction": "objectives",
    "directions": "objectives",
    "metric": "objectives",
    "mode": "objectives",
    "goal": "objectives",
    "name": "study",
    "study_name": "study",
    "parameters": "search_space",
    "params": "search_space",
    "space": "search_space",
    "config": "search_space",
    "method": "sampler",
    "algorithm": "sampler",
    "early_terminate": "pruner",
    "scheduler": "pruner",
    "program": "trial.command",
    "script": "trial.command",
    "gpu": "devices",
    "db": "storage",
    "seed": "sampler",
    "random_state": "sampler",
    "n_jobs": "devices",
    "max_concurrent_trials": "devices",
    "database": "storage",
}
_TWO_MEANINGS = {
    "timeout": "'budget.time' (of the study) or 'trial.timeout' (of each attempt)",
    "gpus": "'devices' (all that the study may use) or 'trial.resources.gpus' (of each trial)",
}
#: Corrections for a single value in place of a mapping.
_AS_MAPPING = {
    "budget": "{{trials: {}}}",
    "confirm": "{{top: {}, seeds: 5}}",
    "checkpoints": "{{keep: {}}}",
    "engine": "{{name: {}}}",
    "trial.resources": "{{gpus: {}}}",
    "trial.metrics": "{{pattern: '{}'}}",
}
#: Other words for `trial.metrics.pattern`.
_PATTERNS = dict.fromkeys(("regex", "regexp", "re", "format", "line"), "trial.metrics.pattern")
#: A whole key, if its name alone does not show its syntax.
_EXAMPLES = {
    "budget.trials": "budget: {trials: 64}",
    "budget.time": "budget: {time: 30m}",
    "objectives": "objectives: {accuracy: maximize}",
    "search_space": "search_space: {lr: {type: float, low: 1.0e-4, high: 0.1, log: true}}",
    "trial.command": 'trial: {command: [python, train.py, "--lr={lr}"]}',
    "devices": "devices: [0, 1]",
}
_WANTED = {
    "bool_type": "true or false",
    "int_type": "a whole number (for example 64)",
    "string_type": "text",
    "mapping_type": "a mapping, with one `key: value` per line",
    "dict_type": "a mapping, with one `key: value` per line",
    "model_type": "a mapping, with one `key: value` per line",
    "model_attributes_type": "a mapping, with one `key: value` per line",
    "tuple_type": "a list",
    "greater_than_equal": "at least {ge}",
    "enum": "{expected}",
}


def to_mistakes(errors: Sequence[ErrorDetails], keys: Keys) -> list[Mistake]:
    """Translates pydantic's errors to mistakes in the study file."""
    return [mistake for error in errors for mistake in _mistakes(error, keys)]


def shown(value: object) -> str:
    """A value as a message quotes it: as YAML has it, and never a whole list or mapping."""
    if value is None:
        return "empty"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, list | tuple):
        return "a list"
    return "a mapping" if isinstance(value, Mapping) else repr(value)


def _mistakes(error: ErrorDetails, keys: Keys) -> Iterator[Mistake]:
    key = _dotted(error["loc"])
    cause = error.get("ctx", {}).get("error")
    if isinstance(cause, SpaceError):
        yield from _space_mistakes(key, cause)
    elif isinstance(cause, Refusal):
        for each in cause.mistakes:
            yield Mistake(key=join_key(key, each.key), problem=each.problem)
    elif cause is not None:
        yield Mistake(key=key, problem=str(cause))
    elif error["type"] == "extra_forbidden":
        yield _unknown(key, keys)
    elif error["type"] == "missing":
        yield Mistake(key=key, problem=f"is missing. {_MISSING.get(key, 'Add it.')}")
    else:
        yield Mistake(key=key, problem=_wrong_value(error))


def _dotted(loc: Sequence[int | str]) -> str:
    key = ""
    for part in loc:
        key = join_key(key, f"[{part}]" if isinstance(part, int) else part)
    return key


def _space_mistakes(key: str, error: SpaceError) -> Iterator[Mistake]:
    for each in (error, *error.others):
        place = each.key if each.file else join_key(key, each.key)
        yield Mistake(key=place, problem=each.problem, file=each.file)


def _unknown(key: str, keys: Keys) -> Mistake:
    parent, _, name = key.rpartition(".")
    meant = (
        (_PATTERNS.get(name) if parent == "trial.metrics" else None)
        or (_MEANT.get(name) if not parent else None)
        or _elsewhere(name, keys)
        or _nearest(name, parent, keys)
    )
    known = ", ".join(join_key(parent, each) for each in keys.get(parent, ()))
    hint = f"Did you mean '{meant}'?" if meant else f"Known keys: {known}."
    if not parent and name in _TWO_MEANINGS:
        hint = f"Did you mean {_TWO_MEANINGS[name]}?"
    if meant in _EXAMPLES and not parent:
        hint += f" Write {_EXAMPLES[meant]}"
    elif name in ("seed", "random_state") and not parent:
        hint += " Write sampler: {name: tpe, seed: 0}"
    return Mistake(key=key, problem=f"unknown key '{key}'. {hint}", names_key=True)


def _elsewhere(name: str, keys: Keys) -> str | None:
    """A key of exactly this name in another mapping, such as `budget.trials` for `trials`."""
    return next((join_key(parent, name) for parent in keys if name in keys[parent]), None)


def _nearest(name: str, parent: str, keys: Keys) -> str | None:
    close = difflib.get_close_matches(name, keys.get(parent, ()), n=1)
    return join_key(parent, close[0]) if close else None


def _wrong_value(error: ErrorDetails) -> str:
    wanted = _WANTED.get(error["type"])
    context = error.get("ctx", {})
    value = error["input"]
    if wanted is None:
        return f"is {shown(value)}, but that is not allowed: {error['msg']}."
    return f"is {shown(value)}, but must be {wanted.format(**context)}.{_advice(error)}"


def _mapping_advice(key: str, value: object) -> str:
    """The line to write instead of a single value where a mapping is needed."""
    if not isinstance(value, str | int | float) or isinstance(value, bool):
        return ""
    if key == "trial":
        text = str(value)
        is_function = ":" in text and " " not in text
        return f"trial: {{{'function: ' + text if is_function else 'command: [python, train.py]'}}}"
    name = key.rpartition(".")[2]
    return f"{name}: {_AS_MAPPING[key].format(value)}" if key in _AS_MAPPING else ""


def _advice(error: ErrorDetails) -> str:
    value = error["input"]
    if wanted := _mapping_advice(_dotted(error["loc"]), value):
        return f" Write {wanted}"
    if error["type"] == "int_type" and isinstance(value, float) and value.is_integer():
        return f" Write {int(value)}."
    if error["type"] == "string_type" and isinstance(value, int | float):
        return f' Put it in quotes: "{shown(value)}".'
    if error["type"] != "enum" or not isinstance(value, str):
        return ""
    allowed = [word.strip("'") for word in error["ctx"]["expected"].split(" or ")]
    close = difflib.get_close_matches(value, allowed, n=1, cutoff=0.4)
    return f" Did you mean '{close[0]}'?" if close else ""
