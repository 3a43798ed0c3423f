"""`tuner report`: a study's main figures as one HTML file."""

from __future__ import annotations

import os
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import typer

from tuner.cli.error_exit import Edge
from tuner.cli.options import STUDY_FILE, Debug, Source, Study

app = typer.Typer()

_EDGE = {
    "interrupted": "Interrupted. No report was written.",
    "accident": "No report was written. With --debug it shows where; please report that.",
}


@app.command()
def report(
    source: Source = STUDY_FILE,
    study: Study = None,
    output: Annotated[
        Path,
        typer.Option("--output", "-o", help="HTML file to write; an existing one is replaced."),
    ] = Path("report.html"),
    debug: Debug = False,
) -> None:
    """Writes the main figures of a study to one HTML file, which needs no server."""
    with Edge(debug, **_EDGE):
        from tuner.errors import ConfigError
        from tuner.monitoring.dashboard_process import check_installed
        from tuner.queries.locate import choose_study, find_place, reading

        check_installed()
        place = find_place(source, study, os.environ)
        with reading(place) as (_, connection):
            chosen = choose_study(connection, place)
        from tuner.app.report import write_report

        try:
            write_report(place.url, chosen, output, datetime.now(UTC))
        except OSError as error:
            problem = f"is {output}, which can't be written: {error.strerror}."
            raise ConfigError(problem, key="--output") from error
        print(f"Report of study {chosen.name!r}: {output}", flush=True)
