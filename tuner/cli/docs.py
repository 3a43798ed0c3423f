"""`tuner docs`: the documentation in a browser, without a network."""

from __future__ import annotations

import os
import shlex
from typing import Annotated

import typer

from tuner.cli.error_exit import Edge
from tuner.cli.options import Debug

app = typer.Typer()

_EDGE = {
    "interrupted": "Interrupted. Nothing was changed.",
    "accident": "With --debug it shows where; please report that.",
}


@app.command()
def docs(
    no_browser: Annotated[
        bool, typer.Option("--no-browser", help="Only print the address.")
    ] = False,
    debug: Debug = False,
) -> None:
    """Opens the documentation in a browser, without a network."""
    with Edge(debug, **_EDGE):
        import webbrowser

        from tuner.host.docs_site import build_site, check_installed, find_sources

        sources = find_sources()
        check_installed(sources)
        page = build_site(sources, os.environ)
        print(f"Documentation: {page.as_uri()}", flush=True)
        if not no_browser and not webbrowser.open(page.as_uri()):
            folder = shlex.quote(str(page.parent))
            print(
                "There is no browser here. To read it on another machine: "
                f"python -m http.server --bind 127.0.0.1 --directory {folder} 8000",
                flush=True,
            )
