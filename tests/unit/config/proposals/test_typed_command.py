"""`tuner init -- python train.py --data DIR` proposes a study of the command that was typed."""

from __future__ import annotations

import argparse
import shlex
from pathlib import Path

import pytest
import yaml
from typer.testing import CliRunner, Result

from tuner.cli.main import app
from tuner.errors import EXIT_BAD_INPUT

SCRIPT = """
import argparse
parser = argparse.ArgumentParser()
parser.add_argument("data")
parser.add_argument("--lr", type=float, default=1e-3)
parser.add_argument("-b", "--batch-size", type=int, default=64)
parser.add_argument("-e", "--epochs", type=int, default=90)
parser.add_argument("--shift", type=int, default=0)
parser.add_argument("--out-dir", default="runs")
args = parser.parse_args()
print(f"loss {args.lr}")
"""


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.py").write_text(SCRIPT)
    return tmp_path


def type_in(*words: str) -> Result:
    return CliRunner().invoke(app, ["init", *words])


def command_of(*words: str) -> list[str]:
    result = type_in("--force", "--", *words)
    assert result.exit_code == 0, result.output
    study = yaml.safe_load(Path("study.yaml").read_text())
    command: list[str] = study["trial"]["command"]
    return command


def taken_by_script(command: list[str]) -> argparse.Namespace:
    """What the script's own parser makes of a trial's command."""
    parser = argparse.ArgumentParser()
    values = {"lr": "0.5", "batch_size": "32", "checkpoint_dir": "/state"}
    names: dict[str, object] = {"argparse": argparse, "parser": parser, "print": lambda *_: None}
    lines = SCRIPT.replace("parse_args()", "parse_args(words)").splitlines()
    names["words"] = [word.format(**values) for word in command[2:]]
    exec("\n".join(line for line in lines if not line.startswith("import")), names)
    read = names["args"]
    assert isinstance(read, argparse.Namespace)
    return read


def test_typed_words_stay_and_parameters_are_the_trials() -> None:
    words = ("--lr", "0.1", "--shift", "-3", "/mnt/a b{c}", "-b", "8", "-e=5", "--out-dir", "mine")
    command = command_of("python3", "train.py", *words)
    assert command[:2] == ["python3", "train.py"]
    read = taken_by_script(command)
    assert (read.lr, read.batch_size, read.out_dir) == (0.5, 32, "/state")
    assert (read.data, read.shift, read.epochs) == ("/mnt/a b{c}", -3, 5)


def test_places_of_the_tuner_stay_where_they_are_typed() -> None:
    command = command_of("python", "train.py", "{checkpoint_dir}/{x}", "--shift={gpus}")
    assert command[2] == "{checkpoint_dir}/{{x}}"
    assert "--shift={gpus}" in command


def test_notes_say_what_became_of_the_words() -> None:
    result = type_in("--", "python", "train.py", "/mnt", "--lr", "0.1", "-e", "5")
    assert "Left out, as a trial has a value of its own: --lr 0.1." in result.stdout
    assert "is required" not in result.stdout
    assert "the program's defaults hold: --shift (0)." in result.stdout
    assert "data is required: add it" in type_in("--force", "--", "train.py").stdout


def test_study_file_stands_before_the_command() -> None:
    assert type_in("other.yaml", "--", "train.py", "/mnt").exit_code == 0
    study = yaml.safe_load(Path("other.yaml").read_text())
    assert study["trial"]["command"][:3] == ["python", "train.py", "/mnt"]


def test_typed_subcommand_is_not_written_twice(folder: Path) -> None:
    (folder / "tool.py").write_text(
        "import argparse\nparser = argparse.ArgumentParser()\n"
        'subs = parser.add_subparsers()\nfit = subs.add_parser("train")\n'
        'fit.add_argument("--lr", type=float, default=0.1)\nfit.add_argument("--data")\n'
    )
    command = command_of("python", "tool.py", "train", "--data", "/mnt", "--lr=1")
    assert command == ["python", "tool.py", "train", "--lr={lr}", "--data", "/mnt"]


def test_words_of_hydra_are_assignments(folder: Path) -> None:
    (folder / "conf").mkdir()
    (folder / "conf" / "config.yaml").write_text("lr: 0.1\nseed: 1\ndata: {root: x}\n")
    (folder / "app.py").write_text(
        'import hydra\n@hydra.main(config_path="conf", config_name="config")\ndef main(cfg): ...\n'
    )
    command = command_of("python", "app.py", "data.root=/mnt", "lr=3", "--multirun", "seed=2")
    assert command == ["python", "app.py", "data.root=/mnt", "--multirun", "seed=2", "lr={lr}"]


@pytest.mark.parametrize(
    ("line", "trial"),
    [
        ("python -u train.py /mnt", {"command": "python -u train.py /mnt"}),
        ("python -m train /mnt", {"command": "python -m train /mnt"}),
        ("uv run train.py /mnt", {"command": "uv run train.py /mnt"}),
        ("poetry run python train.py", {"command": "poetry run python train.py"}),
        ("nohup nice -n 5 python train.py", {"command": "nice -n 5 python train.py"}),
        (
            "env A=1 B={x} ./train.py",
            {"command": "python train.py", "env": {"A": "1", "B": "{{x}}"}},
        ),
        ("CUDA_VISIBLE_DEVICES=1 python3 train.py", {"command": "python3 train.py"}),
        (
            "torchrun --standalone --nproc_per_node 2 train.py /mnt",
            {"command": "python train.py /mnt", "resources": {"gpus": 2}, "parallel": "ddp"},
        ),
        (
            "python -m torch.distributed.run --nproc-per-node=gpu train.py",
            {"command": "python train.py", "parallel": "ddp"},
        ),
        (
            "accelerate launch --num_processes=4 --mixed_precision bf16 train.py",
            {
                "command": "python train.py",
                "resources": {"gpus": 4},
                "parallel": "ddp",
                "env": {"ACCELERATE_MIXED_PRECISION": "bf16"},
            },
        ),
        ("accelerate launch train.py", {"command": "python train.py"}),
        (
            "mpirun -np 2 --oversubscribe python train.py",
            {
                "command": "mpirun -np {gpus} --oversubscribe python train.py",
                "resources": {"gpus": 2},
            },
        ),
    ],
)
def test_launchers_and_variables_before_the_script(line: str, trial: dict[str, object]) -> None:
    result = type_in("--", *shlex.split(line))
    assert result.exit_code == 0, result.output
    proposed = yaml.safe_load(Path("study.yaml").read_text())["trial"]
    proposed.pop("metrics")
    options = ["--lr={lr}", "--batch-size={batch_size}", "--out-dir={checkpoint_dir}"]
    assert proposed.pop("command") == [*str(trial["command"]).split(), *options]
    assert proposed == {key: value for key, value in trial.items() if key != "command"}
    assert ("CUDA_VISIBLE_DEVICES=1. The tuner" in result.stdout) == line.startswith("CUDA")


@pytest.mark.parametrize(
    "words", [["./train.sh", "--lr", "1"], ["bash", "-c", "train.py"], ["x"], ["python"]]
)
def test_command_that_is_no_script_is_refused_with_what_to_do(words: list[str]) -> None:
    result = type_in("--", *words)
    assert (result.exit_code, result.stdout) == (EXIT_BAD_INPUT, "")
    assert "tuner init -- is given" in result.stderr
    assert "tuner init -- python train.py --data DIR" in result.stderr
    assert not Path("study.yaml").exists()


def test_source_and_command_exclude_each_other() -> None:
    result = type_in("--from", "train.py", "--", "python", "train.py", "a b")
    assert result.exit_code == EXIT_BAD_INPUT
    assert "Write: tuner init -- python train.py 'a b'" in result.stderr


def test_program_of_optuna_takes_its_arguments_at_each_start(folder: Path) -> None:
    (folder / "search.py").write_text(
        "import optuna\nstudy = optuna.create_study()\nstudy.optimize(lambda t: 1.0, n_trials=3)\n"
    )
    result = type_in("--", "python", "search.py", "--data", "/mnt")
    assert result.exit_code == EXIT_BAD_INPUT
    assert "tuner run search.py -- --data /mnt" in result.stderr
