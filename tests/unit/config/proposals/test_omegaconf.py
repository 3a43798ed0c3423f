"""`tuner init --from` reads the file of a script that merges it with `OmegaConf.from_cli`."""

from __future__ import annotations

from pathlib import Path

import pytest

from tuner.config.proposals.read import propose
from tuner.errors import ConfigError

SCRIPT = """
from omegaconf import OmegaConf
config = OmegaConf.merge(OmegaConf.load("config.yaml"), OmegaConf.from_cli())
print(config.optimizer.lr)
"""


def test_keys_of_the_file_become_words_of_the_command(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(SCRIPT)
    (tmp_path / "config.yaml").write_text("optimizer: {lr: 0.001, name: sgd}\n")
    proposal = propose(tmp_path / "train.py", tmp_path)
    assert proposal.command == ("python", "train.py", "optimizer.lr={optimizer.lr}")
    expected = {"type": "float", "low": 0.0001, "high": 0.01, "log": True}
    assert proposal.space["optimizer.lr"] == expected


def test_printed_result_of_the_script_is_read(tmp_path: Path) -> None:
    text = f'{SCRIPT}for epoch in range(3):\n    print(f"epoch {{epoch}}: val loss {{1.0:.4f}}")\n'
    (tmp_path / "train.py").write_text(text)
    (tmp_path / "config.yaml").write_text("optimizer: {lr: 0.001}\n")
    proposal = propose(tmp_path / "train.py", tmp_path)
    assert proposal.objectives == {"val_loss": "minimize"}
    assert proposal.pattern == "epoch {step}: val loss {val_loss}"
    assert "reads line 6 of train.py. Check that it is the number to minimize" in proposal.notes[0]
    (tmp_path / "train.py").write_text(SCRIPT)
    silent = propose(tmp_path / "train.py", tmp_path)
    assert silent.pattern == ""
    assert "Let the program print its result" in silent.notes[0]


def test_file_that_is_absent_is_named(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(SCRIPT)
    with pytest.raises(ConfigError, match=r"config\.yaml.*cannot be read"):
        propose(tmp_path / "train.py", tmp_path)


def test_script_that_reads_no_words_keeps_its_constants(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(SCRIPT.replace("OmegaConf.from_cli()", "{}"))
    with pytest.raises(ConfigError, match="has no option of argparse"):
        propose(tmp_path / "train.py", tmp_path)
