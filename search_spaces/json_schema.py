"""The JSON Schema of a search space, for editors.

It allows at least what `parse_space` allows. Rules between keys, such as low below high, are left
to the tuner.
"""

from __future__ import annotations

from collections.abc import Mapping

_SCALAR = {"type": ["string", "number", "boolean", "null"]}
#: YAML 1.1 reads `1e-4` as text, and so does the parser of a space.
_NUMBER = {
    "title": "number",
    "anyOf": [
        {"type": "number"},
        {"type": "string", "pattern": r"^\s*[-+]?[\d.][\d_.]*([eE][-+]?[\d_]+)?\s*$"},
    ],
}
_NUMBER_OR_NULL = {"title": "number", "anyOf": [*_NUMBER["anyOf"], {"type": "null"}]}
_WHEN = {
    "type": ["object", "null"],
    "minProperties": 1,
    "additionalProperties": {
        "anyOf": [_SCALAR, {"type": "array", "items": _SCALAR, "minItems": 1}],
    },
    "description": "Condition: the parameter exists only if an earlier parameter has this value, "
    "or one of a list of values.",
    "examples": [{"optimizer": "sgd"}, {"optimizer": ["adam", "adamw"]}],
}
_LOW = {**_NUMBER, "description": "Smallest value.", "examples": [1e-4]}
_HIGH = {**_NUMBER, "description": "Largest value, included.", "examples": [1e-1]}
_LOG = {
    "type": "boolean",
    "default": False,
    "description": "Whether to search on a logarithmic scale, for values that matter in orders of "
    "magnitude, such as a learning rate.",
    "examples": [True],
}
_STEP = {
    **_NUMBER_OR_NULL,
    "description": "Allows only `low`, `low + step`, `low + 2 step` and so on.",
    "examples": [0.1],
}
_CHOICES = {
    "title": "list of values",
    "type": "array",
    "items": _SCALAR,
    "minItems": 1,
    "description": "Values of a categorical parameter.",
    "examples": [["sgd", "adamw"]],
}
_TYPE = {
    "description": "`float` and `int` are ranges from `low` to `high`, `categorical` is a list of "
    "`choices`.",
    "examples": ["float"],
}
_SIGNS_OF_A_PARAMETER = ("type", "low", "high", "choices")


def _parameter(kinds: list[str], required: list[str], **keys: object) -> dict[str, object]:
    return {
        "type": "object",
        "properties": {"type": {"enum": kinds, **_TYPE}, **keys, "when": _WHEN},
        "required": ["type", *required],
        "additionalProperties": False,
    }


_RANGE = _parameter(["float", "int"], ["low", "high"], low=_LOW, high=_HIGH, log=_LOG, step=_STEP)
_CATEGORICAL = _parameter(["categorical"], ["choices"], choices=_CHOICES)
_CONSTANT = {
    "title": "constant",
    "type": ["string", "number", "boolean", "null", "array", "object"],
    "not": {
        "type": "object",
        "anyOf": [{"required": [sign]} for sign in _SIGNS_OF_A_PARAMETER],
    },
}

SPACE: Mapping[str, object] = {
    "title": "mapping, path of a YAML file or module:function",
    "anyOf": [
        {
            "type": "object",
            "propertyNames": {"minLength": 1},
            "additionalProperties": {"anyOf": [_RANGE, _CATEGORICAL, _CONSTANT]},
        },
        {"type": "string", "pattern": r"(\.ya?ml|^[^:\s]+:[^:\s]+)$"},
    ],
}
"""What the study file may have under `search_space`."""

PARAMETER: Mapping[str, object] = {
    "type": {"enum": ["float", "int", "categorical"], **_TYPE},
    "low": _LOW,
    "high": _HIGH,
    "log": _LOG,
    "step": _STEP,
    "choices": _CHOICES,
    "when": _WHEN,
}
"""The keys of one parameter, each with its form and its meaning."""
