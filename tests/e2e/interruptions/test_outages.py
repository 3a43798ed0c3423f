"""Databases that are restarted, cut off, frozen, locked or full in the middle of a study."""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import optuna
import pytest
import sqlalchemy as sa

from tests.databases import ONE_SERVER_BY_DAY, SERVERS
from tests.e2e.study_folder import Running, StudyFolder, wait_until
from tests.proxy import Proxy
from tests.servers import Mariadb, Postgresql, run_mariadb, run_postgresql, wait_for
from tuner.errors import EXIT_BUDGET_REACHED

N_STEPS = 5
# Each step leaves a trace that does not need the database.
TRACEABLE = f"""
import time
from pathlib import Path

import optuna

def train(trial):
    x = trial.params["x"]
    for step in range({N_STEPS}):
        trial.report(x, step)
        if trial.should_prune():
            raise optuna.TrialPruned
        with Path("steps").open("a") as file:
            file.write(".")
        while Path("pause").exists():
            time.sleep(0.02)
        time.sleep(0.1)
    return 2 * x
"""
BACK = "The database can be written again, after "
_ATTEMPTS = """
    SELECT a.trial_id, a.state, a.outcome, count(l.id), count(l.released_at)
    FROM tuner_attempts a JOIN tuner_leases l ON l.attempt_id = a.id
    GROUP BY a.id, a.trial_id, a.state, a.outcome
"""


@dataclass(frozen=True, kw_only=True)
class Site:
    """A study folder whose study is in a server's database, behind a network."""

    folder: StudyFolder
    server: Postgresql | Mariadb
    proxy: Proxy
    #: Past the proxy.
    url: str

    def start(self) -> Running:
        return self.folder.start()

    @property
    def n_steps(self) -> int:
        """Steps of all trials, whether the database knows or not."""
        return n_steps(self.folder)

    def wait_for_steps(self, n_more: int) -> None:
        enough = self.n_steps + n_more
        wait_until(lambda: self.n_steps >= enough, f"{n_more} more steps were made")


def n_steps(folder: StudyFolder) -> int:
    path = folder.path / "steps"
    return len(path.read_text()) if path.exists() else 0


@contextlib.contextmanager
def site(folder: StudyFolder, server: Postgresql | Mariadb) -> Iterator[Site]:
    url = server.new_database()
    folder.write("forecast.py", TRACEABLE)
    with Proxy(server.port) as proxy:
        through = sa.make_url(url).set(port=proxy.port)
        folder.env["STORAGE"] = through.render_as_string(hide_password=False)
        yield Site(folder=folder, server=server, proxy=proxy, url=url)
        folder.end_all()
    server.drop_database(url)


@pytest.fixture(params=SERVERS)
def shared_site(request: pytest.FixtureRequest, study_folder: StudyFolder) -> Iterator[Site]:
    with site(study_folder, request.getfixturevalue(request.param)) as made:
        yield made


@pytest.fixture(params=SERVERS)
def own_site(request: pytest.FixtureRequest, study_folder: StudyFolder) -> Iterator[Site]:
    """On a server of its own, which may be stopped."""
    is_postgresql = request.param == "postgresql"
    run = run_postgresql() if is_postgresql else run_mariadb(is_durable=True)
    with run as server, site(study_folder, server) as made:
        yield made


#: How each driver tells of a lost connection is tried by the restart and the cut commits.
one_server_by_day = pytest.mark.parametrize("shared_site", ONE_SERVER_BY_DAY, indirect=True)


def a_study(folder: StudyFolder, n_trials: int, **keys: object) -> None:
    defaults: dict[str, object] = {
        "storage": "${STORAGE}",
        "pruner": "none",
        "budget": {"trials": n_trials},
    }
    folder.study(**defaults | keys)


def check_books(url: str, n_trials: int) -> None:
    """All trials are there and complete, for Optuna and in the tuner's own tables."""
    storage = optuna.storages.RDBStorage(url, engine_kwargs={"poolclass": sa.NullPool})
    trials = optuna.load_study(study_name="small", storage=storage).get_trials()
    assert [trial.number for trial in trials] == list(range(n_trials))
    assert {trial.state.name for trial in trials} == {"COMPLETE"}
    assert all(trial.value == 2 * trial.params["x"] for trial in trials)
    steps = dict.fromkeys(range(N_STEPS))
    for trial in trials:
        assert trial.intermediate_values == dict.fromkeys(steps, trial.params["x"])
    with storage.engine.connect() as connection:
        attempts = connection.execute(sa.text(_ATTEMPTS)).all()
    done = [trial_id for trial_id, _, outcome, _, _ in attempts if outcome == "completed"]
    assert sorted(done) == [trial._trial_id for trial in trials]
    assert {state for _, state, _, _, _ in attempts} == {"finished"}
    assert {(held, released) for _, _, _, held, released in attempts} == {(1, 1)}


def check_end(running: Running, url: str, n_trials: int, **options: Any) -> None:
    ended = running.wait(**options)
    assert (ended.code, ended.err) == (EXIT_BUDGET_REACHED, ""), ended.text
    check_books(url, n_trials)


def test_server_that_is_restarted(own_site: Site) -> None:
    a_study(own_site.folder, 6)
    running = own_site.start()
    own_site.wait_for_steps(3)
    own_site.server.daemon.stop()
    own_site.wait_for_steps(2)
    own_site.server.daemon.start()
    wait_for(own_site.server)
    check_end(running, own_site.url, 6)


@one_server_by_day
def test_server_that_cannot_be_reached_for_a_while(shared_site: Site) -> None:
    a_study(shared_site.folder, 8)
    running = shared_site.start()
    shared_site.wait_for_steps(4)
    shared_site.proxy.cut()
    before = shared_site.n_steps
    wait_until(lambda: "no trial starts" in running.out, "it says so")
    assert "Training continues" in running.out
    # Those that ran have ended meanwhile.
    assert shared_site.n_steps > before
    assert BACK not in running.out
    shared_site.proxy.restore()
    wait_until(lambda: BACK in running.out, "it says that it is over")
    check_end(running, shared_site.url, 8)


@one_server_by_day
def test_server_that_says_nothing_at_all(shared_site: Site) -> None:
    a_study(shared_site.folder, 8)
    running = shared_site.start()
    shared_site.wait_for_steps(3)
    shared_site.proxy.freeze()
    wait_until(lambda: "no trial starts" in running.out, "it says so")
    assert "has not answered for 2 s" in running.out
    shared_site.proxy.thaw()
    check_end(running, shared_site.url, 8)


@pytest.mark.parametrize("is_heard", [True, False], ids=["written", "not-written"])
def test_connection_that_is_cut_in_a_commit(shared_site: Site, is_heard: bool) -> None:
    a_study(shared_site.folder, 8)
    running = shared_site.start()
    shared_site.wait_for_steps(1)
    n_cuts = 4
    for number in range(n_cuts):
        shared_site.proxy.cut_at(b"COMMIT", is_heard=is_heard, after=number)
        wait_until(lambda n=number: shared_site.proxy.n_cut > n, "a commit is cut")
    check_end(running, shared_site.url, 8)


# By day: one dispatcher (above), and test_the_minute_begins_anew_after_an_outage of
# tests/integration/store/test_peers.py.
@pytest.mark.nightly
@pytest.mark.timeout(300)
@pytest.mark.parametrize("shared_site", ["postgresql"], indirect=True)
def test_two_dispatchers_whose_server_is_away_for_a_minute(shared_site: Site) -> None:
    a_study(shared_site.folder, 16)
    fleet = [shared_site.start(), shared_site.start()]
    wait_until(lambda: all(": started on" in one.out for one in fleet), "both work")
    shared_site.proxy.cut()
    # It says so again after a minute.
    for one in fleet:
        wait_until(lambda one=one: one.out.count("no trial starts") == 2, "a minute", 90.0)
    shared_site.proxy.restore()
    for one in fleet:
        check_end(one, shared_site.url, 16)
        assert "is gone" not in one.out, "one took the other for dead, who could not write"


def test_sqlite_file_that_another_program_has_locked(study_folder: StudyFolder) -> None:
    study_folder.write("forecast.py", TRACEABLE)
    a_study(study_folder, 8, storage=None)
    running = study_folder.start()
    wait_until(lambda: n_steps(study_folder) > 3, "trials run")
    with contextlib.closing(sqlite3.connect(study_folder.path / "small.db", timeout=30)) as other:
        other.execute("BEGIN IMMEDIATE")
        before = n_steps(study_folder)
        wait_until(lambda: "no trial starts" in running.out, "it says so")
        assert n_steps(study_folder) > before
        other.rollback()
    check_end(running, f"sqlite:///{study_folder.path}/small.db", 8)
