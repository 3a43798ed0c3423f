"""Arguments and options that several commands have."""

from __future__ import annotations

from typing import Annotated

import typer

STUDY_FILE = "study.yaml"
#: What each verb takes.
A_STUDY = (
    "A study file, a database URL, an SQLite file, or the name of a study in the database of "
    f"{STUDY_FILE}. In a URL, ${{VARIABLE}} and ${{file:PATH}} are replaced."
)

Source = Annotated[str, typer.Argument(metavar="[STUDY]", help=A_STUDY, show_default=True)]
Study = Annotated[
    str | None, typer.Option("--study", help="Name of the study, if the database has several.")
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]
Debug = Annotated[bool, typer.Option("--debug", help="Show tracebacks.")]
