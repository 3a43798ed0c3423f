"""The keys of study.yaml, as its schema explains them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import cast

from tuner.config.schema.json_schema import Json, JsonObject
from tuner.search_spaces.flow import flow

#: Precedes the meaning of an absent key, at the end of a description.
_DEFAULT = " Default: "
#: Stands for a name that the user chooses.
_ANY = "NAME"
_TYPES = {
    "string": "text",
    "integer": "whole number",
    "number": "number",
    "boolean": "true or false",
    "array": "list",
    "object": "mapping",
}
_BOUNDS = {
    "minimum": "at least {}",
    "maximum": "at most {}",
    "exclusiveMinimum": "above {}",
    "exclusiveMaximum": "below {}",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Key:
    """One key of study.yaml."""

    #: Names from the top of the file; `NAME` is a placeholder for any.
    path: tuple[str, ...]
    schema: JsonObject
    is_required: bool

    @property
    def dotted(self) -> str:
        """The key as messages name it, such as `trial.timeout`."""
        return ".".join(self.path)

    @property
    def description(self) -> str:
        """The purpose of the key, and the meaning of an absent one if that is no fixed value."""
        return str(self.schema["description"])

    @property
    def meaning(self) -> str:
        """The purpose of the key."""
        return self.description.partition(_DEFAULT)[0]

    @property
    def type_in_words(self) -> str:
        """Its possible values, in words."""
        return _type_in_words(self.schema)

    @property
    def default(self) -> str:
        """The meaning of an absent key."""
        if "default" in self.schema:
            return f"`{flow(self.schema['default'])}`"
        return self.description.partition(_DEFAULT)[2].removesuffix(".") or "not set"

    @property
    def examples(self) -> list[Json]:
        """Values that it may have."""
        return cast("list[Json]", self.schema["examples"])


def all_keys(schema: Mapping[str, Json]) -> Iterator[Key]:
    """The keys that a schema describes, in order; nested keys follow their parent."""
    return _keys(schema, ())


def _keys(schema: Mapping[str, Json], path: tuple[str, ...]) -> Iterator[Key]:
    found: dict[str, Key] = {}
    for variant in _variants(schema):
        required = cast("list[str]", variant.get("required", []))
        for name, body in _mapping(variant.get("properties", {})).items():
            if "description" in _mapping(body):
                key = Key(path=(*path, name), schema=_mapping(body), is_required=name in required)
                found[name] = _merged(found[name], key) if name in found else key
    for key in found.values():
        yield key
        yield from _keys(key.schema, key.path)
    for variant in _variants(schema):
        if isinstance(others := variant.get("additionalProperties"), dict):
            yield from _keys(others, (*path, _ANY))


def _variants(schema: Mapping[str, Json]) -> list[Mapping[str, Json]]:
    """The schema and its alternatives."""
    return [schema, *map(_mapping, cast("list[Json]", schema.get("anyOf", [])))]


def _merged(first: Key, second: Key) -> Key:
    """One key of two alternatives: required only if it is in both, with the choices of both."""
    choices = [*_choices(first.schema), *_choices(second.schema)]
    schema = {**first.schema, "enum": [*dict.fromkeys(choices)]} if choices else first.schema
    is_required = first.is_required and second.is_required
    return Key(path=first.path, schema=cast(JsonObject, schema), is_required=is_required)


def _choices(schema: JsonObject) -> list[str]:
    return [each for each in cast("list[str | None]", schema.get("enum", [])) if each is not None]


def _type_in_words(schema: JsonObject) -> str:
    if "title" in schema:
        return str(schema["title"])
    if choices := _choices(schema):
        return " or ".join(f"`{each}`" for each in choices)
    kinds = schema["type"] if isinstance(schema["type"], list) else [schema["type"]]
    words = [_TYPES[str(kind)] for kind in kinds if kind != "null"]
    bounds = [text.format(schema[key]) for key, text in _BOUNDS.items() if key in schema]
    return ", ".join([" or ".join(words), *bounds])


def _mapping(value: Json) -> JsonObject:
    assert isinstance(value, dict), value
    return value
