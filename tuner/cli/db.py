"""`tuner db`: a database server, a database's content and schema, and backups."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tuner.cli.error_exit import Edge
from tuner.cli.options import STUDY_FILE, Source

if TYPE_CHECKING:
    from tuner.store.schema.status import DatabaseStatus
    from tuner.store.schema.upgrade import Upgrade

app = typer.Typer(
    name="db",
    help="Serves, shows, upgrades, dumps and restores the database of a study.",
    no_args_is_help=True,
)


@app.command()
def status(source: Source = STUDY_FILE) -> None:
    """Shows the type of a database, the revision of its tables, and the number of rows."""
    with Edge(False):
        from tuner.store.schema.status import database_status

        print(_status_text(database_status(_storage_of(source))))


@app.command()
def upgrade(source: Source = STUDY_FILE) -> None:
    """Upgrades the tables of the tuner. No study of the database may be running.

    An SQLite file is copied first. MySQL cannot roll back a failed upgrade: make a backup
    first (mysqldump).
    """
    with Edge(False):
        from tuner.host.process_identity import own_process
        from tuner.store.connection.database import open_database
        from tuner.store.schema.upgrade import upgrade_database

        url = _storage_of(source)
        done = upgrade_database(url, here=own_process())
        print(_upgrade_text(done))
        if done.before is not None:
            # Says what to do, should Optuna's own tables be those of an older Optuna.
            open_database(url, read_only=True).close()


@app.command()
def serve(
    folder: Annotated[
        Path, typer.Option(help="Where the server keeps its data; it is made if it is missing.")
    ],
    host: Annotated[
        str, typer.Option(help="Address to listen on; 0.0.0.0 for all of this machine's.")
    ] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=1, max=65535, help="Port to listen on.")] = 5432,
    no_tls: Annotated[
        bool,
        typer.Option(
            "--no-tls",
            help="Let other machines connect without encryption. The password is not sent in "
            "the clear, but data is.",
        ),
    ] = False,
) -> None:
    """Runs a PostgreSQL server until Ctrl-C, and prints the line for storage.

    It uses the PostgreSQL of the system, or that of the extra gpu-tuner[server]. The password is
    in a file of the folder that only you can read. If --host is not of this machine alone, other
    machines must use TLS.
    """
    with Edge(False):
        from tuner.store.server.serve import Address, serve

        raise typer.Exit(serve(folder, Address(host=host, port=port), without_tls=no_tls, say=_say))


@app.command()
def backup(
    source: Source = STUDY_FILE,
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", help="The file; else its name has the date."),
    ] = None,
) -> None:
    """Writes the database into one file. Studies may be running.

    PostgreSQL: a dump of pg_dump, which `tuner db restore` reads. SQLite: a copy, which is a
    database itself. MySQL: use mysqldump.
    """
    with Edge(False):
        from tuner.store.server.backup import back_up

        print(f"Written: {back_up(_storage_of(source), output)}")


@app.command()
def restore(
    dump: Annotated[Path, typer.Argument(help="A file of `tuner db backup`, from PostgreSQL.")],
    source: Source = STUDY_FILE,
) -> None:
    """Restores a dump into an empty PostgreSQL database. On an error nothing is changed."""
    with Edge(False):
        from tuner.store.server.backup import restore_dump

        restore_dump(_storage_of(source), dump)
        print(f"Restored: {dump}")


def _say(line: str) -> None:
    print(line, flush=True)


def _storage_of(source: str) -> str:
    from tuner.queries.locate import find_place

    return find_place(source, None, os.environ).url


def _status_text(status: DatabaseStatus) -> str:
    from tuner.store.schema.models import SCHEMA_REVISION

    revision = status.revision or "none yet: python -m tuner.run makes its tables"
    if status.revision is not None and status.revision < SCHEMA_REVISION:
        revision += f", older than this tuner's {SCHEMA_REVISION}: tuner db upgrade"
    if status.revision is not None and status.revision > SCHEMA_REVISION:
        revision += f", newer than this tuner's {SCHEMA_REVISION}: pip install -U gpu-tuner"
    facts = {
        "database": status.url,
        "server": status.server,
        "schema": revision,
        "optuna": status.optuna_revision or "none yet",
        "size": f"{status.size_bytes / 2**20:,.1f} MiB",
    }
    width = max(map(len, status.rows), default=0)
    lines = [f"{name:<9} {value}" for name, value in facts.items()]
    return "\n".join([*lines, *(f"  {name:<{width}} {n:>12,}" for name, n in status.rows.items())])


def _upgrade_text(done: Upgrade) -> str:
    from tuner.store.schema.models import SCHEMA_REVISION

    if done.before is None:
        return "There is nothing to upgrade: the database has none of the tuner's tables yet."
    if done.before == SCHEMA_REVISION:
        return f"The database is at schema {SCHEMA_REVISION} already. Nothing was done."
    lines = [f"The database is at schema {SCHEMA_REVISION} now; it was at {done.before}."]
    if done.backup is not None:
        lines.append(f"As it was before: {done.backup}")
    return "\n".join(lines)
