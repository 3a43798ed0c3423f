"""A database that Optuna 0.9 wrote is imported as a whole, or it is said what it lacks."""

from __future__ import annotations

import importlib.util
import json
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import optuna
import pytest
import sqlalchemy as sa
from alembic.operations import Operations
from alembic.runtime.migration import MigrationContext
from optuna.trial import TrialState

from tests.integration.stored_studies.seeded import add_study, first_trials, load, n_rows, place
from tuner.actions.transfer.export_import import import_study
from tuner.errors import StoreError
from tuner.queries.locate import Place, find_place

_SCHEMA = Path(optuna.__file__).parent / "storages/_rdb/alembic/versions/v0.9.0.a.py"
_UNIFORM = {"name": "UniformDistribution", "attributes": {"low": 0.0, "high": 1.0}}
_CHOICE = {"name": "CategoricalDistribution", "attributes": {"choices": ["sgd", "adamw"]}}
_STARTED, _ENDED = "2019-04-01 10:00:00.000000", "2019-04-01 10:00:09.000000"


def write_database_of_0_9(path: Path) -> None:
    """Three trials; the last one runs."""
    engine = sa.create_engine(f"sqlite:///{path}")
    spec = importlib.util.spec_from_file_location("of_0_9", _SCHEMA)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    with (
        engine.begin() as connection,
        Operations.context(MigrationContext.configure(connection)),
    ):
        module.upgrade()
    engine.dispose()
    run(
        path,
        "INSERT INTO version_info VALUES (1, 11, '0.9.0')",
        "INSERT INTO studies VALUES (1, 'old', 'MAXIMIZE')",
        "INSERT INTO study_user_attributes VALUES (1, 1, 'owner', '\"me\"')",
        *(each for number in range(3) for each in trial_of_0_9(number)),
    )


def trial_of_0_9(number: int) -> list[str]:
    key, (state, value) = number + 1, ("COMPLETE", number / 2) if number < 2 else ("RUNNING", None)
    shown, ended = json.dumps(value), "NULL" if value is None else f"'{_ENDED}'"
    return [
        f"INSERT INTO trials VALUES ({key}, 1, '{state}', {shown}, '{_STARTED}', {ended})",
        "INSERT INTO trial_system_attributes (trial_id, key, value_json) "
        f"VALUES ({key}, '_number', '{number}')",
        f"INSERT INTO trial_user_attributes (trial_id, key, value_json) VALUES ({key}, 'k', '1')",
        "INSERT INTO trial_params (trial_id, param_name, param_value, distribution_json) "
        f"VALUES ({key}, 'lr', 0.25, '{json.dumps(_UNIFORM)}')",
        "INSERT INTO trial_params (trial_id, param_name, param_value, distribution_json) "
        f"VALUES ({key}, 'optimizer', 1, '{json.dumps(_CHOICE)}')",
        f"INSERT INTO trial_values (trial_id, step, value) VALUES ({key}, 3, 0.125)",
    ]


def upgrade(path: Path) -> None:
    words = ("storage", "upgrade", "--storage", f"sqlite:///{path}")
    program = "from optuna.cli import main; raise SystemExit(main())"
    subprocess.run([sys.executable, "-c", program, *words], check=True, timeout=100)


def run(path: Path, *statements: str) -> None:
    with closing(sqlite3.connect(path)) as connection, connection:
        for each in statements:
            connection.execute(each)


def there(url: str) -> Callable[[str], Place]:
    return lambda name: place(url, name)


def import_it(path: Path, url: str) -> None:
    import_study(find_place(str(path), None, {}), None, there(url))


@pytest.fixture(scope="module")
def upgraded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("old") / "old.db"
    write_database_of_0_9(path)
    upgrade(path)
    return path


def copied(upgraded: Path, folder: Path) -> Path:
    path = folder / "old.db"
    path.write_bytes(upgraded.read_bytes())
    return path


def test_upgraded_database_is_imported(upgraded: Path, url: str) -> None:
    # Nobody has opened it since, so it has no trial_heartbeats.
    import_it(upgraded, url)
    attributes, trials = load(url, "old")
    assert attributes == {"owner": "me"}
    assert [each.state for each in trials] == [TrialState.COMPLETE] * 2 + [TrialState.WAITING]
    assert [each.value for each in trials] == [0.0, 0.5, None]
    assert {each.params["optimizer"] for each in trials} == {"adamw"}
    assert all(each.intermediate_values == {3: 0.125} for each in trials)
    assert all(each.user_attrs == {"k": 1} for each in trials)


@pytest.mark.parametrize(
    ("statement", "lacks"),
    [
        ("UPDATE study_directions SET direction = 'NOT_SET'", ["1 direction of 1 NOT_SET"]),
        ("DELETE FROM study_directions", ["it has no direction"]),
        ("UPDATE trials SET number = NULL", ["3 trials without a number"]),
        ("UPDATE trials SET number = 7", ["1 number .* several trials have"]),
        ("DELETE FROM trial_values", ["2 complete trials without a value for each direction"]),
        ("UPDATE trial_values SET value = NULL", ["2 values without a number"]),
        (
            "UPDATE trial_intermediate_values SET intermediate_value = NULL",
            ["3 reports without a number"],
        ),
        (
            "UPDATE trial_params SET distribution_json = substr(distribution_json, 1, 20)",
            ["6 parameters whose JSON"],
        ),
        (
            "UPDATE trial_params SET param_value = NULL WHERE trial_id = 1",
            ["2 parameters without a number"],
        ),
        ("UPDATE trial_user_attributes SET value_json = NULL", ["3 attributes whose JSON"]),
    ],
)
def test_what_is_missing_is_said(
    upgraded: Path, tmp_path: Path, statement: str, lacks: list[str]
) -> None:
    path = copied(upgraded, tmp_path)
    run(path, statement)
    target = f"sqlite:///{tmp_path}/target.db"
    with pytest.raises(StoreError, match=r"Study 'old' of .*old.db is not whole:") as caught:
        import_it(path, target)
    for each in lacks:
        caught.match(each)
    caught.match("Nothing was imported")
    assert not (tmp_path / "target.db").exists()


def test_all_that_is_missing_is_said_at_once(upgraded: Path, tmp_path: Path) -> None:
    path = copied(upgraded, tmp_path)
    run(path, "UPDATE trials SET number = NULL WHERE trial_id = 2", "DELETE FROM study_directions")
    with pytest.raises(StoreError, match=r"no direction[^\n]*\n  - 1 trial without a number"):
        import_it(path, f"sqlite:///{tmp_path}/target.db")


def test_missing_tables_are_named(upgraded: Path, tmp_path: Path) -> None:
    path = copied(upgraded, tmp_path)
    run(path, "DROP TABLE trial_values", "DROP TABLE trial_intermediate_values")
    with pytest.raises(StoreError, match=r"lacks 2 tables .*trial_values, trial_intermediate_val"):
        import_it(path, f"sqlite:///{tmp_path}/target.db")


def test_lack_of_another_study_does_not_matter(tmp_path: Path, url: str) -> None:
    path = tmp_path / "two.db"
    for name in ("good", "bad"):
        add_study(f"sqlite:///{path}", name, first_trials(), space=None)
    run(path, "DELETE FROM study_directions WHERE study_id = 2")
    import_study(find_place(str(path), "good", {}), None, there(url))
    assert n_rows(url)["trials"] == len(first_trials())
