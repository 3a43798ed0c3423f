"""Reads the search of a Hydra configuration: `hydra.sweeper` with its `params`."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from tuner.search_spaces.strict_yaml import YamlError, read_yaml

_CALL = re.compile(r"(\w+)\((.*)\)", re.DOTALL)
#: Casts and tags around what is searched.
_AROUND = ("int", "float", "tag")


@dataclass(frozen=True, slots=True, kw_only=True)
class Sweep:
    """A search as a configuration of Hydra has it."""

    #: Parameters, in a form of `search_space`.
    space: Mapping[str, object]
    directions: tuple[str, ...] = ()
    n_trials: int | None = None
    #: Parameters whose form is not known, as they are written.
    unread: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class _Around:
    kind: str = ""
    tags: frozenset[str] = field(default_factory=frozenset)


def sweep_of(document: Mapping[str, object]) -> Sweep | None:
    """The search of a configuration; None if it has none.

    Args:
        document: The configuration. What its `defaults` name is not looked at.
    """
    hydra = document.get("hydra")
    sweeper = hydra.get("sweeper") if isinstance(hydra, Mapping) else None
    if not isinstance(sweeper, Mapping):
        return None
    found = next(
        (
            each
            for key in ("params", "search_space")
            if isinstance(each := sweeper.get(key), Mapping)
        ),
        None,
    )
    if not found:
        return None
    space = {str(name): _parameter(value, _Around()) for name, value in found.items()}
    unread = [f"{name}: {found[name]}" for name, value in space.items() if value is None]
    n_trials = sweeper.get("n_trials")
    return Sweep(
        space={name: value for name, value in space.items() if value is not None},
        directions=tuple(_directions(sweeper.get("direction"))),
        n_trials=n_trials if isinstance(n_trials, int) else None,
        unread=tuple(unread),
    )


def _directions(value: object) -> list[str]:
    given = value if isinstance(value, list) else [value]
    return [each for each in map(str, given) if each in ("minimize", "maximize")]


def _parameter(value: object, around: _Around) -> object:
    """A parameter of a search space; None if its form is not known."""
    if not isinstance(value, str):
        return value if isinstance(value, int | float | Mapping) else None
    call = _CALL.fullmatch(value.strip())
    if call is None:
        words = _words(value)
        return [_scalar(each) for each in words] if len(words) > 1 else _scalar(value)
    name, words = call[1], _words(call[2])
    if name in _AROUND and words:
        tags = around.tags | set(words[:-1])
        kind = around.kind if name == "tag" else name
        return _parameter(words[-1], replace(around, kind=kind, tags=tags))
    numbers = [each for each in map(_scalar, words) if isinstance(each, int | float)]
    if name == "choice" and words:
        return [_scalar(each.partition("=")[2] if "=" in each else each) for each in words]
    if name == "interval" and len(numbers) == len(words) == 2:
        return _interval(numbers, around)
    if name == "range" and 1 <= len(numbers) == len(words) <= 3:
        return _range(numbers)
    return None


def _interval(ends: list[int | float], around: _Around) -> object:
    cast = int if around.kind == "int" else float
    log = {"log": True} if "log" in around.tags else {}
    return {"type": cast.__name__, "low": cast(ends[0]), "high": cast(ends[1]), **log}


def _range(numbers: list[int | float]) -> object:
    """As the Optuna sweeper of Hydra has it: the upper end is included."""
    low, high, step = {1: [0, *numbers, 1], 2: [*numbers, 1], 3: numbers}[len(numbers)]
    is_int = all(isinstance(each, int) for each in numbers)
    kept = {} if is_int and step == 1 else {"step": step}
    return {"type": "int" if is_int else "float", "low": low, "high": high, **kept}


def _words(text: str) -> list[str]:
    """The words between commas that are in no bracket and no quotes."""
    words, depth, quote = [""], 0, ""
    for sign in text:
        if quote or sign in "'\"":
            quote = "" if sign == quote else quote or sign
        depth += {"(": 1, "[": 1, "{": 1, ")": -1, "]": -1, "}": -1}.get(sign, 0)
        if sign == "," and depth == 0 and not quote:
            words.append("")
        else:
            words[-1] += sign
    return [each.strip() for each in words if each.strip()]


def _scalar(text: str) -> object:
    """A word as YAML has it, also `1e-5`, which is a number for Hydra."""
    try:
        return float(text) if re.fullmatch(r"[-+]?\d+e[-+]?\d+", text) else read_yaml(text)
    except YamlError:
        return text
