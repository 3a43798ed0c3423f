"""Studies in a database of a server, whose password nobody sees; databases of an older tuner."""

from __future__ import annotations

import contextlib
import re
import shlex
import socket
from collections.abc import Iterator
from dataclasses import dataclass
from urllib.parse import quote

import optuna
import psutil
import pytest
import sqlalchemy as sa
import yaml

from tests.contract.store.old_schema import connected, write_database_of_0001
from tests.databases import SERVERS
from tests.e2e.study_folder import StudyFolder, wait_until
from tests.servers import PASSWORD, Server
from tuner.errors import EXIT_BAD_INPUT, EXIT_BUDGET_REACHED
from tuner.store.schema.models import SCHEMA_REVISION

N_TRIALS = 4
#: Else a dispatcher of an older tuner is watched for a minute.
END_OF_ALL = "UPDATE tuner_dispatchers SET ended_at = beat_at WHERE ended_at IS NULL"
#: Programs that start sooner than Python with torch.
ECHO = {"command": ["sh", "-c", "echo '{{\"value\": {x}}}'"]}
PATIENT = {
    "command": [
        "sh",
        "-c",
        "touch begun; until [ -e go ]; do sleep 0.05; done; echo '{{\"value\": {x}}}'",
    ]
}
_SCHEMES = {"postgresql": "postgresql", "mariadb": "mysql"}


@dataclass(frozen=True, kw_only=True)
class Account:
    """A database of a server, and who may use it with a password."""

    #: Of the administrator, who needs no password.
    url: str
    #: As in a study file, with `{}` in the place of the password.
    storage: str

    def rows(self, query: str) -> list[tuple[object, ...]]:
        with connected(self.url) as connection:
            return [tuple(row) for row in connection.execute(sa.text(query))]


@pytest.fixture(params=SERVERS)
def account(request: pytest.FixtureRequest) -> Iterator[Account]:
    server: Server = request.getfixturevalue(request.param)
    url = server.new_database()
    user = server.new_user(url, PASSWORD)
    at = sa.make_url(url)
    place = f"{user}:{{}}@{at.host}:{at.port}/{at.database}"
    yield Account(url=url, storage=f"{_SCHEMES[request.param]}://{place}")
    server.drop_database(url)


def test_study_runs_on_a_server_and_is_continued(
    study_folder: StudyFolder, account: Account
) -> None:
    study_folder.env["DB_PASSWORD"] = PASSWORD
    study_folder.study(trial=ECHO, storage=account.storage.format("${DB_PASSWORD}"))
    none_yet = study_folder.tuner("db", "status")
    assert "schema    none yet: python -m tuner.run makes its tables\n" in none_yet.out
    first = study_folder.tune()
    assert (first.code, first.err) == (EXIT_BUDGET_REACHED, "")
    assert f"{N_TRIALS} completed" in first.out
    second = study_folder.tune("--trials", str(N_TRIALS + 2))
    assert (second.code, second.err) == (EXIT_BUDGET_REACHED, "")

    study = optuna.load_study(study_name="small", storage=account.url)
    assert [t.state.name for t in study.trials] == ["COMPLETE"] * (N_TRIALS + 2)
    assert [t.value for t in study.trials] == [t.params["x"] for t in study.trials]
    outcomes = "SELECT outcome, count(*) FROM tuner_attempts GROUP BY outcome"
    assert account.rows(outcomes) == [("completed", N_TRIALS + 2)]
    assert account.rows("SELECT count(*) FROM tuner_leases WHERE released_at IS NULL") == [(0,)]

    best = study_folder.tuner("best")
    assert best.code == 0, best.err
    (shown,) = yaml.safe_load(best.out)
    assert shown["trial_number"] == study.best_trial.number
    assert shown["values"]["value"] == study.best_value

    status = study_folder.tuner("db", "status", account.storage.format("${DB_PASSWORD}"))
    assert (status.code, status.err) == (0, "")
    assert re.search(r"^server    (PostgreSQL|MariaDB) \d+\.\d+", status.out, re.MULTILINE)
    assert f"schema    {SCHEMA_REVISION}\n" in status.out
    for table in ("trials", "tuner_attempts"):
        assert re.search(rf"^  {table} +{N_TRIALS + 2}$", status.out, re.MULTILINE)


@pytest.mark.parametrize(
    ("account", "place"),
    [("postgresql", "${DB_PASSWORD}"), ("mariadb", "${file:../secret}")],
    indirect=["account"],
    ids=["variable", "file"],
)
def test_password_is_nowhere_to_be_seen(
    study_folder: StudyFolder, account: Account, place: str
) -> None:
    study_folder.is_cold = True  # Its command line is looked at.
    if "file" in place:
        study_folder.write("../secret", PASSWORD + "\n")
    else:
        study_folder.env["DB_PASSWORD"] = PASSWORD
    storage = account.storage.format(place)
    study_folder.study(trial=PATIENT, storage=storage, devices="cpu:1", budget={"trials": 1})
    seen = [study_folder.tune("--dry-run").text]

    running = study_folder.start("--debug")
    wait_until(lambda: "begun" in study_folder.files(), "a trial is at work")
    dispatcher = psutil.Process(running.process.pid)
    for process in (dispatcher, *dispatcher.children(recursive=True)):
        with contextlib.suppress(psutil.NoSuchProcess):
            seen += process.cmdline()
    study_folder.write("go", "")
    ended = running.wait()
    assert ended.code == EXIT_BUDGET_REACHED, ended.text
    nowhere = f"storage={account.storage.rpartition('/')[0].format(place)}/nosuch"
    refused = study_folder.tune("--debug", "--set", nowhere)
    assert refused.code == EXIT_BAD_INPUT
    status = study_folder.tuner("db", "status")
    assert ":***@" in status.out
    seen += [ended.text, refused.text, status.text, *everything_in(account)]
    seen += [p.read_text() for p in study_folder.path.rglob("*") if p.is_file()]
    for secret in (PASSWORD, quote(PASSWORD, safe=""), quote(PASSWORD)):
        assert [text for text in seen if secret in text] == []


def everything_in(account: Account) -> list[str]:
    """The rows of all tables, as text."""
    with connected(account.url) as connection:
        names = sa.inspect(connection).get_table_names()
    assert "tuner_dispatchers" in names
    return [str(row) for name in names for row in account.rows(f"SELECT * FROM {name}")]


# -- databases of an older tuner -------------------------------------------------------------


def test_older_database_is_refused_upgraded_and_continued(study_folder: StudyFolder) -> None:
    file = study_folder.path / "small.db"
    write_database_of_0001(f"sqlite:///{file}")
    study_folder.execute(END_OF_ALL)
    study_folder.study(trial=ECHO)
    refused = study_folder.tune()
    assert refused.code == EXIT_BAD_INPUT
    assert refused.err == (
        f"The database sqlite:///{file} was written by an older tuner (schema 0001; this one needs "
        f"{SCHEMA_REVISION}). Nothing is lost. Bring it up to date: tuner db upgrade "
        f"{shlex.quote(f'sqlite:///{file}')} (takes a study file or a database URL).\n"
    )
    status = study_folder.tuner("db", "status")
    assert f"older than this tuner's {SCHEMA_REVISION}: tuner db upgrade\n" in status.out

    upgraded = study_folder.tuner("db", "upgrade")
    assert (upgraded.code, upgraded.err) == (0, "")
    assert upgraded.out == (
        f"The database is at schema {SCHEMA_REVISION} now; it was at 0001.\n"
        f"As it was before: {file}.bak-0001\n"
    )
    ended = study_folder.tune()
    assert (ended.code, ended.err) == (EXIT_BUDGET_REACHED, "")
    assert study_folder.rows("SELECT count(*) FROM tuner_attempts") == [(3 + N_TRIALS,)]


def test_upgrade_is_refused_while_a_study_runs(study_folder: StudyFolder) -> None:
    study_folder.study(trial=PATIENT, devices="cpu:1", budget={"trials": 1})
    running = study_folder.start()
    wait_until(lambda: "begun" in study_folder.files(), "a trial is at work")
    study_folder.execute("UPDATE tuner_alembic_version SET version_num = '0001'")
    refused = study_folder.tuner("db", "upgrade")
    study_folder.execute(f"UPDATE tuner_alembic_version SET version_num = '{SCHEMA_REVISION}'")
    study_folder.write("go", "")
    assert running.wait().code == EXIT_BUDGET_REACHED
    assert refused.code == EXIT_BAD_INPUT
    place = f"{re.escape(socket.gethostname())} \\(pid {running.process.pid}, since .* UTC\\)"
    assert re.fullmatch(
        f"A study of this database is being run now, on {place}\\. Wait for it, or end it with "
        "Ctrl-C, then upgrade\\.\n",
        refused.err,
    )


def test_upgrade_leaves_optunas_tables_to_optuna(study_folder: StudyFolder) -> None:
    write_database_of_0001(f"sqlite:///{study_folder.path}/small.db")
    study_folder.execute(END_OF_ALL)
    study_folder.execute("UPDATE alembic_version SET version_num = 'v3.0.0.d'")
    ended = study_folder.tuner("db", "upgrade", "sqlite:///small.db")
    assert ended.code == EXIT_BAD_INPUT
    assert ended.out.startswith(f"The database is at schema {SCHEMA_REVISION} now")
    assert "$ optuna storage upgrade --storage $STORAGE_URL" in ended.err


def test_upgrade_of_what_is_no_database_says_so(study_folder: StudyFolder) -> None:
    ended = study_folder.tuner("db", "upgrade", "postgres://h/d")
    assert ended.code == EXIT_BAD_INPUT
    assert "Write postgresql, not postgres." in ended.err
    missing = study_folder.tuner("db", "status", "sqlite:///none.db")
    assert missing.code == EXIT_BAD_INPUT
    assert "There is no database at" in missing.err
    assert study_folder.files() == {"forecast.py"}
