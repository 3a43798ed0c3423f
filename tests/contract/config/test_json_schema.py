"""The JSON Schema of study.yaml and the tuner agree: editors refuse nothing that the tuner accepts.

What only the tuner can find, such as a rule between two keys, is listed by name.
"""

from __future__ import annotations

import copy
import itertools
import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from jsonschema import Draft7Validator
from typer.testing import CliRunner

from docs.generate.__main__ import schema
from tests.unit.config.mistakes import test_mistakes, test_trial_mistakes
from tests.unit.config.study_mutations import SEEDS, spoilt_values
from tests.unit.config.test_fuzz import N_EXAMPLES
from tests.unit.config.wrong_values import RAW
from tests.unit.search_spaces import test_schema, test_shorthands
from tuner.cli.main import app
from tuner.config.schema.json_schema import schema_path, shipped_schema
from tuner.config.schema.reference import all_keys
from tuner.config.schema.template import schema_line, study_template
from tuner.config.study import _KEYS, Source, validate_study
from tuner.errors import ConfigError
from tuner.search_spaces.strict_yaml import YamlError, read_yaml

ROOT = Path(__file__).parents[3]
SCHEMA = shipped_schema()
VALIDATOR = Draft7Validator(SCHEMA)
BASE = {"study": "s", "trial": {"function": "m:f"}}

#: Mistakes that no schema of a single key finds, with what it would have to know.
ONLY_THE_TUNER = {
    "other keys": {
        "metrics-of-a-function",
        "two-kinds",
        "gpu-type-of-cpus",
        "max-gpus-of-cpus",
        "completes-without-timeout",
        "best-of-several-objectives",
        "parallel-one-gpu",
        "parallel-without-resources",
        "widen-shares",
        "widen-learned-shares",
        "widen-one-process",
        "prior-sampler",
        "transfer-of-itself",
        "transfer-with-a-sampler-of-its-own",
        "confirm-of-several-objectives",
        "profile-of-several-objectives",
        "profile-backwards",
        "pattern-without-objective",
        "pattern-with-another-group",
    },
    "the search space": {
        "space",
        "width-by-unknown-parameter",
        "width-by-parameter-drawn-later",
        "width-by-conditional-parameter",
        "width-by-unfit-parameter",
        "prior-of-nothing",
        "prior-outside",
        "prior-in-quotes",
        "prior-no-choice",
        "prior-constant",
        "place-near",
        "place-far",
        "place-without-space",
        "conditional-place-apart-from-its-flag",
    },
    "the meaning of a text": {
        "pattern",
        "lone-brace",
        "env-of-the-tuner",
        "usage-too-seldom",
        "max-log-too-small",
        "malformed",
        "one-slash",
        "no-slash",
        "postgres",
        "unset-variable",
        "memory",
    },
}
#: In a search space: comparisons of two numbers, and of values with those of another parameter.
ONLY_THE_PARSER = {
    "no-type",
    "low-above-high",
    "low-equals-high",
    "log-from-0",
    "int-log-below-0",
    "log-and-step",
    "step-0",
    "step-too-wide",
    "infinite",
    "fraction-for-int",
    "choice-twice",
    "when-unknown",
    "when-later",
    "when-itself",
    "when-impossible-choice",
    "when-impossible-int",
    "when-continuous",
    "when-constant",
}


def refusals(document: object) -> list[str]:
    return [f"{each.json_path}: {each.message[:200]}" for each in VALIDATOR.iter_errors(document)]


def is_accepted_by_the_tuner(document: dict[str, Any], folder: Path) -> bool:
    source = Source(path=folder / "study.yaml", file="study.yaml", text="")
    environ = {"DB_PASSWORD": "x"}
    try:
        validate_study(copy.deepcopy(document), source=source, environ=environ, origins={})
    except ConfigError:
        return False
    return True


def is_json(value: object) -> bool:
    """Whether an editor can have such a value; YAML knows dates and sets besides."""
    if isinstance(value, dict):
        return all(map(is_json, value.values()))
    if isinstance(value, list):
        return all(map(is_json, value))
    return value is None or isinstance(value, str | int | float | bool)


def test_shipped_schema_is_the_generated_one() -> None:
    assert schema_path().read_text() == schema(), "run: make pages"


def test_schema_is_one() -> None:
    Draft7Validator.check_schema(SCHEMA)
    assert "$ref" not in json.dumps(SCHEMA)


def test_every_key_of_the_models_is_explained() -> None:
    explained = {key.dotted: key for key in all_keys(SCHEMA)}
    for parent, keys in _KEYS.items():
        names = {f"{parent}.{key}" if parent else key for key in keys}
        assert names - explained.keys() == set()
    for key in explained.values():
        assert key.description.endswith("."), key.dotted
        assert key.examples, key.dotted


@pytest.mark.parametrize("key", list(all_keys(SCHEMA)), ids=lambda key: key.dotted)
def test_default_of_a_key_is_what_an_absent_one_means(key, tmp_path: Path) -> None:
    if "default" not in key.schema or "NAME" in key.path:
        return
    source = Source(path=tmp_path / "study.yaml", file="study.yaml", text="")
    parent: dict[str, Any] = {"resources": {"gpus": 1}} if key.path[0] == "trial" else {}
    with_it = with_value(key.path, key.schema["default"], parent)
    without = with_value(key.path, "absent", parent)
    _at(without, key.path[:-1]).pop(key.path[-1])
    read = [
        validate_study(each, source=source, environ={}, origins={}) for each in (with_it, without)
    ]
    if key.path[0] != "pruner":  # An absent pruner is None, which means auto.
        assert read[0] == read[1]


def test_no_default_of_the_models_is_left_out() -> None:
    shown = {key.dotted for key in all_keys(SCHEMA) if "default" in key.schema}
    assert {
        "trial.retries",
        "trial.stop_grace",
        "trial.max_log",
        "checkpoints.keep",
        "checkpoints.newest",
        "usage.every",
        "confirm.top",
        "confirm.seeds",
        "widen",
        "devices",
        "sampler",
        "pruner",
        "objectives",
    } <= shown


FILES = [ROOT / "study.yaml", *sorted(ROOT.glob("examples/*/*.yaml"))]


@pytest.mark.parametrize("file", FILES, ids=lambda file: str(file.relative_to(ROOT)))
def test_study_of_the_repository_is_accepted(file: Path) -> None:
    assert refusals(read_yaml(file.read_text())) == []


@pytest.mark.parametrize("file", sorted(ROOT.glob("search_spaces/*.yaml")), ids=lambda f: f.stem)
def test_ready_made_space_is_accepted(file: Path) -> None:
    assert refusals({**BASE, "search_space": read_yaml(file.read_text())}) == []


def documented() -> Iterator[object]:
    for page in [ROOT / "README.md", *sorted(ROOT.glob("docs/*.md"))]:
        blocks = re.findall(r"```yaml\n(.*?)```", page.read_text(), re.DOTALL)
        for number, block in enumerate(blocks):
            yield pytest.param(read_yaml(block), id=f"{page.stem}-{number}")


@pytest.mark.parametrize("part", list(documented()))
def test_documented_part_of_a_study_is_accepted(part: dict[str, Any]) -> None:
    whole = {**BASE, **part}
    trial = whole["trial"]
    whole["trial"] = trial if "command" in trial else {"function": "m:f", **trial}
    assert refusals(whole) == []


@pytest.mark.parametrize("text", SEEDS)
def test_seed_of_the_fuzz_tests_is_accepted(text: str) -> None:
    assert refusals(read_yaml(text)) == []


@pytest.mark.parametrize(("text", "distribution"), test_schema.PARAMETERS)
def test_parameter_is_accepted(text: str, distribution: object) -> None:
    assert refusals({**BASE, "search_space": {"x": read_yaml(text)}}) == []


@pytest.mark.parametrize("text", [text for text, _ in test_shorthands.TAKEN])
def test_short_form_is_accepted(text: str) -> None:
    assert refusals({**BASE, "search_space": read_yaml(text)}) == []


@pytest.mark.parametrize("text", [text for text, _ in test_shorthands.REFUSED])
def test_short_form_that_the_schema_refuses_is_refused_by_the_tuner(text: str) -> None:
    assert bool(refusals({**BASE, "search_space": read_yaml(text)})) == (
        text not in test_shorthands.OF_RIGHT_SHAPE
    )


@pytest.mark.parametrize(
    "document",
    [
        pytest.param({**BASE, "sampler": "tpe", "pruner": "asha"}, id="names-alone"),
        pytest.param({**BASE, "sampler": "TPESampler", "pruner": "of_a_plugin"}, id="other-names"),
        pytest.param({**BASE, "sampler": None, "budget": None, "devices": None}, id="empty-keys"),
        pytest.param({**BASE, "trial": {"function": None, "command": ["a"]}}, id="empty-function"),
        pytest.param({**BASE, "transfer": "small", "search_space": "a.b:c"}, id="short-forms"),
        pytest.param({**BASE, "storage": "${URL}"}, id="url-from-the-environment"),
    ],
)
def test_other_forms_are_accepted(document: dict[str, Any]) -> None:
    assert refusals(document) == []


TABLES = (
    test_mistakes.KEYS,
    test_mistakes.VALUES,
    test_trial_mistakes.TRIAL,
    test_mistakes.STORAGE,
)
BROKEN = {each.id: each.values[0] for table in TABLES for each in table}
BROKEN_SPACES = {each.id: each.values[0] for each in test_schema.MISTAKES}


@pytest.mark.parametrize("name", BROKEN)
def test_mistake_of_shape_is_refused(name: str) -> None:
    found = refusals(read_yaml(BROKEN[name]))
    assert bool(found) != (name in set.union(*ONLY_THE_TUNER.values())), found


@pytest.mark.parametrize("name", BROKEN_SPACES)
def test_mistake_of_shape_in_a_space_is_refused(name: str) -> None:
    found = refusals({**BASE, "search_space": read_yaml(BROKEN_SPACES[name])})
    assert bool(found) != (name in ONLY_THE_PARSER), found


def test_lists_of_what_is_left_to_the_tuner_name_tests() -> None:
    assert set.union(*ONLY_THE_TUNER.values()) <= BROKEN.keys()
    assert BROKEN_SPACES.keys() >= ONLY_THE_PARSER


def raw_values() -> list[Any]:
    values = []
    for raw in RAW:
        try:
            value = read_yaml(raw)
        except YamlError:
            continue
        if is_json(value):
            values.append(value)
    return values


VALUES = raw_values()
#: What a key of a parameter may stand beside.
PARENTS: tuple[dict[str, Any], ...] = (
    {},
    {"type": "float", "low": 1, "high": 2},
    {"type": "categorical"},
    {"distribution": "q_uniform", "min": 1, "max": 2},
    {"distribution": "log_uniform", "max": 0},
    {"distribution": "categorical"},
    {"min": 0.5},
)


@pytest.mark.slow
@pytest.mark.parametrize("key", list(all_keys(SCHEMA)), ids=lambda key: key.dotted)
def test_value_that_the_schema_refuses_is_refused_by_the_tuner(key, tmp_path: Path) -> None:
    assert len(VALUES) > 150
    parents = PARENTS if "NAME" in key.path else PARENTS[:1]
    for value, parent in zip(VALUES, itertools.cycle(parents)):
        check_refused_by_both(key.path, value, parent, tmp_path)


#: By day each value of a parameter's key stands beside one of the others.
@pytest.mark.nightly
@pytest.mark.parametrize(
    "key", [key for key in all_keys(SCHEMA) if "NAME" in key.path], ids=lambda key: key.dotted
)
def test_value_is_refused_by_the_tuner_beside_each_other_key(key, tmp_path: Path) -> None:
    for value, parent in itertools.product(VALUES, PARENTS):
        check_refused_by_both(key.path, value, parent, tmp_path)


def check_refused_by_both(
    path: tuple[str, ...], value: object, parent: Mapping[str, object], folder: Path
) -> None:
    document = with_value(path, copy.deepcopy(value), parent)
    if refused := refusals(document):
        assert not is_accepted_by_the_tuner(document, folder), refused


def with_value(path: tuple[str, ...], value: object, parent: Mapping[str, object]) -> Any:
    """A study file with a value at a key, beside what else its mapping needs."""
    document: Any = copy.deepcopy(BASE)
    if "command" in path or "metrics" in path:
        document["trial"] = {"command": ["a"]}
    if path[0] == "trial":
        document["trial"] |= {} if "resources" in path else parent
    if path[0] == "engine":
        document["engine"] = {"name": "slurm"}
    mapping = _at(document, path[:-1])
    if "NAME" in path:
        mapping.update(parent)
    mapping[path[-1]] = value
    return document


def _at(document: Any, path: tuple[str, ...]) -> dict[str, Any]:
    for name in path:
        document = document.setdefault(name, {})
    return document


@pytest.mark.slow
@settings(
    max_examples=N_EXAMPLES,
    deadline=None,
    derandomize=True,
    database=None,
    suppress_health_check=list(HealthCheck),
)
@given(content=spoilt_values())
def test_spoilt_file_that_the_schema_refuses_is_refused_by_the_tuner(content: bytes) -> None:
    try:
        document = read_yaml(content.decode())
    except (YamlError, UnicodeDecodeError):
        return
    if is_json(document) and isinstance(document, dict) and (refused := refusals(document)):
        assert not is_accepted_by_the_tuner(document, ROOT), refused


def test_file_of_init_names_the_schema_of_the_installation(tmp_path: Path) -> None:
    first, _, rest = study_template(tmp_path).partition("\n")
    address = first.removeprefix("# yaml-language-server: $schema=")
    assert address == schema_path().as_uri()
    assert "#@" not in rest
    assert refusals(read_yaml(rest)) == []


def test_schema_inside_of_the_folder_is_named_by_a_relative_path() -> None:
    line = schema_line(ROOT)
    assert line == "# yaml-language-server: $schema=tuner/config/schema/study.schema.json\n"


def test_schema_is_printed() -> None:
    ended = CliRunner().invoke(app, ["schema"])
    assert ended.exit_code == 0
    assert json.loads(ended.stdout) == SCHEMA
