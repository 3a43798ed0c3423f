"""`tuner init --from` reads scripts whose `argparse` has subcommands."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

from tuner.config.proposals.train_script import propose_from_script

SCRIPT = """
import argparse

parser = argparse.ArgumentParser()
parser.add_argument("--dropout", type=float, default=0.1)
commands = parser.add_subparsers(dest="command", required=True)
sub = commands.add_parser("evaluate")
sub.add_argument("--lr", type=int, default=7)
sub = commands.add_parser("train", help="trains")
sub.add_argument("--lr", type=float, default=0.001)
args = parser.parse_args()
print(f"{args.command} loss {args.lr + args.dropout}")
"""


def test_subcommand_that_trains_stands_before_its_options() -> None:
    proposal = propose_from_script(ast.parse(SCRIPT), Path("train.py"), "train.py")
    assert proposal.command[2:] == ("--dropout={dropout}", "train", "--lr={lr}")
    assert proposal.space["lr"] == {"type": "float", "low": 0.0001, "high": 0.01, "log": True}
    expected = "The command starts the subcommand train of evaluate, train. Check"
    assert any(note.startswith(expected) for note in proposal.notes)


def test_first_subcommand_is_proposed_where_no_name_says_that_it_trains() -> None:
    text = SCRIPT.replace('"train"', '"learn"')
    proposal = propose_from_script(ast.parse(text), Path("train.py"), "train.py")
    assert proposal.command[2:] == ("--dropout={dropout}", "evaluate", "--lr={lr}")


def test_statements_may_share_a_line() -> None:
    text = SCRIPT.replace(")\nsub.add", "); sub.add")
    assert text != SCRIPT
    proposal = propose_from_script(ast.parse(text), Path("train.py"), "train.py")
    assert proposal.command[2:] == ("--dropout={dropout}", "train", "--lr={lr}")


def test_one_subcommand_needs_no_note() -> None:
    text = SCRIPT.replace('commands.add_parser("evaluate")', "parser.add_argument_group()")
    proposal = propose_from_script(ast.parse(text), Path("train.py"), "train.py")
    assert "train" in proposal.command[2:]
    assert not any("subcommand" in note for note in proposal.notes)


@pytest.mark.slow
def test_proposed_command_is_one_that_the_script_takes(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(SCRIPT)
    proposal = propose_from_script(ast.parse(SCRIPT), Path("train.py"), "train.py")
    words = [word.format(dropout=0.25, lr=0.5) for word in proposal.command[1:]]
    ended = subprocess.run(
        [sys.executable, *words], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    assert ended.stdout == "train loss 0.75\n"


CLICK = """
import click

@click.group()
def cli(): ...

@click.command()
@click.option("--lr", default=1e-3)
def train(lr): ...

@click.command("check")
@click.argument("model")
@click.option("--dropout", default=0.1)
def evaluate(model, dropout): ...

cli.add_command(train)
cli.add_command(evaluate)
"""
TYPER = """
import typer
from typing import Annotated
app = typer.Typer()

@app.command("fit")
def new(
    name: str = typer.Option("p"),
    learning_rate: float = typer.Option(1e-3, "--lr", "-l", help="rate"),
    dropout: Annotated[float, typer.Option("--drop")] = 0.1,
): ...

@app.command()
def resume(path: str): ...
"""


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (CLICK, ("train", "--lr={lr}")),
        (CLICK.replace("cli.add_command(train)", "cli.add_command(train, name='go')"), None),
        (CLICK.replace("@click.command()", "@cli.command()"), ("train", "--lr={lr}")),
        (TYPER, ("fit", "--lr={learning_rate}", "--drop={dropout}")),
        # One command of an app is no subcommand.
        (TYPER.partition("@app.command()")[0], ("--lr={learning_rate}", "--drop={dropout}")),
        (CLICK.partition('@click.command("check')[0], ("--lr={lr}",)),
    ],
)
def test_subcommands_of_click_and_typer(text: str, words: tuple[str, ...] | None) -> None:
    proposal = propose_from_script(ast.parse(text), Path("main.py"), "main.py")
    assert proposal.command[2:] == (words or ("go", "--lr={lr}"))
