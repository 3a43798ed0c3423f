"""The JSON Schema of study.yaml for editors, generated from the models.

The schema has no references, because editors treat keys next to one differently. It allows every
file that the tuner accepts; most rules between keys are checked only by the tuner.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from importlib import resources
from pathlib import Path
from typing import TypeAlias, cast

from pydantic.json_schema import GenerateJsonSchema, JsonSchemaValue

from tuner.config import rules
from tuner.config.sections.search import AUTO
from tuner.config.study import StudyConfig

Json: TypeAlias = "bool | int | float | str | list[Json] | dict[str, Json] | None"
JsonObject: TypeAlias = dict[str, Json]

FILE_NAME = "study.schema.json"
#: The version of JSON Schema that all editors support.
_DIALECT = "http://json-schema.org/draft-07/schema#"
_NULL: JsonObject = {"type": "null"}
_SEED: JsonObject = {
    "type": ["integer", "null"],
    "minimum": 0,
    "maximum": rules.MAX_SEED,
    "description": "Seed of the study. With a seed, one device and one dispatcher, the study "
    "produces the same trials again.",
    "examples": [0],
}
#: A trial has either a function or a command.
_PROGRAMS: list[Json] = [
    {"required": ["function"], "properties": {"function": {"type": "string"}, "command": _NULL}},
    {"required": ["command"], "properties": {"command": {"type": "array"}, "function": _NULL}},
]


class _Generator(GenerateJsonSchema):
    def field_title_should_be_set(self, schema: object) -> bool:
        """Never: the capitalized key explains nothing."""
        return False

    def sort(self, value: JsonSchemaValue, parent_key: str | None = None) -> JsonSchemaValue:
        """Leaves keys in the order of the models and of the examples."""
        return value


def study_schema(*, samplers: Sequence[str], pruners: Sequence[str]) -> JsonObject:
    """Generates the schema.

    Args:
        samplers: Names that editors offer. Others are allowed, because plug-ins add samplers.
        pruners: Names that editors offer, of pruners.
    """
    generated = cast(JsonObject, StudyConfig.model_json_schema(schema_generator=_Generator))
    definitions = _mapping(generated.pop("$defs"))
    definitions["SamplerConfig"] = _named("sampler", samplers, example="tpe", seed=_SEED)
    definitions["PrunerConfig"] = _named("pruner", pruners, example="asha")
    definitions["TrialConfig"] = {**_mapping(definitions["TrialConfig"]), "anyOf": _PROGRAMS}
    schema = _mapping(_resolved(generated, definitions))
    required = cast("list[Json]", schema["required"])
    keys: JsonObject = {
        # An empty key at the top is read as an absent one.
        key: value if key in required else _or_null(_mapping(value))
        for key, value in _mapping(schema["properties"]).items()
    }
    return {
        "$schema": _DIALECT,
        "title": "study.yaml",
        "description": "A study of the tuner: what to tune, how to judge it, when to end.",
        "type": "object",
        "properties": keys,
        "required": required,
        "additionalProperties": False,
    }


def shipped_schema() -> JsonObject:
    """The schema in the package."""
    return _mapping(json.loads(schema_path().read_text(encoding="utf-8")))


def schema_path() -> Path:
    """The schema's file in this installation, for editors."""
    return Path(str(resources.files("tuner.config.schema").joinpath(FILE_NAME)))


def schema_text(schema: Mapping[str, Json]) -> str:
    """The schema as its file has it."""
    return json.dumps(schema, indent=1, ensure_ascii=False) + "\n"


def _named(kind: str, names: Sequence[str], *, example: str, **keys: Json) -> JsonObject:
    """A name, or a mapping with a name and arguments."""
    name: list[Json] = [{"enum": [AUTO, *names]}, {"type": "string"}]
    explained: JsonObject = {
        "title": f"name of a {kind}",
        "anyOf": name,
        "default": AUTO,
        "description": f"Name of the {kind}. The other keys of the mapping are its arguments.",
        "examples": [example],
    }
    mapping: JsonObject = {"type": "object", "properties": {"name": explained, **keys}}
    return {"title": "name or mapping", "anyOf": [*name, mapping]}


def _resolved(value: Json, definitions: Mapping[str, Json]) -> Json:
    """The schema with references resolved, and without defaults that only mean "absent"."""
    if isinstance(value, list):
        return [_resolved(each, definitions) for each in value]
    if not isinstance(value, dict):
        return value
    whole = {key: each for key, each in value.items() if key != "$ref"}
    if isinstance(reference := value.get("$ref"), str):
        whole = {**_definition(reference, definitions), **whole}
    resolved = {
        key: _resolved(each, definitions)
        for key, each in whole.items()
        if not (key == "default" and (each is None or each == ""))
    }
    if "`" in str(resolved.get("description", "")):
        # Editors show a description as it is written, and this one formatted.
        resolved["markdownDescription"] = resolved["description"]
    match resolved.get("anyOf"):
        case [dict(only), {"type": "null"}]:
            return {**_or_null(only), **{k: v for k, v in resolved.items() if k != "anyOf"}}
        case _:
            return resolved


def _definition(reference: str, definitions: Mapping[str, Json]) -> JsonObject:
    """The schema of a reference, without the name and docstring of a Python class."""
    named = _mapping(definitions[reference.rpartition("/")[2]])
    is_class = "description" in named
    return {k: v for k, v in named.items() if not (is_class and k in ("title", "description"))}


def _or_null(schema: JsonObject) -> JsonObject:
    """The same, or null."""
    if "anyOf" in schema:
        return {**schema, "anyOf": [*cast("list[Json]", schema["anyOf"]), _NULL]}
    if "enum" in schema:
        return {"enum": [*cast("list[Json]", schema["enum"]), None]}
    kinds = schema["type"] if isinstance(schema["type"], list) else [schema["type"]]
    return {**schema, "type": [*dict.fromkeys([*cast("list[str]", kinds), "null"])]}


def _mapping(value: Json) -> JsonObject:
    assert isinstance(value, dict), value
    return value
