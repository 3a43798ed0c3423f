"""Searches and defaults that programs of Hydra and W&B have themselves."""

from __future__ import annotations

from pathlib import Path

import pytest

from tuner.config import load_study_file
from tuner.config.proposals.proposal import study_text
from tuner.config.proposals.read import propose
from tuner.config.proposals.sweeps.hydra_sweeper import sweep_of

HYDRA = """
defaults:
  - override hydra/sweeper: optuna
hydra:
  sweeper:
    direction: [maximize, minimize]
    n_trials: 20
    params:
      model.lr: tag(log, interval(1e-5, 0.1))
      model.width: int(tag(log, interval(8, 256)))
      model.kind: choice(cnn, "a, b", 1e-3, true)
      data.batch: 32,64
      data.share: range(0.1, 0.5, 0.1)
      layers: range(1, 4)
      epochs: 5
      files: glob(*)
model: {lr: 0.1}
"""
WANDB = """
import wandb

defaults = dict(
    dropout=0.2,
    batch_size=32,
    epochs=3,
)
wandb.init(config=defaults, project="digits")
for epoch in range(wandb.config.epochs):
    loss, accuracy = train(epoch)
    wandb.log({"loss": loss, "accuracy": accuracy})
    print(f"epoch {epoch} loss {loss:.3f} accuracy {accuracy:.3f}")
"""
SWEEP = "program: train.py\nmethod: random\nparameters: {dropout: {min: 0.0, max: 0.5}}\n"


def test_the_search_of_a_hydra_configuration_is_taken(tmp_path: Path) -> None:
    source = tmp_path / "config.yaml"
    source.write_text(HYDRA)
    proposal = propose(source, tmp_path)
    assert proposal.space == {
        "model.lr": {"type": "float", "low": 1e-5, "high": 0.1, "log": True},
        "model.width": {"type": "int", "low": 8, "high": 256, "log": True},
        "model.kind": ["cnn", "a, b", 1e-3, True],
        "data.batch": [32, 64],
        "data.share": {"type": "float", "low": 0.1, "high": 0.5, "step": 0.1},
        "layers": {"type": "int", "low": 1, "high": 4},
        "epochs": 5,
    }
    assert proposal.objectives == {"value": "maximize", "value_1": "minimize"}
    assert proposal.settings == {"budget": {"trials": 20}}
    assert "Not read: files: glob(*)." in proposal.notes
    assert proposal.command[2] == "model.lr={model.lr}"

    (tmp_path / "train.py").write_text("")
    study = tmp_path / "study.yaml"
    study.write_text(study_text(proposal, tmp_path))
    assert load_study_file(study, environ={}).budget.trials == 20


@pytest.mark.parametrize(
    "document",
    [
        {},
        {"hydra": None},
        {"hydra": {"sweeper": {"params": None}}},
        {"hydra": {"sweeper": "optuna"}},
        {"hydra": {"run": {"dir": "out"}}},
    ],
)
def test_a_configuration_without_a_search_has_none(document: dict[str, object]) -> None:
    assert sweep_of(document) is None


@pytest.mark.parametrize(
    "text", ["choice()", "interval(1)", "interval(a, b)", "range(1, 2, 3, 4)", "int()", "f(1)"]
)
def test_a_form_that_is_not_known_is_named(text: str) -> None:
    found = sweep_of({"hydra": {"sweeper": {"params": {"x": text}}}})
    assert found is not None
    assert (found.space, found.unread) == ({}, (f"x: {text}",))


def test_defaults_of_wandb_are_parameters(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(WANDB)
    proposal = propose(tmp_path / "train.py", tmp_path)
    assert list(proposal.space) == ["dropout", "batch_size"]
    assert proposal.command == ("python", "train.py")
    assert "WANDB_SWEEP_PARAM_PATH" in proposal.env
    assert proposal.pattern.startswith("epoch {step} loss")
    assert proposal.notes[-1] == "Not searched, so that the program's values hold: epochs (3)."
    study = tmp_path / "study.yaml"
    study.write_text(study_text(proposal, tmp_path))
    assert load_study_file(study, environ={}).trial.env == proposal.env


@pytest.mark.parametrize(
    ("metric", "pattern", "note"),
    [
        ("accuracy", "accuracy {accuracy}", "reads line 13 of train.py"),
        ("loss", "loss {loss}", "reads line 13 of train.py"),
        (
            "val/f1",
            "",
            "Line 13 of train.py prints loss. To tune that, write objectives: {loss: minimize}",
        ),
    ],
)
def test_a_sweep_takes_the_line_that_its_program_prints(
    tmp_path: Path, metric: str, pattern: str, note: str
) -> None:
    (tmp_path / "train.py").write_text(WANDB)
    source = tmp_path / "sweep.yaml"
    source.write_text(f"{SWEEP}metric: {{name: {metric}, goal: maximize}}\n")
    proposal = propose(source, tmp_path)
    assert proposal.pattern.endswith(pattern)
    assert bool(proposal.pattern) is bool(pattern)
    assert any(note in each for each in proposal.notes)
