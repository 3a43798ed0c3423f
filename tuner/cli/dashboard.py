"""`tuner dashboard`: the pages of a database in a browser."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

from tuner.cli.error_exit import Edge
from tuner.cli.options import STUDY_FILE, Debug, Source, Study

app = typer.Typer()

_EDGE = {
    "interrupted": "Interrupted. The dashboard only reads: nothing was changed.",
    "accident": "The dashboard only reads: nothing was changed. With --debug it shows where.",
}


@app.command()
def dashboard(
    source: Source = STUDY_FILE,
    study: Study = None,
    port: Annotated[int, typer.Option(min=1, max=65535, help="TCP port.")] = 8501,
    host: Annotated[
        str,
        typer.Option(
            help="Address to listen on. 0.0.0.0 is every address of this machine: everyone who "
            "can reach it can see everything, including logs."
        ),
    ] = "127.0.0.1",
    token_file: Annotated[
        Path | None,
        typer.Option(
            help="File whose first line is an access token for control in the browser. The "
            "environment variable TUNER_DASHBOARD_TOKEN does the same. Without a token the "
            "dashboard is read-only."
        ),
    ] = None,
    debug: Debug = False,
) -> None:
    """Serves the dashboard of a database: charts, trials, devices and control in a browser."""
    with Edge(debug, **_EDGE):
        from tuner.monitoring.dashboard_process import check_installed, read_token, serve
        from tuner.queries.locate import choose_study, find_place, reading

        check_installed()
        token = read_token(token_file, os.environ)
        place = find_place(source, study, os.environ)
        with reading(place) as (_, connection):
            # Refused here and not in a browser: a database or a study that is not there.
            if study is not None:
                choose_study(connection, place)
        raise typer.Exit(serve(place, host=host, port=port, environ=os.environ, token=token))
