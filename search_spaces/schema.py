"""Converts the `search_space` of a study file to a `SearchSpace`, or explains its mistakes."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from decimal import Decimal

from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution

from tuner.search_spaces.conditions import read_when
from tuner.search_spaces.shorthands import (
    Constant,
    Entry,
    FullForm,
    Words,
    read_entry,
    stored_entry,
)
from tuner.search_spaces.space import (
    Distribution,
    Parameter,
    SearchSpace,
    SpaceError,
    is_number,
    nearest,
)
from tuner.search_spaces.values import ParamValue, Scalar

_KEYS_OF_TYPE = {
    "float": ("type", "low", "high", "log", "step", "when"),
    "int": ("type", "low", "high", "log", "step", "when"),
    "categorical": ("type", "choices", "when"),
}
_TYPES_OF_OTHERS = {
    **dict.fromkeys(("double", "real", "number", "uniform", "loguniform", "continuous"), "float"),
    **dict.fromkeys(("integer", "randint", "intuniform", "discrete", "quniform"), "int"),
    **dict.fromkeys(
        ("choice", "choices", "enum", "category", "grid", "bool", "boolean"), "categorical"
    ),
}
#: Above this, a float cannot distinguish consecutive steps.
_MAX_STEPS = 2**53
#: Optuna computes with floats and with 64 bits, and adds one to the ends.
_MAX_WHOLE_NUMBER = 2**53


def parse_space(mapping: Mapping[str, object]) -> SearchSpace:
    """Reads a space from a mapping of names to parameters and constants.

    A list is a categorical parameter. A mapping is a parameter, or a constant as `{value: ...}`.
    Any other value is a constant. The keys of W&B sweeps (`min`, `max`, `values`, `distribution`)
    are taken too.

    Raises:
        SpaceError: The first mistake; `others` has the rest.
    """
    return _parse(mapping, read_entry)


def parse_stored_space(mapping: Mapping[str, object]) -> SearchSpace:
    """Reads the mapping that `SearchSpace.to_mapping` returned.

    Raises:
        SpaceError: If it is another one.
    """
    return _parse(mapping, stored_entry)


def _parse(mapping: Mapping[str, object], read: Callable[[str, object], Entry]) -> SearchSpace:
    mistakes: list[SpaceError] = []
    entries = dict(_entries(mapping, read, mistakes))
    constants = {name: e.value for name, e in entries.items() if isinstance(e, Constant)}
    parameters: dict[str, Parameter] = {}
    for name, entry in entries.items():
        if isinstance(entry, Constant):
            continue
        later = mapping.keys() - parameters.keys() - constants.keys()
        try:
            parameters[name] = _read_parameter(name, entry, parameters, constants, later)
        except SpaceError as mistake:
            mistakes.append(mistake)
    raise_together(mistakes)
    notes = tuple(_step_notes(entries, parameters.values()))
    return SearchSpace(parameters=tuple(parameters.values()), constants=constants, notes=notes)


def _entries(
    mapping: Mapping[str, object],
    read: Callable[[str, object], Entry],
    mistakes: list[SpaceError],
) -> Iterator[tuple[str, Entry]]:
    for name, body in mapping.items():
        try:
            if not name:
                raise SpaceError("has a parameter with an empty name. Name it.")
            yield name, read(name, body)
        except SpaceError as mistake:
            mistakes.append(mistake)


def raise_together(mistakes: Sequence[SpaceError]) -> None:
    """Raises the first mistake, with the others attached; does nothing if there is none."""
    if mistakes:
        first, *others = mistakes
        raise SpaceError(
            first.problem,
            key=first.key,
            file=first.file,
            others=others,
            suggestion=first.suggestion,
        )


def _read_parameter(
    name: str,
    entry: FullForm,
    earlier: Mapping[str, Parameter],
    constants: Mapping[str, ParamValue],
    later: Collection[str],
) -> Parameter:
    body, words = entry.body, entry.words
    kind = _read_type(name, body)
    _refuse_unknown_keys(name, kind, body, words)
    distribution = (
        _read_choices(name, body, words)
        if kind == "categorical"
        else _read_range(name, kind, body, words)
    )
    when = read_when(name, body.get("when"), earlier=earlier, constants=constants, later=later)
    return Parameter(name=name, distribution=distribution, when=when)


def _read_type(name: str, body: Mapping[str, object]) -> str:
    kind = body["type"]
    if isinstance(kind, str) and kind in _KEYS_OF_TYPE:
        return kind
    hint = _of_others(name, kind, body) or _hint(str(kind), _KEYS_OF_TYPE)
    raise SpaceError(
        f"is {kind!r}, but must be float, int or categorical.{hint}", key=f"{name}.type"
    )


def _of_others(name: str, kind: object, body: Mapping[str, object]) -> str:
    """The line to write for the name that a type has in other programs."""
    meant = _TYPES_OF_OTHERS.get(str(kind).lower().replace("_", "").replace("-", ""))
    if meant is None:
        return ""
    if meant == "categorical":
        return f" Write {name}: {{type: categorical, choices: [...]}}"
    ends = ", ".join(f"{key}: {body.get(key, '...')}" for key in ("low", "high"))
    is_log = str(kind).lower().startswith("log") and "log" not in body
    return f" Write {name}: {{type: {meant}, {ends}{', log: true' if is_log else ''}}}"


def _refuse_unknown_keys(name: str, kind: str, body: Mapping[str, object], words: Words) -> None:
    written = {"low": words.low, "high": words.high, "choices": words.choices}
    known = _KEYS_OF_TYPE[kind]
    for key in body:
        if key not in known:
            hint = _hint(key, known) or f" Its keys are {', '.join(known)}."
            problem = f"is not a key of a parameter of type {kind}.{hint}"
            raise SpaceError(problem, key=f"{name}.{written.get(key, key)}")


def _hint(word: str, known: Iterable[str]) -> str:
    meant = nearest(word, known)
    return f" Did you mean '{meant}'?" if meant else ""


def _read_choices(name: str, body: Mapping[str, object], words: Words) -> CategoricalDistribution:
    key = f"{name}.{words.choices}" if words.choices else name
    choices = body.get("choices")
    if choices is None:
        raise SpaceError("has no choices. Add a list, such as choices: [sgd, adamw].", key=name)
    if not isinstance(choices, list):
        raise SpaceError(f"is {choices!r}, but must be a list, such as [sgd, adamw].", key=key)
    if not choices:
        raise SpaceError("is empty, but must have at least one value.", key=key)
    seen: dict[Scalar, Scalar] = {}
    for place, choice in enumerate(choices):
        read = _read_choice(f"{key}[{place}]", choice, seen)
        seen[read] = read
    return CategoricalDistribution(list(seen))


def _read_choice(key: str, choice: object, seen: Mapping[Scalar, Scalar]) -> Scalar:
    if choice is not None and not isinstance(choice, str | int | float | bool):
        raise SpaceError(
            f"is {choice!r}, but a choice must be text, a number, true or false, or null. "
            "Give it a short name and look the rest up in your training code.",
            key=key,
        )
    # Optuna finds a choice by ==, so it cannot distinguish 1, 1.0 and true.
    if choice in seen:
        problem = f"is {choice!r}, which equals {seen[choice]!r} before it. Keep one."
        raise SpaceError(problem, key=key)
    return choice


def _read_range(name: str, kind: str, body: Mapping[str, object], words: Words) -> Distribution:
    _refuse_missing_ends(name, kind, body, words)
    low = _number(f"{name}.{words.low}", kind, body["low"])
    high = _number(f"{name}.{words.high}", kind, body["high"])
    step = None if body.get("step") is None else _number(f"{name}.step", kind, body["step"])
    is_log = _flag(f"{name}.log", body.get("log", False))
    _check_ends(name, low, high, words)
    _check_log(f"{name}.{words.low}", kind, low, is_log=is_log)
    _check_log_step(name, kind, is_log=is_log, step=step)
    _check_step(name, step, width=high - low)
    if step is not None:
        high = _last_step(low, high, step)
    if kind == "float":
        return FloatDistribution(low, high, log=is_log, step=step)
    return IntDistribution(int(low), int(high), log=is_log, step=1 if step is None else int(step))


def _last_step(low: float, high: float, step: float) -> float:
    """The largest value that steps from `low` reach, as Optuna computes it."""
    first, last, width = (Decimal(str(each)) for each in (low, high, step))
    reached = first + (last - first) // width * width
    return high if reached == last else type(high)(reached)


def _step_notes(entries: Mapping[str, Entry], parameters: Iterable[Parameter]) -> Iterator[str]:
    for each in parameters:
        entry, distribution = entries[each.name], each.distribution
        if isinstance(entry, Constant) or isinstance(distribution, CategoricalDistribution):
            continue
        if distribution.step is None or distribution.high == float(entry.body["high"]):  # type: ignore[arg-type]  # a number, by now
            continue
        word, high = entry.words.high, entry.body["high"]
        yield (
            f"search_space.{each.name}.{word} is {high}, which steps of {distribution.step} from "
            f"{distribution.low} do not reach: the largest value is {distribution.high}. "
            f"Write {word}: {distribution.high}"
        )


def _refuse_missing_ends(name: str, kind: str, body: Mapping[str, object], words: Words) -> None:
    ends = {"low": words.low, "high": words.high}
    missing = [word for key, word in ends.items() if body.get(key) is None]
    if missing:
        problem = f"has no {' and no '.join(missing)}. A parameter of type {kind} needs both ends."
        raise SpaceError(problem, key=name)


def _number(key: str, kind: str, value: object) -> float:
    # YAML 1.1 readers give `1e-4` as text, and so does a quoted number: both are meant as numbers.
    number = _from_text(value) if isinstance(value, str) else value
    if not is_number(number):
        raise SpaceError(f"is {value!r}, but must be a number.", key=key)
    if not math.isfinite(number):
        raise SpaceError(f"is {value!r}, but must be a finite number.", key=key)
    if kind == "int" and not float(number).is_integer():
        problem = f"is {value!r}, but must be a whole number for type int. Or use type: float."
        raise SpaceError(problem, key=key)
    if kind == "int" and abs(number) > _MAX_WHOLE_NUMBER:
        problem = f"is {value!r}, but must be at most {_MAX_WHOLE_NUMBER:,} for type int."
        raise SpaceError(problem, key=key)
    return int(number) if kind == "int" else float(number)


def _from_text(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None


def _flag(key: str, value: object) -> bool:
    if not isinstance(value, bool):
        raise SpaceError(f"is {value!r}, but must be true or false.", key=key)
    return value


def _check_ends(name: str, low: float, high: float, words: Words) -> None:
    if low == high:
        problem = (
            f"has {words.low} equal to {words.high} ({low}). Use a constant instead: {name}: {low}"
        )
        raise SpaceError(problem, key=name)
    if not math.isfinite(high - low):
        ends = f"{words.low} {low} and {words.high} {high}"
        problem = f"has {ends}, which are too far apart. Narrow the range."
        raise SpaceError(problem, key=name)
    if low > high:
        problem = f"is {low}, but must be below {words.high}, which is {high}. Swap the two."
        raise SpaceError(problem, key=f"{name}.{words.low}")


def _check_log(key: str, kind: str, low: float, *, is_log: bool) -> None:
    if is_log and low <= 0:
        example = "1" if kind == "int" else "1.0e-5"
        problem = f"is {low}, but must be above 0 with log: true. Use for example {example}."
        raise SpaceError(problem, key=key)


def _check_log_step(name: str, kind: str, *, is_log: bool, step: float | None) -> None:
    if is_log and step is not None and not (kind == "int" and step == 1):
        problem = f"is {step}, but a step cannot be combined with log: true. Remove one of them."
        raise SpaceError(problem, key=f"{name}.step")


def _check_step(name: str, step: float | None, *, width: float) -> None:
    if step is None:
        return
    if step <= 0:
        raise SpaceError(f"is {step}, but must be above 0.", key=f"{name}.step")
    if width / step > _MAX_STEPS:
        problem = f"is {step}, too small for low and high that are {width} apart. Use a larger one."
        raise SpaceError(problem, key=f"{name}.step")
    if step > width:
        problem = f"is {step}, but low and high are only {width} apart. Use a smaller step."
        raise SpaceError(problem, key=f"{name}.step")
