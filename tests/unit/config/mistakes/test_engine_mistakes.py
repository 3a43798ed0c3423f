"""Mistakes in `engine` of a study file."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.unit.config.mistakes.study_texts import SMALL
from tuner.config.sections.engine import EngineName, NodeRange
from tuner.config.study_file import load_study_file
from tuner.errors import ConfigError

NODES = "but must be a number of nodes, such as 4, or the least and the most, such as 2..16."
MISTAKES = [
    pytest.param(
        "engine: slurm",
        "engine is 'slurm', but must be a mapping, with one `key: value` per line. Write engine: "
        "{name: slurm}",
        id="name-alone",
    ),
    pytest.param(
        "engine: {name: slrum}",
        "engine.name is 'slrum', but must be slurm, kubernetes, ray or ssh. Did you mean 'slurm'?",
        id="unknown",
    ),
    pytest.param(
        "engine: {nodes: 2}",
        "engine.name is missing. Name the engine: slurm, kubernetes, ray or ssh.",
        id="no-name",
    ),
    pytest.param(
        "engine: {name: slurm, nodes: many}", f"engine.nodes is 'many', {NODES}", id="nodes"
    ),
    pytest.param(
        "engine: {name: slurm, nodes: 4..2}",
        "engine.nodes is '4..2', but must be with the smaller number first, such as 2..16.",
        id="nodes-backwards",
    ),
    pytest.param(
        "engine: {name: slurm, nodes: 0}",
        "engine.nodes is 0, but must be at least 1, such as 2..16.",
        id="no-node",
    ),
    pytest.param(
        "engine: {name: slurm, partition: gpu}",
        "unknown key 'engine.partition'. Did you mean 'engine.slurm.partition'?",
        id="key-of-slurm",
    ),
    pytest.param(
        'engine: {name: slurm, setup: ["a\\nb"]}',
        "engine.setup[0] is 'a\\nb', but must be one line of text.",
        id="two-lines",
    ),
    pytest.param(
        "engine: {name: ray, ray: {address: head.example}}",
        "engine.ray.address is 'head.example', but must be auto, or an address with a port, such "
        "as head.example:6379 or ray://head.example:10001.",
        id="address-without-port",
    ),
    pytest.param(
        "engine: {name: ray, ray: {resources: {tpu: 0}}}",
        "engine.ray.resources.tpu is 0, but must be a number above 0.",
        id="none-of-a-resource",
    ),
    pytest.param(
        "engine: {name: ssh, ssh: {hosts: [gpu01, -oProxyCommand=x]}}",
        "engine.ssh.hosts[1] is '-oProxyCommand=x', but must be a host as ssh takes it, such as "
        "gpu01 or me@gpu02.",
        id="host-that-is-an-option",
    ),
]


@pytest.mark.parametrize(("key", "message"), MISTAKES)
def test_mistake(key: str, message: str, tmp_path: Path) -> None:
    file = tmp_path / "study.yaml"
    file.write_text(f"{SMALL}{key}\n")
    with pytest.raises(ConfigError) as raised:
        load_study_file(file, environ={})
    assert str(raised.value) == f"{file}: {message}"


def test_a_name_is_an_engine(tmp_path: Path) -> None:
    file = tmp_path / "study.yaml"
    file.write_text(f"{SMALL}engine: {{name: slurm}}\n")
    engine = load_study_file(file, environ={}).engine
    assert engine is not None
    assert engine.name is EngineName.SLURM
    assert engine.nodes == NodeRange(least=1, most=1)
    assert engine.idle_s == 600
