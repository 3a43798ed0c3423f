"""A study goes to a file and comes back the same, on each kind of database."""

from __future__ import annotations

import json
import os
import sqlite3
from collections.abc import Callable
from datetime import datetime
from pathlib import Path

import optuna
import pytest
import sqlalchemy as sa
from optuna.trial import TrialState

from tests.integration.stored_studies.seeded import (
    a_trial,
    add_allocation,
    add_attempt,
    add_dispatcher,
    add_first_study,
    add_study,
    add_upload,
    dump,
    first_trials,
    load,
    looking,
    n_rows,
    place,
    study_id,
)
from tuner.actions.close_running import CloseRunning
from tuner.actions.transfer.export_import import check_importable, export_study, import_study
from tuner.actions.transfer.row_transfer import Transfer
from tuner.actions.transfer.study_tables import SHARED, study_tables
from tuner.domain.attempt import AttemptState, Cause, Outcome
from tuner.errors import ConfigError, StoreError
from tuner.queries.locate import Place, find_place, writing
from tuner.store.connection.database import open_database
from tuner.store.schema.models import AttemptRow, DispatcherRow, LeaseRow, TunerBase, table_of


def there(url: str) -> Callable[[str], Place]:
    return lambda name: place(url, name)


def file_place(file: Path, study: str | None = None) -> Place:
    return find_place(str(file), study, os.environ)


def add_finished_study(url: str, name: str = "first") -> None:
    add_study(url, name, [each for each in first_trials() if each.state != TrialState.RUNNING])
    allocation_id = add_allocation(url, name)
    ended = add_dispatcher(url, name, is_ended=True, allocation_id=allocation_id)
    add_attempt(url, ended, 0)
    add_attempt(url, ended, 3, outcome=Outcome.FAILED)
    add_upload(url, name, 0)


def test_round_trip_changes_nothing(url: str, tmp_path: Path) -> None:
    add_study(url, "other", [a_trial({"lr": 0.1}, 0.1)])
    add_finished_study(url)
    add_attempt(url, add_dispatcher(url, "other", is_ended=True), 0)
    before, optunas = dump(url, "first"), load(url, "first")
    assert min(len(rows) for name, rows in before.items() if name not in NOT_MOVED) > 0

    moved = export_study(place(url, "first"), tmp_path / "first.db", force=False)
    assert (moved.study, moved.n_trials) == ("first", 7)
    assert [each.name for each in tmp_path.glob("first.db*")] == ["first.db"]
    assert as_sqlite_has_it(dump(f"sqlite:///{tmp_path}/first.db", "first")) == as_sqlite_has_it(
        before
    )

    moved = import_study(file_place(tmp_path / "first.db"), "back", there(url))
    assert (moved.study, moved.n_trials) == ("back", 7)
    assert renamed(dump(url, "back"), "first") == before
    assert dump(url, "first") == before
    assert same_but_for_ids(load(url, "back")) == same_but_for_ids(optunas)


#: Of a trial that runs, and of those who run it, who are nowhere but there.
NOT_MOVED = ("trial_heartbeats", "tuner_claims", "tuner_commands")


def renamed(found: dict, name: str) -> dict:
    found["studies"][0]["study_name"] = name
    return found


def as_sqlite_has_it(found: dict) -> str:
    return json.dumps(found, default=str, sort_keys=True)


def same_but_for_ids(loaded: tuple) -> tuple:
    """As text: NaN is no equal of itself."""
    attributes, trials = loaded
    whole = [{key: _text(each) for key, each in vars(trial).items()} for trial in trials]
    return attributes, [{**each, "_trial_id": ""} for each in whole]


def _text(value: object) -> str:
    match value:
        case dict():
            return str(sorted(value.items()))
        case datetime():
            return str(value.replace(microsecond=0))  # Optuna's tables on MySQL hold no more.
    return str(value)


def test_file_is_a_database_like_any_other(url: str, tmp_path: Path) -> None:
    add_finished_study(url)
    export_study(place(url), tmp_path / "first.db", force=False)
    study = optuna.load_study(study_name="first", storage=f"sqlite:///{tmp_path}/first.db")
    assert study.user_attrs == load(url, "first")[0]
    assert len(study.trials) == 7
    study._storage._backend.engine.dispose()  # type: ignore[attr-defined]


def test_what_ran_waits_in_the_copy(url: str, tmp_path: Path) -> None:
    add_first_study(url)
    before = dump(url, "first")
    export_study(place(url), tmp_path / "first.db", force=False)
    assert dump(url, "first") == before
    import_study(file_place(tmp_path / "first.db"), "back", there(url))
    with looking(url) as connection:
        found = {
            row: connection.execute(sa.select(table_of(row)).order_by(table_of(row).c.id)).all()
            for row in (DispatcherRow, AttemptRow, LeaseRow)
        }
    dispatcher, attempt, lease = (rows[-1] for rows in found.values())
    assert dispatcher.ended_at == dispatcher.beat_at
    assert (attempt.state, attempt.outcome) == (AttemptState.FINISHED, Outcome.LOST)
    assert (attempt.cause, attempt.finished_at) == (Cause.DISPATCHER_GONE, dispatcher.beat_at)
    assert (lease.held_device_id, lease.released_at) == (None, dispatcher.beat_at)
    states = [trial.state for trial in load(url, "back")[1]]
    assert states[4] is TrialState.WAITING
    assert TrialState.RUNNING not in states
    assert load(url, "back")[1][4].params == load(url, "first")[1][4].params


def test_hosts_and_devices_are_known_again(url: str, tmp_path: Path) -> None:
    add_first_study(url)
    export_study(place(url), tmp_path / "first.db", force=False)
    before = n_shared(url)
    import_study(file_place(tmp_path / "first.db"), "back", there(url))
    assert n_shared(url) == before == {"tuner_hosts": 1, "tuner_devices": 2}


def n_shared(url: str) -> dict[str, int]:
    with looking(url) as connection:
        return {
            name: connection.execute(sa.text(f"SELECT count(*) FROM {name}")).scalar_one()
            for name in SHARED
        }


def test_study_of_optuna_alone_is_imported(url: str, tmp_path: Path) -> None:
    plain = tmp_path / "plain.db"
    add_study(f"sqlite:///{plain}", "theirs", first_trials(), space=None)
    add_study(f"sqlite:///{plain}", "not this", [], space=None)
    bytes_before = plain.read_bytes()
    import_study(file_place(plain, "theirs"), None, there(url))
    theirs, ours = load(f"sqlite:///{plain}", "theirs"), load(url, "theirs")
    assert ours[1][4].state is TrialState.WAITING
    del theirs[1][4], ours[1][4]
    assert same_but_for_ids(ours) == same_but_for_ids(theirs)
    assert n_rows(url)["studies"] == 1
    assert bytes_before == plain.read_bytes()


def test_study_of_a_server_is_imported(url: str, tmp_path: Path) -> None:
    add_finished_study(url)
    target = f"sqlite:///{tmp_path}/target.db"
    import_study(place(url, "first"), None, there(target))
    assert as_sqlite_has_it(dump(target, "first")) == as_sqlite_has_it(dump(url, "first"))


def test_study_is_copied_within_a_database(url: str) -> None:
    add_finished_study(url)
    import_study(place(url, "first"), "twin", there(url))
    assert renamed(dump(url, "twin"), "first") == dump(url, "first")


def test_many_rows_go_in_batches(url: str, tmp_path: Path) -> None:
    curve = {step: step / 7 for step in range(1000)}
    add_study(url, "first", [a_trial({}, 0.5, intermediate_values=curve) for _ in range(5)])
    export_study(place(url), tmp_path / "first.db", force=False)
    trials = load(f"sqlite:///{tmp_path}/first.db", "first")[1]
    assert [trial.intermediate_values for trial in trials] == [curve] * 5


# -- refusals --------------------------------------------------------------------------------


def test_name_that_is_taken_is_refused(url: str, tmp_path: Path) -> None:
    add_finished_study(url)
    export_study(place(url), tmp_path / "first.db", force=False)
    before = n_rows(url)
    with pytest.raises(StoreError, match=r"has a study 'first' already\. Give it another .* --as"):
        import_study(file_place(tmp_path / "first.db"), None, there(url))
    assert n_rows(url) == before


def test_file_that_is_there_is_kept(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/study.db"
    add_finished_study(url)
    (tmp_path / "first.db").write_text("mine")
    with pytest.raises(ConfigError, match=r"exists already. Name another file, or .* --force"):
        export_study(place(url), tmp_path / "first.db", force=False)
    assert (tmp_path / "first.db").read_text() == "mine"
    export_study(place(url), tmp_path / "first.db", force=True)
    assert len(load(f"sqlite:///{tmp_path}/first.db", "first")[1]) == 7


def test_folder_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"none/first.db: cannot be written"):
        export_study(place("sqlite:///x.db"), tmp_path / "none" / "first.db", force=False)


def test_failed_export_leaves_the_old_file(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/study.db"
    add_finished_study(url)
    (tmp_path / "first.db").write_text("mine")
    with pytest.raises(StoreError, match=r"has no study 'frist'. Did you mean 'first'"):
        export_study(place(url, "frist"), tmp_path / "first.db", force=True)
    assert (tmp_path / "first.db").read_text() == "mine"
    assert sorted(each.name for each in tmp_path.iterdir()) == ["first.db", "study.db"]


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("none.db", "none.db: there is no such file. Give a file that `tuner export` has written"),
        ("notes.txt", "notes.txt: holds no study. Give a file that `tuner export` has written"),
    ],
)
def test_what_is_no_study_is_refused(name: str, message: str, tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("Dear diary")
    with pytest.raises(ConfigError, match=message):
        check_importable(str(tmp_path / name))


def test_other_programs_database_is_refused(tmp_path: Path) -> None:
    other = tmp_path / "other.db"
    with sqlite3.connect(other) as connection:
        connection.execute("CREATE TABLE bookmarks (url TEXT)")
    connection.close()
    with pytest.raises(ConfigError, match=r"other.db: .* neither Optuna nor the tuner has a study"):
        import_study(file_place(other), None, there(f"sqlite:///{tmp_path}/study.db"))
    assert not (tmp_path / "study.db").exists()


def test_damaged_file_is_refused(tmp_path: Path) -> None:
    whole = tmp_path / "whole.db"
    add_finished_study(f"sqlite:///{whole}")
    damaged = tmp_path / "damaged.db"
    damaged.write_bytes(whole.read_bytes()[:20_000])
    with pytest.raises((ConfigError, StoreError), match=r"damaged.db"):
        import_study(file_place(damaged), None, there(f"sqlite:///{tmp_path}/study.db"))


def test_file_of_a_newer_tuner_is_named(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/study.db"
    add_finished_study(url)
    export_study(place(url), tmp_path / "first.db", force=False)
    with sqlite3.connect(tmp_path / "first.db") as connection:
        connection.execute("UPDATE tuner_alembic_version SET version_num = '9999'")
    connection.close()
    with pytest.raises(StoreError, match=r"first.db was written by a newer tuner") as caught:
        import_study(file_place(tmp_path / "first.db"), "back", there(url))
    assert "tuner-import" not in str(caught.value)


def test_interrupted_import_leaves_nothing(url: str) -> None:
    add_first_study(url)
    before = n_rows(url)

    def interrupt(_row: object) -> None:
        raise KeyboardInterrupt

    source = open_database(url)
    with (
        source.engine.connect() as reading,
        pytest.raises(KeyboardInterrupt),
        writing(place(url)) as (_, connection),
    ):
        Transfer(reading, connection, {"tuner_leases": interrupt}).copy(
            study_id(reading, "first"), "back"
        )
    source.close()
    assert n_rows(url) == before


def test_every_table_of_ours_is_moved_or_shared() -> None:
    """Who adds a table that hangs on no study has to say here that it stays."""
    ours = {name for name in TunerBase.metadata.tables if name.startswith("tuner_")}
    assert ours - {each.name for each in study_tables(with_ours=True)} == set(SHARED)


def test_settling_leaves_what_has_ended() -> None:
    row = {"state": TrialState.COMPLETE}
    assert CloseRunning().changes["trials"](row) is row
