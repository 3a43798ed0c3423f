"""`tuner shares`: who has which devices of this machine by right, and who borrows.

As in `tuner.cli.main`, a command imports what it needs when it is called.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

from tuner.cli.error_exit import Edge
from tuner.errors import EXIT_BAD_INPUT

app = typer.Typer(
    name="shares",
    help="Shows how the devices of this machine are divided among its users.",
    invoke_without_command=True,
)


@app.command()
def check(
    file: Annotated[
        Path | None,
        typer.Argument(help="The rules file. Default: /etc/tuner/shares.yaml.", show_default=False),
    ] = None,
) -> None:
    """Checks the rules file of this machine."""
    with Edge(False):
        from tuner.compose.sharing.rules import check_file

        report = check_file(file, os.environ)
        print(report.text)
        raise typer.Exit(EXIT_BAD_INPUT if report.is_wrong else 0)
