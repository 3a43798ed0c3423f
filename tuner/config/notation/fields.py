"""Value types with their own notation in study.yaml, each with its JSON Schema.

The schemas allow at least what the parsers allow: an editor must not refuse what the tuner accepts.
If a pattern can express the parser's rule exactly, it does.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, TypeAlias

from pydantic import BeforeValidator, PlainValidator, Strict, WithJsonSchema

from tuner.config import rules
from tuner.config.notation.duration import parse_duration
from tuner.config.notation.size import parse_size


def text(pattern: str, wanted: str) -> dict[str, object]:
    """The schema of a text, with the message that editors show for an invalid one.

    Args:
        pattern: A regular expression valid in JavaScript and Python.
        wanted: The required form, in words.
    """
    return {"type": "string", "pattern": pattern, "patternErrorMessage": f"Must be {wanted}."}


_ABOVE_0 = {"type": "number", "exclusiveMinimum": 0}
#: Without two runs of blanks next to each other, which would take a time that grows with a power of
#: their number.
_DURATION_TEXT = (
    r"^\s*(?=\d)(\d+(\.\d+)?[dD]\s*)?(\d+(\.\d+)?[hH]\s*)?(\d+(\.\d+)?[mM]\s*)?"
    r"(\d+(\.\d+)?[sS]?\s*)?$"
)
DURATION = {
    "title": "duration",
    "anyOf": [text(_DURATION_TEXT, "a duration, such as 90s, 30m, 1h30m or 2d"), _ABOVE_0],
}
SIZE = {
    "title": "size",
    "anyOf": [
        text(
            r"^\s*\d+(\.\d+)?(\s*[kKmMgGtT][iI]?[bB]?|\s*[bB])?\s*$",
            "a size, such as 8GiB or 512MiB",
        ),
        {"type": "number", "minimum": 1},
    ],
}
ENERGY = {
    "title": "energy",
    "anyOf": [text(r"^\s*\d+(\.\d+)?\s*[kM]?Wh\s*$", "an energy, such as 5kWh or 800Wh"), _ABOVE_0],
}
#: A list of words that starts with a program.
ARGV = {
    "title": "list of words",
    "type": "array",
    "items": {"type": ["string", "number", "boolean"]},
    "minItems": 1,
}

WholeNumber: TypeAlias = Annotated[int, Strict()]
PositiveNumber: TypeAlias = Annotated[
    float, PlainValidator(rules.positive_number), WithJsonSchema(_ABOVE_0)
]
Duration: TypeAlias = Annotated[float, PlainValidator(parse_duration), WithJsonSchema(DURATION)]
Size: TypeAlias = Annotated[int, PlainValidator(parse_size), WithJsonSchema(SIZE)]
Command: TypeAlias = Annotated[
    tuple[str, ...], BeforeValidator(rules.read_command), WithJsonSchema(ARGV)
]
Hook: TypeAlias = Annotated[tuple[str, ...], BeforeValidator(rules.read_hook), WithJsonSchema(ARGV)]
Environment: TypeAlias = Annotated[
    Mapping[str, str],
    BeforeValidator(rules.read_env),
    WithJsonSchema(
        {
            "type": "object",
            "propertyNames": {"pattern": r"^[^\W\d]\w*$"},
            "additionalProperties": {"type": ["string", "number", "boolean"]},
        }
    ),
]


def one_or_several(what: str) -> dict[str, object]:
    """The schema of one name or a list of names.

    Args:
        what: What is named, in the plural.
    """
    names = {"type": "array", "items": {"type": "string"}, "minItems": 1}
    return {"title": f"name or list of {what}", "anyOf": [{"type": "string"}, names]}
