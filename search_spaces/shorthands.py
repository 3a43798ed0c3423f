"""Converts short forms of parameters, and those of W&B sweeps, to the full form.

A form is accepted if it has exactly one meaning. Any other is refused with the line to write, so
that no parameter becomes a constant by mistake.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeAlias

from tuner.search_spaces.flow import line
from tuner.search_spaces.space import (
    SIGNS_OF_A_PARAMETER,
    SpaceError,
    is_like_a_parameter,
    is_number,
    is_wrapped,
    nearest,
)
from tuner.search_spaces.values import ParamValue
from tuner.search_spaces.wandb_distributions import read_distribution

#: W&B's names of these keys.
_RENAMED = {"low": "min", "high": "max", "choices": "values"}
_KNOWN = (*SIGNS_OF_A_PARAMETER, *_RENAMED.values(), "value", "log", "step", "when", "distribution")
#: Calls in the notation of Hydra, Ray Tune and Hyperopt.
_CALL = re.compile(
    r"\s*(?:tag\(\s*\w+\s*,\s*)?(?:[a-z]+\.)?(?P<function>interval|choice|range|uniform|quniform"
    r"|loguniform|log_uniform|qloguniform|randint|lograndint|randn|normal)\((?P<arguments>.*)\)\s*",
    re.DOTALL,
)
_NUMBER = r"[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?"
#: Two ends of a range as text, such as 1e-5..1e-1.
_ENDS = re.compile(rf"\s*(?P<low>{_NUMBER})\s*(?:\.\.\.?|,|to|\s-\s)\s*(?P<high>{_NUMBER})\s*")
_LOG_RATIO = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class Words:
    """The keys that the file uses for the keys of the full form; messages name them."""

    low: str = "low"
    high: str = "high"
    #: Empty for a bare list.
    choices: str = "choices"


@dataclass(frozen=True, slots=True, kw_only=True)
class Constant:
    """A value that every trial gets."""

    value: ParamValue


@dataclass(frozen=True, slots=True, kw_only=True)
class FullForm:
    """A parameter with its type."""

    body: Mapping[str, object]
    words: Words = Words()


Entry: TypeAlias = Constant | FullForm


def read_entry(name: str, body: object) -> Entry:
    """Parses a space's entry in any form.

    Raises:
        SpaceError: If it has no meaning or several; with the line to write.
    """
    if isinstance(body, list):
        return _of_list(name, body)
    if isinstance(body, Mapping):
        return _of_mapping(name, body)
    if isinstance(body, str) and (call := _CALL.fullmatch(body)):
        raise SpaceError(_about_text(name, body, _from_call(call)), key=name)
    if isinstance(body, str) and (ends := _ENDS.fullmatch(body)):
        raise SpaceError(_about_text(name, body, _from_ends(ends)), key=name)
    return Constant(value=read_constant(name, body))


def stored_entry(name: str, body: object) -> Entry:
    """Parses an entry written by `SearchSpace.to_mapping`: lists and mappings are constants.

    Raises:
        SpaceError: If it is no JSON value.
    """
    if is_like_a_parameter(body):
        return FullForm(body=body)
    constant = read_constant(name, body)
    return Constant(value=constant["value"] if is_wrapped(constant) else constant)


def read_constant(key: str, body: object) -> ParamValue:
    """A constant: any JSON value.

    Raises:
        SpaceError: If it is a date or another value that exists only in YAML.
    """
    if body is None or isinstance(body, str | int | float | bool):
        return body
    if isinstance(body, list):
        return [read_constant(f"{key}[{place}]", each) for place, each in enumerate(body)]
    if isinstance(body, dict):
        return {str(name): read_constant(f"{key}.{name}", each) for name, each in body.items()}
    raise SpaceError(
        f"is {body}, which YAML reads as a {type(body).__name__}, but a constant must be text, "
        "a number, true or false, null, a list or a mapping. Put it in quotes.",
        key=key,
    )


def _of_list(name: str, body: list[object]) -> Entry:
    if not body:
        raise SpaceError("is an empty list, but must have at least one value.", key=name)
    nested = next((each for each in body if isinstance(each, list | dict)), None)
    if nested is not None:
        written = line(name, {"value": read_constant(name, body)})
        raise SpaceError(
            f"is a list with {nested!r} in it, but a choice must be text, a number, true or false, "
            "or null. Give each choice a short name and look the rest up in your training code. "
            f"If every trial gets this list, write {written}.",
            key=name,
        )
    return FullForm(body={"type": "categorical", "choices": body}, words=Words(choices=""))


def _of_mapping(name: str, body: Mapping[str, object]) -> Entry:
    if "value" in body:
        return _of_value(name, body)
    renamed, words = _renamed(name, body)
    if "distribution" in body:
        return FullForm(body=read_distribution(name, renamed, body), words=words)
    if "type" in body:
        return FullForm(body=renamed, words=words)
    if "choices" in renamed:
        return FullForm(body={"type": "categorical", **renamed}, words=words)
    if "low" in renamed or "high" in renamed:
        return FullForm(body={"type": _type_of_range(name, renamed, words), **renamed}, words=words)
    raise SpaceError(_about_mapping(name, body), key=name)


def _of_value(name: str, body: Mapping[str, object]) -> Entry:
    others = [key for key in body if key != "value"]
    if others and not (others == ["distribution"] and body["distribution"] == "constant"):
        written = line(name, {"value": body["value"]})
        problem = f"has value, which makes it a constant, and {', '.join(others)}. Write {written}."
        raise SpaceError(problem, key=name)
    return Constant(value=read_constant(f"{name}.value", body["value"]))


def _renamed(name: str, body: Mapping[str, object]) -> tuple[dict[str, object], Words]:
    """The entry with W&B's keys renamed, and the file's names of these keys."""
    for ours, theirs in _RENAMED.items():
        if ours in body and theirs in body:
            raise SpaceError(f"has both {ours} and {theirs}. Keep one.", key=name)
    names = {theirs: ours for ours, theirs in _RENAMED.items()}
    words = {names[key]: key for key in body if key in names}
    if {"low", "high"} & words.keys() and not {"low", "high"} & body.keys():
        words |= {"low": "min", "high": "max"}
    return {names.get(key, key): each for key, each in body.items()}, Words(**words)


def _type_of_range(name: str, body: Mapping[str, object], words: Words) -> str:
    """W&B reads two whole numbers as an integer range; 0 and 1 often mean otherwise."""
    numbers = [body[key] for key in ("low", "high", "step") if key in body]
    is_whole = all(isinstance(each, int) and not isinstance(each, bool) for each in numbers)
    if not is_whole or "low" not in body or "high" not in body:
        return "float"
    is_wandb = (words.low, words.high) == ("min", "max") and body.keys() <= {"low", "high", "when"}
    if is_wandb and numbers != [0, 1]:
        return "int"
    as_int, as_float = (line(name, {"type": kind, **body}) for kind in ("int", "float"))
    problem = (
        f"has no type, and its ends are whole numbers, so that it may be int or float. "
        f"Write {as_int}, or {as_float}."
    )
    raise SpaceError(problem, key=name)


def _about_mapping(name: str, body: Mapping[str, object]) -> str:
    if list(body) == ["parameters"] and isinstance(body["parameters"], Mapping):
        inner = next(iter(body["parameters"]), "lr")
        return (
            f"has nested parameters. Give each parameter a name of its own, such as {name}.{inner}."
        )
    constant = line(name, {"value": read_constant(name, body)})
    close = [(key, meant) for key in body if (meant := nearest(key, _KNOWN))]
    hint = f" Did you mean '{close[0][1]}' for '{close[0][0]}'?" if close else ""
    return (
        f"is a mapping without type.{hint} Write a parameter as {name}: {{type: float, low: 0.1, "
        f"high: 1.0}} or {name}: [a, b]. If every trial gets this mapping, write {constant}."
    )


def _about_text(name: str, body: str, parameter: object) -> str:
    example = "{type: float, low: 0.1, high: 1.0}"
    written = f"{name}: {example}" if parameter is None else line(name, parameter)
    return (
        f"is the text {body!r}, which would be a constant. Write {written}. "
        f"If every trial gets this text, write {line(name, {'value': body})}."
    )


def _from_ends(ends: re.Match[str]) -> object:
    """The parameter that two numbers mean; over many sizes on a logarithmic scale."""
    low, high = sorted((float(ends["low"]), float(ends["high"])))
    if not low < high < math.inf:
        return None
    if ends["low"].isdigit() and ends["high"].isdigit():
        return {"type": "int", "low": int(low), "high": int(high)}
    parameter: dict[str, object] = {"type": "float", "low": low, "high": high}
    return parameter | {"log": True} if 0 < low * _LOG_RATIO <= high else parameter


def _from_call(call: re.Match[str]) -> object:
    """The parameter that a call describes, if its arguments are plain."""
    words = [each.strip().strip("'\"[]") for each in call["arguments"].rstrip(")").split(",")]
    function = call["function"]
    if function == "choice":
        return [_number_or_text(each) for each in words]
    numbers = [each for each in map(_number_or_text, words) if is_number(each)]
    if len(numbers) != len(words) or len(numbers) != 2 or not all(map(math.isfinite, numbers)):
        return None
    low, high = numbers
    if function in ("range", "randint", "lograndint"):
        ends: dict[str, object] = {"type": "int", "low": int(low), "high": int(high) - 1}
    elif function in ("interval", "uniform", "loguniform", "log_uniform"):
        ends = {"type": "float", "low": float(low), "high": float(high)}
    else:
        return None
    is_log = "log" in function or call[0].lstrip().startswith("tag(log")
    return {**ends, "log": True} if is_log else ends


def _number_or_text(word: str) -> int | float | str:
    for kind in (int, float):
        try:
            return kind(word)
        except ValueError:
            continue
    return word
