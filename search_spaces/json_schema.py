"""The JSON Schema of a search space, for editors.

It allows at least what `parse_space` allows. Rules between keys, such as low below high, are
checked only by the tuner.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tuner.search_spaces.wandb_distributions import taken_distributions

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
    "description": "Values of a categorical parameter. A list alone, `optimizer: [sgd, adamw]`, is "
    "the same.",
    "examples": [["sgd", "adamw"]],
}
_TYPE = {
    "description": "`float` and `int` are ranges from `low` to `high`, `categorical` is a list of "
    "`choices`. It may be left out for `choices`, and for a range if one of its ends is not a "
    "whole number (1.0), which makes it `float`.",
    "examples": ["float"],
}
_MIN = {**_NUMBER, "description": "The same as `low`, as in W&B sweeps.", "examples": [1e-4]}
_MAX = {**_NUMBER, "description": "The same as `high`, as in W&B sweeps.", "examples": [1e-1]}
_VALUES = {
    **_CHOICES,
    "description": "The same as `choices`, as in W&B sweeps.",
    "examples": [["sgd", "adamw"]],
}
_DISTRIBUTION = {
    "description": "Distribution of a W&B sweep, instead of `type`, `log` and `step`. As in W&B, "
    "`log_uniform` has exponents of e as its ends; `log_uniform_values` has values.",
    "examples": ["log_uniform_values"],
}
_Q = {
    "title": "number",
    "type": "number",
    "exclusiveMinimum": 0,
    "default": 1,
    "description": "Step of `distribution: q_uniform`; `min` and `max` are multiples of it.",
    "examples": [0.1],
}
_VALUE = {
    "title": "any value",
    "description": "Makes the mapping a constant: every trial gets this value, which may be a list "
    "or a mapping.",
    "examples": [[1, 2]],
}
_ENDS = {"low": _LOW, "min": _MIN, "high": _HIGH, "max": _MAX}
_HAS_ENDS = {
    "allOf": [
        {"anyOf": [{"required": ["low"]}, {"required": ["min"]}]},
        {"anyOf": [{"required": ["high"]}, {"required": ["max"]}]},
    ]
}


def _parameter(required: Sequence[str], **keys: object) -> dict[str, object]:
    return {
        "type": "object",
        "properties": {**keys, "when": _WHEN},
        "required": list(required),
        "additionalProperties": False,
    }


_RANGE = {
    **_parameter([], type={"enum": ["float", "int"], **_TYPE}, **_ENDS, log=_LOG, step=_STEP),
    **_HAS_ENDS,
}
_CATEGORICAL = {
    **_parameter([], type={"enum": ["categorical"], **_TYPE}, choices=_CHOICES, values=_VALUES),
    "anyOf": [{"required": ["choices"]}, {"required": ["values"]}],
}
_WANDB = _parameter(
    ["distribution"],
    distribution={"enum": list(taken_distributions()), **_DISTRIBUTION},
    **_ENDS,
    q=_Q,
    choices=_CHOICES,
    values=_VALUES,
)
_CONSTANT = {
    "title": "constant",
    "type": "object",
    "properties": {"value": _VALUE, "distribution": {"enum": ["constant"], **_DISTRIBUTION}},
    "required": ["value"],
    "additionalProperties": False,
}

SPACE: Mapping[str, object] = {
    "title": "mapping, path of a YAML file or module:function",
    "anyOf": [
        {
            "type": "object",
            "propertyNames": {"minLength": 1},
            "additionalProperties": {
                "anyOf": [
                    _RANGE,
                    _CATEGORICAL,
                    _WANDB,
                    _CONSTANT,
                    {"title": "list of values", "type": "array", "items": _SCALAR, "minItems": 1},
                    {"title": "constant", **_SCALAR},
                ]
            },
        },
        {"type": "string", "pattern": r"(\.ya?ml|^[^:\s]+:[^:\s]+)$"},
    ],
}
"""Possible values of `search_space` in a study file."""
