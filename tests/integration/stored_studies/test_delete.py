"""A study goes with all that belongs to it, and nothing else, on each kind of database."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path

import pytest
import sqlalchemy as sa

from tests.integration.stored_studies.seeded import (
    a_trial,
    add_attempt,
    add_dispatcher,
    add_first_study,
    add_study,
    add_upload,
    dump,
    looking,
    n_rows,
    place,
    study_id,
    writing,
)
from tuner.actions.delete import (
    Extent,
    FilesExtent,
    check_is_named,
    delete_files,
    delete_study,
    measure,
    measure_files,
)
from tuner.errors import EXIT_BAD_INPUT, ConfigError, StoreError
from tuner.host.process_identity import own_process
from tuner.queries.locate import StoredStudy, find_place
from tuner.store.optuna_tables.statements import IDENTITY_ATTR, STUDY_ATTRS
from tuner.store.records.dispatchers.starts import open_dispatchers
from tuner.terminal.changes import deleted_text


def add_ended_study(url: str, name: str) -> None:
    add_study(url, name, [a_trial({"lr": 0.01}, 0.5, intermediate_values={1: 0.5})])
    add_attempt(url, add_dispatcher(url, name), 0, outcome=None)


def test_nothing_of_the_study_is_left(url: str) -> None:
    add_ended_study(url, "only")
    assert "tuner_metrics" in n_rows(url)
    delete_study(place(url, "only"), own_process())
    assert n_rows(url) == {}
    with looking(url) as connection:
        hosts = connection.execute(sa.text("SELECT count(*) FROM tuner_hosts")).scalar_one()
    assert hosts == 1


def test_other_studies_stay_as_they_are(url: str) -> None:
    add_first_study(url)
    add_ended_study(url, "second")
    before = dump(url, "first")
    delete_study(place(url, "second"), own_process())
    assert dump(url, "first") == before
    assert n_rows(url)["studies"] == 1


def test_study_that_is_being_run_is_kept(url: str) -> None:
    add_first_study(url)
    before = n_rows(url)
    here, first = own_process(), place(url, "first")
    for verb in (partial(measure, first, here, print), partial(delete_study, first, here)):
        with pytest.raises(StoreError, match=r"is being run, on .* \(pid \d+, since") as caught:
            verb()
        assert caught.value.exit_code == EXIT_BAD_INPUT
    assert n_rows(url) == before


def test_dispatcher_elsewhere_counts_as_alive_unless_it_was_watched_in_vain(url: str) -> None:
    add_study(url, "first", [])
    add_dispatcher(url, "first", host="elsewhere")
    with pytest.raises(StoreError, match="on elsewhere"):
        delete_study(place(url, "first"), own_process())
    with looking(url) as connection:
        silent = [one.sign for one in open_dispatchers(connection, None)]
    delete_study(place(url, "first"), own_process(), silent)
    assert n_rows(url) == {}


def test_extent_is_told(url: str) -> None:
    add_ended_study(url, "first")
    extent = measure(place(url), own_process(), print)
    assert (extent.study.name, extent.n_trials, extent.n_attempts) == ("first", 1, 1)


def test_objects_that_stay_are_named_and_those_of_another_study_are_not(url: str) -> None:
    add_ended_study(url, "only")
    with writing(url) as connection:
        attr = {"key": IDENTITY_ATTR, "value_json": json.dumps({"id": "5f1c" * 8})}
        owner = study_id(connection, "only")
        connection.execute(sa.insert(STUDY_ATTRS).values(study_id=owner, **attr))
    for folder in ("p/only-5f1c5f1c5f1c", "p/other-77aa77aa77aa"):
        uri = f"s3://bucket/{folder}/trial-0/attempt-1/step-2.17f.pt"
        add_upload(url, "only", 0, uri=uri)
    extent = measure(place(url, "only"), own_process(), print)
    assert extent.object_folders == ("s3://bucket/p/only-5f1c5f1c5f1c",)
    said = deleted_text(extent, None, place(url, "only"))
    assert "Its objects stay in s3://bucket/p/only-5f1c5f1c5f1c: checkpoints and logs." in said


def test_study_of_optuna_alone_is_deleted(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/plain.db"
    add_study(url, "plain", [a_trial({"lr": 0.01}, 0.5)], space=None)
    assert measure(place(url), own_process(), print).n_attempts == 0
    delete_study(place(url, "plain"), own_process())
    assert n_rows(url) == {}


def test_files_are_counted_and_removed(tmp_path: Path) -> None:
    file = tmp_path / "study.yaml"
    file.write_text("study: small\ntrial: {function: 'm:f'}\n")
    root = tmp_path / "tuner-files" / "small" / "trial-0"
    root.mkdir(parents=True)
    (root / "attempt-1.log").write_text("x" * 10)
    (root / "link").symlink_to(tmp_path / "study.yaml")
    extent = Extent(study=StoredStudy(id=1, name="small"), n_trials=1, n_attempts=1)
    files = measure_files(find_place(str(file), None, {}), extent)
    of_runs = root.parent.with_name(f"{root.parent.name}.confirm")
    assert files == FilesExtent(
        root=root.parent, root_of_runs=of_runs, own=(root,), n_files=1, n_bytes=10
    )
    delete_files(files)
    assert not root.parent.exists()
    assert file.exists()
    delete_files(files)


def test_study_must_be_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="--study NAME"):
        check_is_named(place("sqlite:///x.db"), with_files=False)
    with pytest.raises(ConfigError, match="--files needs the study file"):
        check_is_named(place("sqlite:///x.db", "a"), with_files=True)
