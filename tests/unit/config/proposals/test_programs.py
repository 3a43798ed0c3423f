"""Options of a script and values of a configuration become a study; the script is never run."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml
from typer.testing import CliRunner

from tuner.cli.main import app
from tuner.config import load_study_file
from tuner.config.proposals.ranges import Option, propose_range
from tuner.config.proposals.read import propose
from tuner.errors import EXIT_BAD_INPUT, ConfigError

SCRIPT = """
import argparse, sys
sys.exit("this script was run")

def options():
    parser = argparse.ArgumentParser()
    parser.add_argument("data")
    parser.add_argument("-b", "--batch-size", type=int, default=64)
    parser.add_argument("--lr", "--learning-rate", dest="rate_lr", type=float, default=1e-3)
    parser.add_argument("--wd", type=float, default=0)
    parser.add_argument("--dropout", type=float, default=0.1)
    parser.add_argument("--optimizer", choices=["sgd", "adam"], default="adam")
    parser.add_argument("--layers", type=int, default=DEFAULT)
    parser.add_argument("--epochs", type=int, default=90)
    parser.add_argument("--test-batch-size", type=int, default=1000)
    parser.add_argument("--amp", action="store_true")
    parser.add_argument("--out", required=True)
    return parser
"""
CONFIG = """
defaults: [model]
hydra: {run: {dir: out}}
seed: 1
name: run-${now:%H}
trainer: {max_epochs: 10, batch_size: 32}
optimizer: {lr: 0.01, momentum: 0.9}
"""
HYDRA = """
import hydra

@hydra.main(version_base=None, config_path="conf", config_name="config")
def main(cfg):
    raise RuntimeError
"""


def test_script_is_read_and_not_run(tmp_path: Path) -> None:
    (tmp_path / "src").mkdir()
    script = tmp_path / "src" / "train.py"
    script.write_text(SCRIPT)
    proposal = propose(script, tmp_path)
    assert proposal.command == (
        "python",
        "src/train.py",
        "--batch-size={batch_size}",
        "--lr={rate_lr}",
        "--wd={wd}",
        "--dropout={dropout}",
        "--optimizer={optimizer}",
    )
    assert proposal.space == {
        "batch_size": {"type": "int", "low": 16, "high": 256, "log": True},
        "rate_lr": {"type": "float", "low": 1e-4, "high": 1e-2, "log": True},
        "wd": {"type": "float", "low": 1e-6, "high": 1e-2, "log": True},
        "dropout": {"type": "float", "low": 0.0, "high": 0.5},
        "optimizer": ["sgd", "adam"],
    }
    text = "\n".join(proposal.notes)
    assert "data is required: add it to trial.command." in text
    assert "--out is required" in text
    assert "hold: --layers, --epochs (90), --test-batch-size (1000), --amp." in text


def test_script_of_hydra_names_its_configuration(tmp_path: Path) -> None:
    (tmp_path / "conf").mkdir()
    (tmp_path / "conf" / "config.yaml").write_text(CONFIG)
    (tmp_path / "train.py").write_text(HYDRA)
    proposal = propose(tmp_path / "train.py", tmp_path)
    assert proposal.command == (
        "python",
        "train.py",
        "trainer.batch_size={trainer.batch_size}",
        "optimizer.lr={optimizer.lr}",
        "optimizer.momentum={optimizer.momentum}",
    )
    assert proposal.space["optimizer.momentum"] == {"type": "float", "low": 0.5, "high": 0.999}
    assert proposal.notes[1:] == (
        "Not read: model.yaml, which `defaults` names.",
        "Numbers that are not searched, so that theirs hold: seed, trainer.max_epochs.",
    )


def test_each_trial_has_an_output_folder_of_its_own(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(
        "import argparse\nparser = argparse.ArgumentParser()\n"
        "parser.add_argument('--lr', type=float, default=0.1)\n"
        "parser.add_argument('--work-dir', default='out')\n"
        "parser.add_argument('--output_dir', required=True)\n"
        "parser.add_argument('--data-dir', default='data')\n"
        "parser.add_argument('--log-interval', type=int, default=10)\n"
    )
    proposal = propose(tmp_path / "train.py", tmp_path)
    assert proposal.command[3:] == ("--work-dir={checkpoint_dir}", "--output_dir={checkpoint_dir}")
    assert "--work-dir, --output_dir: a path of its own for each trial" in proposal.notes[2]
    assert "--data-dir (data), --log-interval (10)" in proposal.notes[3]
    assert "required" not in "".join(proposal.notes)


def test_configuration_alone_asks_for_its_program(tmp_path: Path) -> None:
    (tmp_path / "config.yaml").write_text(CONFIG)
    proposal = propose(tmp_path / "config.yaml", tmp_path)
    assert proposal.command[:2] == ("python", "train.py")
    assert "Replace train.py in trial.command" in proposal.notes[-1]


@pytest.mark.parametrize(
    ("option", "expected"),
    [
        (Option(name="lr", default=0.1), (0.01, 1.0)),
        (Option(name="weight_decay", default=5e-4), (5e-5, 5e-3)),
        (Option(name="hidden-dim", default=2), (1, 8)),
        (Option(name="n_layers", default=1), (1, 4)),
        (Option(name="beta2", default=0.9999), (0.5, 0.9999)),
        (Option(name="gae_lambda", default=0.95), (0.5, 0.999)),
        (Option(name="reg_lambda", default=1.0), (0.1, 10.0)),
        (Option(name="aspect_ratio", default=0.25), (0.0, 0.5)),
    ],
    ids=lambda value: getattr(value, "name", None),
)
def test_range_contains_the_default(option: Option, expected: tuple[float, float]) -> None:
    proposed = propose_range(option)
    assert isinstance(proposed, dict)
    assert (proposed["low"], proposed["high"]) == expected
    assert proposed["low"] <= option.default <= proposed["high"]


@pytest.mark.parametrize(
    "option",
    [
        Option(name="epochs", default=10),
        Option(name="num_iterations", default=0),
        Option(name="lr_decay_iters", default=600000),
        Option(name="problem_size", default=0),
        Option(name="seed", default=1),
        Option(name="lr", default=True),
        Option(name="lr", default=float("inf")),
        Option(name="lr", default=-1.0),
        Option(name="lr", default=None),
        Option(name="log-interval", default=10),
        Option(name="mode", default="a", choices=("a",)),
    ],
    ids=str,
)
def test_option_without_a_range_is_not_searched(option: Option) -> None:
    assert propose_range(option) is None


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("print(1)", "has no option of argparse.*write an empty study file .tuner init."),
        (
            "lr = 0.1\nseed = 3\nwidth = 64\nprint(1)",
            r"cannot set its constants, such as lr in line 1. Write at its top: import tuner; "
            r'trial = tuner.current\(defaults=\{"lr": 0.1, "width": 64\}\), and '
            "lr = trial.params.lr in place of lr = 0.1.",
        ),
        ("def f(:", "line 1: is not valid Python"),
        ("x = 1\0", "cannot be read as Python|is not valid Python"),
    ],
)
def test_script_without_options_is_refused(text: str, message: str, tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(text)
    with pytest.raises(ConfigError, match=message):
        propose(tmp_path / "train.py", tmp_path)


def test_command_writes_the_file_and_prints_the_notes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("train.py").write_text(SCRIPT)
    ended = CliRunner().invoke(app, ["init", "--from", "train.py"])
    assert ended.exit_code == 0, ended.output
    assert "- --out is required: add it to trial.command.\n" in ended.output
    assert "study.yaml is written. Edit it, then: tuner validate study.yaml" in ended.output
    config = load_study_file(Path("study.yaml"), environ={})
    assert config.study == "train"
    assert yaml.safe_load(config.text)["search_space"]["optimizer"] == ["sgd", "adam"]
    again = CliRunner().invoke(app, ["init", "--from", "train.py"])
    assert again.exit_code == EXIT_BAD_INPUT


def _notes(tmp_path: Path, script: str) -> str:
    (tmp_path / "train.py").write_text(script)
    return "\n".join(propose(tmp_path / "train.py", tmp_path).notes)


def test_positional_arguments_may_be_optional(tmp_path: Path) -> None:
    """As `data` in the ImageNet example of PyTorch and in the training script of timm."""
    notes = _notes(
        tmp_path,
        "parser.add_argument('data', nargs='?', default='imagenet')\n"
        "parser.add_argument('more', nargs='*')\nparser.add_argument('target', nargs='+')\n",
    )
    assert "target is required" in notes
    assert "data is required" not in notes
    assert "more is required" not in notes


def test_constants_of_calls_are_named_with_the_line_to_write(tmp_path: Path) -> None:
    notes = _notes(
        tmp_path,
        "parser.add_argument('--batch-size', type=int, default=64)\n"
        "optimizer = Adam(model.parameters(), lr=1e-3)\n"
        "softmax(x, dim=1)\nconfig = {'weight_decay': 0.1, 'batch_size': 3, 'seed': 1}\n",
    )
    assert (
        "Constants that could be options: lr (line 2: 0.001), weight_decay (line 4: 0.1). To "
        "search one, write parser.add_argument('--lr', type=float, default=0.001)."
    ) in notes
    (tmp_path / "train.py").write_text("parser.add_argument('--lr', type=float, default=0.001)")
    assert propose(tmp_path / "train.py", tmp_path).space.keys() == {"lr"}


def test_script_whose_options_are_not_tuned_says_so(tmp_path: Path) -> None:
    notes = _notes(tmp_path, "parser.add_argument('--steps', type=int, default=15)\n")
    assert "No option looks like a parameter to tune: add search_space" in notes
    assert "ranges are guesses" not in notes
    assert "No line with print in " in notes


@pytest.mark.parametrize(
    ("loop", "is_named"),
    [
        ("for episode in itertools.count(1):", True),
        ("while True:", True),
        ("for episode in range(9):", False),
        ("while reward < 3:", False),
    ],
)
def test_loop_without_a_last_step_is_named(tmp_path: Path, loop: str, is_named: bool) -> None:
    notes = _notes(
        tmp_path,
        "parser.add_argument('--lr', type=float, default=0.1)\n"
        f"{loop}\n    print(f'episode {{episode}}: last reward {{r}} average reward {{mean}}')\n",
    )
    assert ("The loop in line 2 has no last step. If the program does not" in notes) == is_named


def test_files_that_trials_would_overwrite_are_in_their_folders(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(
        "add_argument = parser.add_argument\n"
        "parser.add_argument('--lr', type=float, default=20)\n"
        "parser.add_argument('--save', type=str, default='model.pt')\n"
        "parser.add_argument('--onnx-export', type=str, default='')\n"
        "parser.add_argument('--data', type=str, default='data.csv')\n"
    )
    command = propose(tmp_path / "train.py", tmp_path).command
    assert command[2:] == ("--lr={lr}", "--save={checkpoint_dir}/model.pt")


def test_a_script_of_hundreds_of_options_gets_the_ten_that_are_tuned_most(tmp_path: Path) -> None:
    names = [f"scale{place}-decay" for place in range(30)]
    lines = [f"parser.add_argument('--{name}', type=float, default=0.1)" for name in names]
    lines += [
        "parser.add_argument('--lr', type=float, default=0.1)",
        "parser.add_argument('--model-ema-decay', type=float, default=0.9998)",
        "parser.add_argument('--decay-rate', type=float, default=0.9)",
        "parser.add_argument('--mixed-precision', choices=['no', 'fp16'])",
        "parser.add_argument('--batch-size', type=int, default=8)",
    ]
    (tmp_path / "train.py").write_text("\n".join(lines))
    space = propose(tmp_path / "train.py", tmp_path).space
    assert len(space) == 10
    assert {"lr", "batch_size"} < space.keys()
    assert space.keys().isdisjoint({"model_ema_decay", "mixed_precision"})
    # A decay near 1 is a share; ten times it would be no decay.
    shares = propose_range(Option(name="decay_rate", default=0.9))
    assert shares == {"type": "float", "low": 0.5, "high": 0.999}


COMPOSED = {
    "conf/train.yaml": """
defaults:
  - _self_
  - model: net.yaml
  - data/text@data: small
  - experiment: null
  - optional local: mine
  - wide
  - override hydra/job_logging: none
seed: 1
""",
    "conf/model/net.yaml": "defaults: [encoder/large]\noptimizer: {lr: 0.001}\n",
    "conf/model/encoder/large.yaml": "dropout: 0.1\n",
    "conf/data/text/small.yaml": "batch_size: 64\n",
    "conf/wide.yaml": "# @package _global_\nwarmup: {weight_decay: 0.1}\n",
}


def test_files_that_hydra_composes_are_read(tmp_path: Path) -> None:
    """As the template of Lightning and Hydra, whose main file has a list of defaults alone."""
    for name, text in COMPOSED.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    script = tmp_path / "train.py"
    script.write_text(HYDRA.replace('config_name="config"', 'config_name="train"'))
    proposal = propose(script, tmp_path)
    assert list(proposal.space) == [
        "model.encoder.dropout",
        "model.optimizer.lr",
        "data.batch_size",
        "warmup.weight_decay",
    ]
    assert "model.optimizer.lr={model.optimizer.lr}" in proposal.command
    assert "Not read" not in "\n".join(proposal.notes)


def test_options_of_a_parser_in_another_file(tmp_path: Path) -> None:
    (tmp_path / "tools").mkdir()
    (tmp_path / "tools" / "options.py").write_text(
        "import argparse\ndef get_args():\n    p = argparse.ArgumentParser()\n"
        "    p.add_argument('--lr', type=float, default=0.1)\n    return p.parse_args()\n"
    )
    script = tmp_path / "train.py"
    script.write_text("from tools.options import get_args\nprint(f'loss {get_args().lr}')\n")
    proposal = propose(script, tmp_path)
    assert proposal.command == ("python", "train.py", "--lr={lr}")
    assert proposal.objectives == {"loss": "minimize"}
    assert "The options are those of options.py." in proposal.notes


def test_parameters_in_a_dictionary_are_named(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text('params = {"learning_rate": 0.05, "verbose": 0}\nprint("rmse", 1.5)\n')
    with pytest.raises(ConfigError, match=r"such as learning_rate in line 1\.") as raised:
        propose(script, tmp_path)
    assert 'tuner.current(defaults={"learning_rate": 0.05})' in str(raised.value)
    assert "and trial.params.learning_rate in place of 0.05." in str(raised.value)
