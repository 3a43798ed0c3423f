"""`tuner schedule`: the changes of a trial's parameters over its training.

As in `tuner.cli.main`, a command imports what it needs when it is called.
"""

from __future__ import annotations

import os
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import typer

from tuner.cli.error_exit import Edge
from tuner.cli.options import STUDY_FILE, Debug, Json, Source, Study
from tuner.errors import ConfigError

app = typer.Typer()


@app.command()
def schedule(
    source: Source = STUDY_FILE,
    study: Study = None,
    trial: Annotated[
        int | None,
        typer.Option("--trial", min=0, help="Number of the trial. Default: the best one."),
    ] = None,
    output: Annotated[
        Path | None, typer.Option("-o", "--output", help="File to write, for tuner.load_schedule.")
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace an existing file.")] = False,
    as_json: Json = False,
    debug: Debug = False,
) -> None:
    """Shows the parameters of each step of a trial (pruner: pbt)."""
    with Edge(debug, interrupted="Interrupted.", accident="With --debug it shows where."):
        from tuner.queries.locate import choose_study, find_place, reading
        from tuner.queries.schedules import read_schedule
        from tuner.terminal.schedules import schedule_text

        place, now = find_place(source, study, os.environ), datetime.now(UTC)
        with reading(place) as (_, connection):
            found = read_schedule(connection, choose_study(connection, place), trial, now)
        print(found.as_json() if as_json else schedule_text(found), flush=True)
        if output is not None:
            _write(output, found.as_json(), force=force)


def _write(path: Path, text: str, *, force: bool) -> None:
    """Writes a file.

    Raises:
        ConfigError: If it exists already, or cannot be written.
    """
    try:
        with path.open("w" if force else "x", encoding="utf-8") as file:
            file.write(f"{text}\n")
    except FileExistsError as error:
        problem = "is there already. Give another file, or --force to replace it."
        raise ConfigError(problem, file=str(path)) from error
    except OSError as error:
        problem = f"cannot be written: {error.strerror or error}."
        raise ConfigError(problem, file=str(path)) from error
