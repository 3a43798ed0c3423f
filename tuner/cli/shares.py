"""`tuner shares`: guaranteed and borrowed devices of this machine's users.

As in `tuner.cli.main`, a command imports what it needs when it is called.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

from tuner.cli.error_exit import Edge
from tuner.errors import EXIT_BAD_INPUT
from tuner.shares.rules import rules_file

app = typer.Typer(
    name="shares",
    help="Shows how the devices of this machine are divided among its users.",
)


@app.callback(invoke_without_command=True)
def show(
    context: typer.Context,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Shows what each user has by right, borrows, waits for, and used in the last day and week."""
    if context.invoked_subcommand is not None:
        return
    with Edge(False):
        from tuner.shares.report import read_shares
        from tuner.terminal.machine.shares import shares_text
        from tuner.terminal.tables import as_json as json_of

        shares = read_shares(os.environ)
        if shares is None and not as_json:
            print(
                "Devices of this machine are first come, first served: it has no "
                f"{rules_file(os.environ) or 'rules of its own inside of an allocation'}. "
                "Studies that run keep the rules with which they began."
            )
        elif as_json:
            print(json_of(shares))
        elif shares is not None:
            print(shares_text(shares))


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
