"""`tuner studies`, `status`, `trials` and the commands that change stored studies.

Each takes a study file, a database URL or an SQLite file, and works while a study runs. As in
`tuner.cli.main`, a command imports what it needs when it is called.
"""

from __future__ import annotations

import os
import sys
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from tuner.cli.error_exit import Edge
from tuner.cli.options import STUDY_FILE, Debug, Json, Source, Study
from tuner.errors import ConfigError

app = typer.Typer()

_EDGE = {
    "interrupted": "Interrupted. Nothing was changed.",
    "accident": "Nothing was changed. With --debug it shows where; please report that.",
}
_EDGE_OF_DELETE = {
    "interrupted": "Interrupted. A study goes as a whole or not at all: `tuner studies` shows it.",
    "accident": "A study goes as a whole or not at all: `tuner studies` shows it.",
}


@app.command()
def studies(source: Source = STUDY_FILE, as_json: Json = False, debug: Debug = False) -> None:
    """Lists all studies of a database with their trials, best values and dispatchers."""
    with Edge(debug, **_EDGE):
        from tuner.queries.locate import find_place, reading
        from tuner.queries.studies import read_studies
        from tuner.terminal.studies import studies_text
        from tuner.terminal.tables import as_json as json_of

        place, now = find_place(source, None, os.environ), datetime.now(UTC)
        with reading(place) as (_, connection):
            found = read_studies(connection, now)
        _print(json_of(found) if as_json else studies_text(found, now, place.shown))


@app.command()
def status(
    source: Source = STUDY_FILE,
    study: Study = None,
    as_json: Json = False,
    debug: Debug = False,
) -> None:
    """Shows the progress of a study, its running trials and its dispatchers.

    Exit codes: 0 the study is running or has reached its end; 1 it has reached its end, and every
    trial failed; 2 it does not exist, or its database cannot be read; 3 it was stopped before its
    end; 4 its dispatchers have written nothing for a minute.
    """
    with Edge(debug, **_EDGE):
        from tuner.cli.engines import look_again
        from tuner.queries.dispatchers import living_here
        from tuner.queries.locate import choose_study, find_place, reading
        from tuner.queries.status import read_status
        from tuner.shares.report import read_waits
        from tuner.terminal.studies import status_text
        from tuner.terminal.tables import as_json as json_of

        place, now = find_place(source, study, os.environ), datetime.now(UTC)
        budget = place.config.budget if place.config else None
        look_again(place)
        with reading(place) as (_, connection):
            found = read_status(connection, choose_study(connection, place), budget, now)
        waits = read_waits(os.environ, living_here(found.dispatchers))
        _print(json_of(found) if as_json else status_text(found, now, waits))
        raise typer.Exit(found.exit_code)


@app.command()
def trials(
    source: Source = STUDY_FILE,
    study: Study = None,
    states: Annotated[
        list[str] | None,
        typer.Option(
            "--state",
            help="completed, pruned, failed, running, waiting or an outcome. Repeat for more.",
        ),
    ] = None,
    sort: Annotated[
        str | None,
        typer.Option(help="Sort by number, value, duration or the name of an objective."),
    ] = None,
    top: Annotated[int | None, typer.Option(min=1, help="Only the best N trials.")] = None,
    last: Annotated[int | None, typer.Option(min=1, help="Only the newest N trials.")] = None,
    as_json: Json = False,
    as_csv: Annotated[bool, typer.Option("--csv", help="Print CSV.")] = False,
    reports: Annotated[
        bool, typer.Option("--reports", help="With --json: include learning curves.")
    ] = False,
    debug: Debug = False,
) -> None:
    """Lists the trials of a study, the newest last."""
    with Edge(debug, **_EDGE):
        from tuner.queries.locate import choose_study, find_place, reading
        from tuner.queries.studies import read_objectives
        from tuner.queries.trials.listing import Choice, read_trials
        from tuner.terminal import trials as show_trials

        place = find_place(source, study, os.environ)
        choice = Choice(states=frozenset(states or ()), sort=sort, top=top, last=last)
        with reading(place) as (_, connection):
            stored = choose_study(connection, place)
            objectives = read_objectives(connection)[stored.id]
            found = read_trials(
                connection,
                stored.id,
                objectives,
                choice,
                now=datetime.now(UTC),
                with_reports=reports and as_json,
            )
        if as_json:
            _print(show_trials.trials_json(found))
        elif as_csv:
            sys.stdout.write(show_trials.trials_csv(found, objectives))
        else:
            _print(show_trials.trials_text(found, objectives))


@app.command()
def export(
    file: Annotated[Path, typer.Option("-o", "--output", help="SQLite file to write.")],
    source: Source = STUDY_FILE,
    study: Study = None,
    force: Annotated[bool, typer.Option("--force", help="Replace an existing file.")] = False,
    debug: Debug = False,
) -> None:
    """Exports a study and its confirmation runs to an SQLite file."""
    with Edge(debug, **_EDGE):
        from tuner.actions.transfer.export_import import export_study
        from tuner.queries.locate import find_place

        done = export_study(find_place(source, study, os.environ), file, force=force)
        _print(f"Study {done.study!r} with {_n_trials(done.n_trials)} is in {file}.")


@app.command("import")
def import_(
    origin: Annotated[
        str,
        typer.Argument(metavar="FILE|URL", help="A file of `tuner export`, or an Optuna database."),
    ],
    source: Annotated[
        str,
        typer.Argument(
            metavar="[STUDY]", help="Target: a study file, a database URL or an SQLite file."
        ),
    ] = STUDY_FILE,
    study: Annotated[
        str | None, typer.Option("--study", help="Name of the study in FILE|URL.")
    ] = None,
    new_name: Annotated[str | None, typer.Option("--as", help="New name of the study.")] = None,
    debug: Debug = False,
) -> None:
    """Imports a study from a file or another database."""
    with Edge(debug, **_EDGE):
        from tuner.actions.transfer.export_import import check_importable, import_study
        from tuner.queries.locate import find_place

        check_importable(origin)
        done = import_study(
            find_place(origin, study, os.environ),
            new_name,
            lambda name: find_place(source, name, os.environ, is_new=True),
        )
        _print(
            f"Study {done.study!r} with {_n_trials(done.n_trials)} is in {done.target.shown} now."
        )


@app.command()
def enqueue(
    params: Annotated[
        list[str],
        typer.Option(
            "--params",
            metavar="MAPPING|FILE",
            help="Configuration such as '{lr: 0.1}', or a .yaml, .json or .csv file with some.",
        ),
    ],
    source: Source = STUDY_FILE,
    study: Study = None,
    skip_existing: Annotated[
        bool, typer.Option("--skip-existing", help="Skip configurations that a trial already has.")
    ] = False,
    debug: Debug = False,
) -> None:
    """Queues configurations to be tried first. Parameters that they lack are sampled."""
    with Edge(debug, **_EDGE):
        from tuner.actions.commands import whoever_asks
        from tuner.actions.config_input import read_given
        from tuner.actions.enqueue import enqueue as enqueue_all
        from tuner.queries.locate import find_place
        from tuner.terminal.changes import enqueued_text

        given = read_given(params)
        place = find_place(source, study, os.environ, is_new=True)
        done = enqueue_all(place, given, skip_existing=skip_existing, asked_by=whoever_asks())
        _print(enqueued_text(done, place.config))


@app.command()
def copy(
    new_name: Annotated[str, typer.Option("--to", help="Name of the new study.")],
    source: Source = STUDY_FILE,
    study: Study = None,
    space: Annotated[
        Path | None,
        typer.Option(
            "--space", help="Study file or YAML file with the search space of the new study."
        ),
    ] = None,
    to_storage: Annotated[
        str | None,
        typer.Option(
            "--to-storage", help="URL of the database of the new study. Default: the same."
        ),
    ] = None,
    debug: Debug = False,
) -> None:
    """Creates a study from the trials of another one that fit the new search space."""
    with Edge(debug, **_EDGE):
        from tuner.actions.transfer.copy import copy_study
        from tuner.actions.transfer.copy_plan import plan_copy
        from tuner.terminal.changes import copied_text

        plan = plan_copy(source, study, new_name, space, to_storage, os.environ)
        done = copy_study(plan.origin, plan.target, plan.space, plan.config)
        _print(copied_text(done, plan.target, plan.config))


@app.command()
def delete(
    source: Source = STUDY_FILE,
    study: Study = None,
    files: Annotated[
        bool,
        typer.Option(
            "--files",
            help="Also delete logs and checkpoints, here and in the object "
            "store. Needs a study file.",
        ),
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
    debug: Debug = False,
) -> None:
    """Deletes a study on which no dispatcher works."""
    with Edge(debug, **_EDGE_OF_DELETE):
        from tuner.actions import delete as verb
        from tuner.actions.delete_objects import delete_objects, measure_objects
        from tuner.host.process_identity import own_process
        from tuner.queries.locate import find_place
        from tuner.terminal.changes import deleted_text, question

        place, here = find_place(source, study, os.environ), own_process()
        verb.check_is_named(place, with_files=files)
        extent = verb.measure(place, here, partial(print, file=sys.stderr))
        extent_of_files = verb.measure_files(place, extent) if files else None
        folders = extent.object_folders if files else ()
        objects = [measure_objects(folder, os.environ) for folder in folders]
        if not yes:
            _confirm(question(extent, extent_of_files, place, objects))
        verb.delete_study(place, here, extent.silent)
        if extent_of_files is not None:
            verb.delete_files(extent_of_files)
        for each in objects:
            delete_objects(each, os.environ)
        _print(deleted_text(extent, extent_of_files, place, objects))


def _confirm(question: str) -> None:
    if not sys.stdin.isatty():
        raise ConfigError(f"{question}\nThere is no terminal to ask in. Confirm with --yes.")
    try:
        is_wanted = typer.confirm(question)
    except typer.Abort as error:
        raise KeyboardInterrupt from error
    if not is_wanted:
        _print("Nothing was deleted.")
        raise typer.Exit(1)


def _n_trials(n: int) -> str:
    return f"{n} trial" + ("" if n == 1 else "s")


def _print(text: str) -> None:
    # At once, so that the edge detects a closed pipe.
    print(text, flush=True)
