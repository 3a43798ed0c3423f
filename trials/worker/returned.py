"""Converts the result of a training function to one value per objective."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

#: Maximum number of names of a returned dict that a message shows.
_MOST_NAMES = 8


def by_objective(result: Any, names: Sequence[str]) -> dict[str, float]:
    """Converts a number, a sequence or a mapping to values by objective.

    Args:
        result: The function's result.
        names: Objectives of the study.

    Raises:
        TypeError: If a value is no number.
        ValueError: If there are more or fewer values than objectives, or other names.
    """
    if isinstance(result, Mapping):
        return _of_mapping(result, names)
    values: list[Any] = list(result) if isinstance(result, (list, tuple)) else [result]
    if len(values) != len(names):
        raise ValueError(_wrong_number(result, len(values), names))
    return {name: _number(value, name) for name, value in zip(names, values, strict=True)}


def nothing_returned(names: Sequence[str]) -> str:
    """Why a function without a result and without reports has failed."""
    return (
        "The function returned None and reported nothing: return or report a number. "
        f"End it with {_line(names)}."
    )


def _of_mapping(result: Mapping[Any, Any], names: Sequence[str]) -> dict[str, float]:
    missing = [name for name in names if name not in result]
    if missing:
        names_found = sorted(map(repr, result))
        more = ", ..." if len(names_found) > _MOST_NAMES else ""
        found = (", ".join(names_found[:_MOST_NAMES]) or "an empty dict") + more
        raise ValueError(
            f"The function returned {found}, without {', '.join(missing)}. "
            f"Write {_line(names, is_dict=True)}, or name the objectives as the function does: "
            f"{_objectives(sorted(map(str, result))[: len(names)])}."
        )
    return {name: _number(result[name], name) for name in names}


def _wrong_number(result: object, n_values: int, names: Sequence[str]) -> str:
    have = f"{n_values} value{'s' if n_values != 1 else ''}"
    objectives = f"{len(names)} objective{'s' if len(names) != 1 else ''} ({', '.join(names)})"
    more = [*names, *(f"metric_{i}" for i in range(len(names) + 1, n_values + 1))]
    text = f"The function returned {have}, {result!r:.80}, but the study has {objectives}."
    if n_values > len(names):
        return f"{text} Write {_line(names)}, or one objective for each: {_objectives(more)}."
    return f"{text} Write {_line(names)}."


def _number(value: Any, name: str) -> float:
    try:
        return float(value)
    except (TypeError, ValueError, RuntimeError):
        raise TypeError(
            f"The function returned {value!r:.200}, which is not a number, for {name}. "
            f"Write return float({name})."
        ) from None


def _line(names: Sequence[str], *, is_dict: bool = False) -> str:
    if len(names) > 1 or is_dict:
        inside = ", ".join(f"{json.dumps(name)}: {name}" for name in names)
        return f"return {{{inside}}}"
    return f"return {names[0]}"


def _objectives(names: Sequence[str]) -> str:
    inside = ", ".join(f"{name}: minimize" for name in names) or "loss: minimize"
    return f"objectives: {{{inside}}}"
