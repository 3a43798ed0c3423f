"""A W&B sweep becomes a study that the tuner accepts; what is not carried over is named."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml

from tuner.config import StudyConfig, load_study_file
from tuner.config.proposals.proposal import study_text
from tuner.config.proposals.read import propose
from tuner.errors import ConfigError

SWEEP = """
program: train.py
name: first try
method: random
metric: {name: val/loss, goal: minimize}
run_cap: 40
parameters:
  lr: {distribution: log_uniform_values, min: 1e-5, max: 1e-1}
  layers: {min: 1, max: 4}
  flag: {min: 0, max: 1}
  dropout: {values: [0.1, 0.3]}
  epochs: {value: 5}
  batch_size: {values: [64]}
"""
NESTED = """
program: src/train.py
method: bayes
metric: {name: score, goal: maximize, target: 0.9}
entity: us
parameters:
  model:
    parameters:
      depth: {distribution: int_uniform, min: 2, max: 8}
      rate: {distribution: log_uniform, min: -7.0, max: -2.0}
  decay: {distribution: log_uniform, min: 0.0001, max: 0.01}
  noise: {distribution: normal, mu: 1.0, sigma: 0.25}
  batch: {distribution: q_log_uniform_values, min: 16, max: 128, q: 8}
  sizes: {values: [[1, 2], [3, 4]]}
  kind: {values: [a, b], probabilities: [0.2, 0.8]}
early_terminate: {type: hyperband, min_iter: 4, eta: 2, s: 3}
"""
COMMAND = """
method: grid
metric: {name: step, goal: maximize}
parameters:
  opt.lr: {values: [0.1, 0.01]}
  amp: {values: [true, false]}
command: ["${env}", "${interpreter}", -m, pkg.train, "+x={a}", "${args_no_boolean_flags}",
          "out=${envvar:HOME}"]
early_terminate: {type: hyperband, max_iter: 27, s: 2}
"""


def proposed(text: str, folder: Path) -> tuple[StudyConfig, tuple[str, ...], dict]:
    sweep = folder / "sweep.yaml"
    sweep.write_text(text)
    proposal = propose(sweep, folder)
    written = study_text(proposal, folder)
    (folder / "study.yaml").write_text(written)
    for note in proposal.notes:
        assert note.split()[0] in written
    return (
        load_study_file(folder / "study.yaml", environ={}),
        proposal.notes,
        yaml.safe_load(written),
    )


def has(notes: tuple[str, ...], *beginnings: str) -> bool:
    return all(any(note.startswith(each) for note in notes) for each in beginnings)


def test_sweep_becomes_a_study(tmp_path: Path) -> None:
    config, notes, written = proposed(SWEEP, tmp_path)
    assert written["search_space"] == {
        "lr": {"type": "float", "low": 1e-5, "high": 0.1, "log": True},
        "layers": {"type": "int", "low": 1, "high": 4},
        "flag": {"type": "int", "low": 0, "high": 1},
        "dropout": {"type": "categorical", "choices": [0.1, 0.3]},
        "epochs": 5,
        "batch_size": 64,
    }
    assert (config.study, config.budget.trials) == ("first-try", 40)
    assert (config.sampler.name, config.pruner.name) == ("random", "none")
    assert {name: each.value for name, each in config.objectives.items()} == {
        "val/loss": "minimize"
    }
    assert config.trial.command[:3] == ("python", "train.py", "--lr={lr}")
    assert len(config.trial.command) == 8
    assert has(notes, "What goes to wandb.log is not read.")
    assert len(notes) == 1


def test_what_has_no_counterpart_is_named(tmp_path: Path) -> None:
    config, notes, written = proposed(NESTED, tmp_path)
    space = written["search_space"]
    assert list(space) == ["model.depth", "model.rate", "decay", "noise", "batch", "kind"]
    assert 0.0009 < space["model.rate"]["low"] < 0.00092
    assert (space["decay"]["low"], space["decay"]["high"]) == (0.0001, 0.01)
    assert (space["noise"]["low"], space["noise"]["high"]) == (0.5, 1.5)
    assert space["batch"] == {"type": "int", "low": 16, "high": 128, "log": True}
    assert config.trial.command[2] == "--model.depth={model.depth}"
    assert "--sizes={sizes}" not in config.trial.command
    assert config.pruner.arguments == {"min_resource": 4, "reduction_factor": 2, "mode": "stop"}
    assert has(
        notes,
        "model: its nested parameters",
        "The parameter decay has distribution: log_uniform",
        "The parameter noise has distribution: normal",
        "The parameter batch has distribution: q_log_uniform_values",
        "Not carried over: the parameter sizes.values[0]",
        "Not carried over: kind.probabilities",
        "Not carried over: metric.target.",
        "Not carried over: entity.",
        "Not carried over: early_terminate.s.",
        "method: bayes is left to",
        "The sweep has no run_cap",
    )


def test_command_of_a_sweep_is_filled(tmp_path: Path) -> None:
    config, notes, _ = proposed(COMMAND, tmp_path)
    assert config.trial.command == (
        "python",
        "-m",
        "pkg.train",
        "+x={{a}}",
        "--opt.lr={opt.lr}",
        "--amp={amp}",
    )
    assert config.sampler.name == "grid"
    assert config.pruner.arguments["min_resource"] == 3
    assert list(config.objectives) == ["value"]
    assert has(notes, "amp is passed as --amp=true", "Not carried over: out=${envvar:HOME}")


def test_command_without_arguments_says_where_the_values_are(tmp_path: Path) -> None:
    text = SWEEP + "command: [python, train.py]\n"
    config, notes, _ = proposed(text, tmp_path)
    assert config.trial.command == ("python", "train.py")
    assert has(notes, "The command has no ${args}")


@pytest.mark.parametrize("macro", ["args_no_hyphens", "args_no_equals", "args_json"])
def test_forms_of_arguments(macro: str, tmp_path: Path) -> None:
    text = f'program: t.py\nparameters: {{a: {{value: 1}}}}\ncommand: [p, "${{{macro}}}"]\n'
    config, notes, _ = proposed(text, tmp_path)
    words = {"args_no_hyphens": ("a={a}",), "args_no_equals": ("--a", "{a}"), "args_json": ()}
    assert config.trial.command == ("p", *words[macro])
    assert has(notes, "Not carried over: ${args_json}") == (macro == "args_json")
    assert has(notes, "The sweep names no metric")


@pytest.mark.parametrize("name", ["1e3", "\x07bell", "a: b", "'quoted'", "é", "step"])
def test_odd_names_are_kept_readable(name: str, tmp_path: Path) -> None:
    sweep = {"name": name, "metric": {"name": name}, "parameters": {"x": {"value": name}}}
    config, _, _ = proposed(json.dumps({**sweep, "command": []}), tmp_path)
    assert list(config.objectives) == ["value" if name == "step" else name]
    assert config.search_space.constants == {"x": name}
    assert config.trial.command == ("python", "train.py", "--x={x}")


def test_grid_over_a_range_is_no_grid(tmp_path: Path) -> None:
    text = "program: t.py\nmethod: grid\nparameters: {a: {min: 0.0, max: 1.0}}\n"
    config, notes, _ = proposed(text, tmp_path)
    assert config.sampler.name == "auto"
    assert has(notes, "Not carried over: method: grid, because of the range of a.")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("- a", "must be a W&B sweep, the configuration of a program, or a Python script."),
        ("study: a\ntrial: {function: 'm:f'}", "is a study file already."),
        ("a: [", "line 1, column 5: not valid YAML"),
        ("name: x", "has no number that looks like a parameter to tune"),
    ],
)
def test_file_without_a_proposal_is_refused(text: str, message: str, tmp_path: Path) -> None:
    (tmp_path / "x.yaml").write_text(text)
    with pytest.raises(ConfigError, match=message.split("(")[0]):
        propose(tmp_path / "x.yaml", tmp_path)


def test_missing_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot be read: No such file"):
        propose(tmp_path / "x.yaml", tmp_path)
