"""`tuner init --from` reads scripts of click, typer and parsers of dataclasses."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

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
    ],
    ids=["click", "typer", "typer-run", "hugging-face", "tyro"],
)
def test_options_become_parameters(text: str, words: list[str], rate: object) -> None:
    proposal = propose_from_script(ast.parse(text), Path("train.py"), "train.py")
    assert proposal.command == ("python", "train.py", *words)
    assert next(iter(proposal.space.values())) == rate


def test_dataclass_that_nothing_parses_has_no_options() -> None:
    text = HUGGING_FACE.replace("HfArgumentParser", "Trainer")
    with pytest.raises(Exception, match="has no option of argparse, click, typer"):
        propose_from_script(ast.parse(text), Path("train.py"), "train.py")
