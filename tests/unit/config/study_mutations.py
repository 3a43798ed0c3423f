"""Study files that somebody has spoilt: keys dropped, renamed, doubled, and values of any kind."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator, MutableMapping, MutableSequence
from pathlib import Path
from typing import Any, TypeAlias

import yaml
from hypothesis import strategies as st

from tests.unit.config.wrong_values import RAW, RUINS

ROOT = Path(__file__).parents[3]
#: Every key that a study file can have, those of other seeds besides.
EVERY_KEY = """
study: every-key
storage: sqlite:///every.db
objectives: {accuracy: maximize}
trial:
  command: [python, -c, pass, "--lr={lr}", "--momentum={momentum}"]
  resources: {cpus: 1}
  timeout: 1h30m
  retries: 2
  stop_grace: 5s
  max_log: 2MiB
  metrics: {pattern: 'step (?P<step>\\d+) accuracy (?P<accuracy>\\S+)'}
  env: {NAME: "trial-{trial_number}", THREADS: 2}
search_space:
  lr: {type: float, low: 1e-4, high: 1.0e-1, log: true}
  drop: {type: float, low: 0.0, high: 0.5, step: 0.1}
  layers: {type: int, low: 1, high: 9, step: 2}
  optimizer: {type: categorical, choices: [sgd, adamw, 2, 2.5, true, null]}
  momentum: {type: float, low: 0.0, high: 0.99, when: {optimizer: [sgd]}}
  epochs: 20
  nested: {value: {a: [1, {b: c}]}}
  sizes: [1, 2]
  warmup: {min: 0.0, max: 0.5}
  heads: {distribution: int_uniform, min: 1, max: 8}
sampler: {name: tpe, seed: 0, n_startup_trials: 5, multivariate: true}
pruner: {name: percentile, percentile: 25.0, n_startup_trials: 5}
devices: cpu:2
budget: {trials: 64, time: 30m, device_hours: 2}
checkpoints: {keep: best 2, newest: 3, max_disk: 1GiB}
on_finish: [sh, -c, cat]
on_best: [python, -c, pass]
on_failure: [/bin/sh]
on_alert: [/bin/sh]
"""
BY_PARAMETER = """
study: by-parameter
objectives: {a: maximize, b: minimize}
trial:
  function: m:train
  resources: {gpus: "{n}", gpu_type: [H200], min_memory: 4GiB}
  parallel: ddp
search_space: {n: {type: int, low: 1, high: 3}, x: {type: float, low: 0, high: 1, step: 0.25}}
sampler: {name: grid, search_space: {n: [1, 2], x: [0, 0.5]}}
devices: [0, GPU-1]
max_gpus: 3
priority: 70
"""
NESTED_SAMPLER = """
study: nested
trial: {function: "m:train", resources: {memory: 512MiB}, profile: {trial: best, steps: [1, 2]}}
search_space: {n: {type: int, low: 1, high: 3}, kind: {type: categorical, choices: [a, b]}}
sampler:
  name: partial_fixed
  fixed_params: {n: 1}
  base_sampler: {name: nsgaii, population_size: 4}
pruner: {name: patient, wrapped_pruner: {name: asha, min_resource: 1}, patience: 2}
track: {tensorboard: runs/, other: {file: a, n: 3}}
budget: {time: 90}
engine:
  name: ssh
  nodes: 2..16
  devices: 4
  cpus: 8
  memory: 120GiB
  time: 4h
  idle: 10m
  setup: [module load cuda]
  slurm: {partition: gpu, qos: normal, account: vision, options: ["--exclusive"]}
  kubernetes:
    {namespace: a, image: b,
     queue: c, priority: d, secret: s, secret_folder: /f, template: pod.yaml}
  ray:
    {address: "head:6379", autoscaling: true, resources: {tpu: 1}, python: python3, kuberay: true}
  ssh: {hosts: [gpu01, me@gpu02], copy_to: ~/tuner, python: python3, options: [-p, "22"]}
"""


def _seeds() -> list[str]:
    files = [ROOT / "study.yaml", ROOT / "tuner/config/schema/study_template.yaml"]
    files += sorted(ROOT.glob("examples/*/*.yaml"))
    return [EVERY_KEY, BY_PARAMETER, NESTED_SAMPLER, *(file.read_text() for file in files)]


SEEDS = _seeds()
#: With all that UTF-8 has no place for.
_TEXT = st.text(st.characters(exclude_categories=()), max_size=12).map(json.dumps)
_NUMBER = st.one_of(st.integers(), st.floats()).map(repr)
VALUES = st.one_of(st.sampled_from(RAW), st.sampled_from(RAW), _TEXT, _NUMBER)

_DOCUMENTS: list[dict[str, Any]] = [yaml.safe_load(text) for text in SEEDS]
#: Values of the kind that a key has, and wrong in what they say.
_FITTING = {
    "storage": [raw for raw in RAW if "://" in raw],
    "sampler": [raw for raw in RAW if raw.startswith("{name") or raw.isalpha()],
    "pruner": [raw for raw in RAW if raw.startswith("{name") or raw.isalpha()],
    "search_space": [raw for raw in RAW if raw.startswith("{type")],
}

Container: TypeAlias = MutableMapping[str, Any] | MutableSequence[Any]


class Snippet(str):
    """YAML that stands in the file as it is."""


def _containers(value: object) -> Iterator[Container]:
    if isinstance(value, dict | list) and value:
        yield value
        for each in value.values() if isinstance(value, dict) else value:
            yield from _containers(each)


def _flow(value: object) -> str:
    """As YAML on one line, with snippets as they stand."""
    if isinstance(value, Snippet):
        return str(value)
    if isinstance(value, dict):
        pairs = (f"{_key(key)}: {_flow(each)}" for key, each in value.items())
        return "{" + ", ".join(pairs) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(_flow, value)) + "]"
    return json.dumps(value)


def _key(key: str) -> str:
    return str(key) if isinstance(key, Snippet) else json.dumps(key)


def _render(document: dict[str, Any]) -> str:
    return "".join(f"{_key(key)}: {_flow(each)}\n" for key, each in document.items())


def _change_key(draw: st.DrawFn, mapping: MutableMapping[str, Any], keys: list[str]) -> None:
    key = draw(st.sampled_from(sorted(mapping, key=str)))
    match draw(st.sampled_from(("drop", "rename", "double", "move"))):
        case "drop":
            del mapping[key]
        case "rename":
            new = draw(st.one_of(st.sampled_from(keys), VALUES.map(Snippet)))
            mapping[new] = mapping.pop(key)
        case "double":
            # A `Snippet` is no key that the mapping has already, but reads as the same.
            mapping[Snippet(f" {json.dumps(key)}")] = mapping[key]
        case _:
            mapping[draw(st.sampled_from(keys))] = mapping[key]


def _change(draw: st.DrawFn, document: dict[str, Any], keys: list[str]) -> None:
    place = draw(st.sampled_from([document, *_containers(document)]))
    if isinstance(place, MutableMapping):
        if place and draw(st.booleans()):
            _change_key(draw, place, keys)
            return
        key = draw(st.sampled_from([*map(str, place), draw(st.sampled_from(keys))]))
        place[key] = Snippet(draw(VALUES))
    else:
        index = draw(st.integers(0, max(0, len(place) - 1)))
        place[index : index + draw(st.integers(0, 1))] = [Snippet(draw(VALUES))]


def _misjudge(draw: st.DrawFn, document: dict[str, Any]) -> None:
    key = draw(st.sampled_from(sorted(_FITTING)))
    value = Snippet(draw(st.sampled_from(_FITTING[key])))
    if key != "search_space":
        document[key] = value
    elif isinstance(document.get(key), dict):
        document[key][draw(st.sampled_from(["new", *map(str, document[key])]))] = value


@st.composite
def spoilt_values(draw: st.DrawFn) -> bytes:
    """A study file with wrong keys and values; the YAML itself is mostly right."""
    document = copy.deepcopy(draw(st.sampled_from(_DOCUMENTS)))
    keys = sorted({key for each in _containers(document) if isinstance(each, dict) for key in each})
    for _ in range(draw(st.integers(1, 3))):
        if draw(st.booleans()):
            _change(draw, document, keys)
        else:
            _misjudge(draw, document)
    return _render(document).encode("utf-8", "surrogatepass")


@st.composite
def spoilt_text(draw: st.DrawFn) -> bytes:
    """A study file whose text is damaged."""
    text = draw(st.sampled_from(SEEDS))
    for _ in range(draw(st.integers(1, 3))):
        begin = draw(st.integers(0, len(text)))
        end = begin + draw(st.sampled_from((0, 0, 1, 2, 10, 200)))
        text = text[:begin] + draw(st.one_of(st.sampled_from(RUINS), VALUES)) + text[end:]
    content = text.encode("utf-8", "surrogatepass")
    if draw(st.integers(0, 9)) == 0:
        begin = draw(st.integers(0, len(content)))
        content = content[:begin] + draw(st.binary(min_size=1, max_size=8)) + content[begin:]
    return draw(st.sampled_from((b"", b"", b"", b"\xef\xbb\xbf", b"\xff\xfe"))) + content


spoilt = st.one_of(spoilt_values(), spoilt_values(), spoilt_text())
