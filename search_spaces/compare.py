"""Stores a space as text, and describes how a new one differs from a stored one."""

from __future__ import annotations

import json
from dataclasses import replace

from optuna.distributions import BaseDistribution, CategoricalDistribution

from tuner.search_spaces.flow import flow
from tuner.search_spaces.schema import parse_stored_space
from tuner.search_spaces.space import (
    AnySpace,
    DefineByRunSpace,
    Distribution,
    Parameter,
    SearchSpace,
)
from tuner.search_spaces.values import ParamValue

_DECLARED = "declared"
_DEFINE_BY_RUN = "define_by_run"


def to_json(space: AnySpace | None) -> str:
    """Returns a space as JSON text; `null` for an objective that suggests its own parameters."""
    match space:
        case SearchSpace():
            return json.dumps({_DECLARED: space.to_mapping()})
        case DefineByRunSpace():
            return json.dumps({_DEFINE_BY_RUN: space.target})
        case None:
            return "null"


def from_json(text: str) -> AnySpace | None:
    """Reads the text that `to_json` returned."""
    document = json.loads(text)
    if document is None:
        return None
    if _DECLARED in document:
        return parse_stored_space(document[_DECLARED])
    module, _, function = document[_DEFINE_BY_RUN].partition(":")
    return DefineByRunSpace(module=module, function=function)


def differences(old: AnySpace | None, new: AnySpace | None) -> list[str]:
    """Returns the differences between two spaces as sentences; empty if trials are comparable.

    The order of parameters does not matter. The order of choices does, as in Optuna.
    """
    if not isinstance(old, SearchSpace) or not isinstance(new, SearchSpace):
        was, now = _in_words(old), _in_words(new)
        return [] if was == now else [f"the space was {was}, is now {now}"]
    before, after = old.to_mapping(), new.to_mapping()
    changed = [
        sentence
        for name in before
        if name in after
        for sentence in _changes(name, before[name], after[name])
    ]
    added = [f"{name} is new" for name in after if name not in before]
    gone = [f"{name} is gone" for name in before if name not in after]
    return changed + added + gone


def difference_in_code(
    space: AnySpace | None, name: str, distribution: BaseDistribution
) -> tuple[str, str] | None:
    """Compares the range in code for a parameter with that of a declared space.

    Args:
        space: The space of the study file.
        name: Name of the parameter.
        distribution: The distribution in code.

    Returns:
        Both in study file notation, that of the space first; None if they are equal, or if the
        space does not declare the parameter.
    """
    if not isinstance(space, SearchSpace) or not isinstance(distribution, Distribution):
        return None
    in_code = Parameter(name=name, distribution=distribution)
    if name in space.constants:
        return flow(space.constants[name]), flow(in_code.to_mapping())
    declared = next((each for each in space.parameters if each.name == name), None)
    if declared is None or _is_alike(declared.distribution, distribution):
        return None
    return flow(replace(declared, when={}).to_mapping()), flow(in_code.to_mapping())


def _is_alike(one: Distribution, other: Distribution) -> bool:
    match one, other:
        case CategoricalDistribution(), CategoricalDistribution():
            return sorted(map(repr, one.choices)) == sorted(map(repr, other.choices))
        case _:
            return one == other


def _in_words(space: AnySpace | None) -> str:
    match space:
        case SearchSpace():
            return f"declared in the study file ({', '.join(space.names)})"
        case DefineByRunSpace():
            return f"the function {space.target}"
        case None:
            return "drawn by the objective itself"


def _changes(name: str, old: ParamValue, new: ParamValue) -> list[str]:
    # As text, because 1 == True and 1 == 1.0 in Python but not in a study file.
    if json.dumps(old, sort_keys=True) == json.dumps(new, sort_keys=True):
        return []
    if not isinstance(old, dict) or not isinstance(new, dict):
        return [f"{name}: was {_shown(old)}, is now {_shown(new)}"]
    return [
        _change(name, key, old.get(key), new.get(key))
        for key in dict.fromkeys([*old, *new])
        if json.dumps(old.get(key)) != json.dumps(new.get(key))
    ]


def _change(name: str, key: str, old: ParamValue, new: ParamValue) -> str:
    if old is None:
        return f"{name}: {key} is new, {_shown(new)}"
    if new is None:
        return f"{name}: {key} is gone, was {_shown(old)}"
    return f"{name}: {key} was {_shown(old)}, is now {_shown(new)}"


def _shown(value: ParamValue) -> str:
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key}: {_shown(each)}" for key, each in value.items()) + "}"
    if isinstance(value, list):
        return f"[{', '.join(map(_shown, value))}]"
    return value if isinstance(value, str) else json.dumps(value)
