"""`tuner db status` and `tuner db upgrade`: what is in a study's database, and its schema."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tuner.cli.error_exit import Edge
from tuner.config import load_study_file
from tuner.config.storage_url import resolve_storage
from tuner.errors import ConfigError

if TYPE_CHECKING:
    from tuner.store.schema.status import DatabaseStatus
    from tuner.store.schema.upgrade import Upgrade

app = typer.Typer(
    name="db",
    help="Shows and upgrades the database of a study.",
    no_args_is_help=True,
)

Source = Annotated[
    str,
    typer.Argument(
        help="A study file or a database URL. '${VARIABLE}' and '${file:PATH}' are replaced, so "
        "that no password is on the command line."
    ),
]


@app.command()
def status(source: Source = "study.yaml") -> None:
    """Shows the type of a database, the revision of its tables, and the number of rows."""
    with Edge(False):
        from tuner.store.schema.status import database_status

        print(_status_text(database_status(_storage_of(source))))


@app.command()
def upgrade(source: Source = "study.yaml") -> None:
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


def _storage_of(source: str) -> str:
    if "://" not in source:
        return load_study_file(Path(source), environ=os.environ).storage
    try:
        return resolve_storage(source, folder=Path.cwd(), environ=os.environ)
    except ValueError as error:
        raise ConfigError(str(error), key="The database URL") from error


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
