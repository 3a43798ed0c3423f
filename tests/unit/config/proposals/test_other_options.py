"""`tuner init --from` reads scripts of click, typer and parsers of dataclasses."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from tuner.config.notation.metric_pattern import expand
from tuner.config.proposals.train_script import propose_from_script

CLICK = """
import click

@click.command()
@click.option("--lr", "-l", default=1e-3, type=float, help="rate")
@click.option("--optimizer", type=click.Choice(["sgd", "adam"]), default="adam")
@click.option("--augment/--no-augment", default=True)
@click.option("--verbose", is_flag=True)
@click.option("--seed", default=0)
def main(lr, optimizer, augment, verbose, seed): ...
"""
TYPER = """
from typing import Annotated, Literal
import typer

app = typer.Typer()

@app.command()
def train(
    data: str,
    learning_rate: Annotated[float, typer.Option(help="rate")] = 1e-3,
    dropout: float = typer.Option(0.1, help="share"),
    optimizer: Literal["sgd", "adam"] = "adam",
    amp: bool = False,
): ...
"""
TYPER_RUN = """
import typer
def main(learning_rate: float = 0.001, dropout: float = 0.1, optimizer: str = "adam"): ...
typer.run(main)
"""
#: In the shape of run_glue.py of transformers.
HUGGING_FACE = """
from dataclasses import dataclass, field
from transformers import HfArgumentParser

@dataclass
class Arguments:
    model: str = field(metadata={"help": "a name"})
    learning_rate: float = field(default=5e-5, metadata={"help": "rate"})
    batch_size: int = 32
    fp16: bool = False

args = HfArgumentParser(Arguments).parse_args_into_dataclasses()
"""
TYRO = """
import dataclasses
import tyro

@dataclasses.dataclass
class Args:
    learning_rate: float = 2.5e-4
    total_timesteps: int = 500000

args = tyro.cli(Args)
"""
#: In the shape of nanoGPT's train.py and configurator.py.
CONFIGURATOR = """
import os
out_dir = "out"
batch_size = 12
learning_rate = 1e-3  # max learning rate
max_iters = 600000
lr_decay_iters = 600000
compile = True
config_keys = [k for k, v in globals().items() if not k.startswith("_")]
exec(open("configurator.py").read())
hidden = 64
"""
TRAINING_ARGUMENTS = """
from transformers import HfArgumentParser, Trainer, TrainingArguments

(training_args,) = HfArgumentParser(TrainingArguments).parse_args_into_dataclasses()
if training_args.do_train:
    Trainer(args=training_args).train()
"""
ABSL = """
from absl import app, flags
FLAGS = flags.FLAGS
flags.DEFINE_float("lr", 1e-3, "learning rate")
_OPTIMIZER = flags.DEFINE_enum("optimizer", "sgd", ["sgd", "adam"], "optimizer")
flags.DEFINE_bool("amp", False, "mixed precision")
app.run(lambda argv: print(FLAGS.lr))
"""
FIRE = """
import fire
def train(learning_rate=0.001, dropout=0.1): ...
fire.Fire(train)
"""
RATE = {"type": "float", "low": 0.0001, "high": 0.01, "log": True}


@pytest.mark.parametrize(
    ("text", "words", "rate"),
    [
        (CLICK, ["--lr={lr}", "--optimizer={optimizer}"], RATE),
        (
            TYPER,
            [
                "--learning-rate={learning_rate}",
                "--dropout={dropout}",
                "--optimizer={optimizer}",
            ],
            RATE,
        ),
        (TYPER_RUN, ["--learning-rate={learning_rate}", "--dropout={dropout}"], RATE),
        (
            HUGGING_FACE,
            ["--learning_rate={learning_rate}", "--batch_size={batch_size}"],
            {**RATE, "low": 5e-06, "high": 0.0005},
        ),
        (TYRO, ["--learning_rate={learning_rate}"], {**RATE, "low": 2.5e-05, "high": 0.0025}),
        (ABSL, ["--lr={lr}", "--optimizer={optimizer}"], RATE),
        (FIRE, ["--learning-rate={learning_rate}", "--dropout={dropout}"], RATE),
    ],
    ids=["click", "typer", "typer-run", "hugging-face", "tyro", "absl", "fire"],
)
def test_options_become_parameters(text: str, words: list[str], rate: object) -> None:
    proposal = propose_from_script(ast.parse(text), Path("train.py"), "train.py")
    assert proposal.command == ("python", "train.py", *words)
    assert next(iter(proposal.space.values())) == rate


def test_dataclass_that_nothing_parses_has_no_options() -> None:
    text = HUGGING_FACE.replace("HfArgumentParser", "Trainer")
    with pytest.raises(Exception, match="has no option of argparse, click, typer, fire, absl"):
        propose_from_script(ast.parse(text), Path("train.py"), "train.py")


def test_constants_that_a_configurator_replaces_are_options() -> None:
    proposal = propose_from_script(ast.parse(CONFIGURATOR), Path("train.py"), "train.py")
    assert proposal.command[2:] == (
        "--batch_size={batch_size}",
        "--learning_rate={learning_rate}",
        "--out_dir={checkpoint_dir}",
    )
    assert proposal.space["learning_rate"] == RATE


def test_training_arguments_of_transformers_are_options_and_evaluate() -> None:
    proposal = propose_from_script(ast.parse(TRAINING_ARGUMENTS), Path("train.py"), "train.py")
    assert proposal.command[2:] == (
        "--learning_rate={learning_rate}",
        "--weight_decay={weight_decay}",
        "--per_device_train_batch_size={per_device_train_batch_size}",
        "--output_dir={checkpoint_dir}",
        "--eval_strategy=epoch",
        "--do_train",
    )
    assert proposal.objectives == {"eval_loss": "minimize"}
    for line in (
        "{'eval_loss': 0.6924, 'eval_accuracy': 0.71, 'eval_runtime': 0.05, 'epoch': 2.0}",
        "{'eval_loss': '0.6924', 'eval_accuracy': '0.71', 'eval_runtime': '0.05', 'epoch': '2'}",
    ):
        found = re.search(expand(proposal.pattern), line)
        assert found is not None
        assert (float(found["eval_loss"]), float(found["step"])) == (0.6924, 2)
